"""The loop of rounds: train, checkpoint, evaluate, record.

Everything a round does depends on the seed and the round's number alone, so a run that is cut and
resumed from a checkpoint writes the same bytes as one that was not (times aside). `schedule` says
who takes part and what is due, the backend's process trains, `RoundEvaluator` evaluates, and
`Recorder` writes.
"""

from motley_tff.backends import base
from motley_tff.core.algorithm import NO_BYTES, Algorithm, Bytes, Personalization
from motley_tff.core.task import Task
from motley_tff.evaluation.evaluator import Evaluator
from motley_tff.experiment import schedule
from motley_tff.experiment.checkpoints import Trained
from motley_tff.experiment.config import LoopConfig
from motley_tff.experiment.progress import Progress, Silent
from motley_tff.experiment.recorder import CountEpsilon, Recorder, WriteScalars
from motley_tff.experiment.round_evaluator import RoundEvaluator
from motley_tff.experiment.run_directory import RunDirectory


def train(
    config: LoopConfig,
    task: Task,
    process: base.TrainingProcess,
    trained: Trained,
    evaluator: RoundEvaluator,
    recorder: Recorder,
    progress: Progress,
) -> Trained:
    """Trains the rounds that are left, and returns the state after the last.

    An interruption (Ctrl-C, SIGTERM) leaves a checkpoint of the last whole round, if the global
    model is finite.

    Raises:
      UserError: If the global model is not finite, or, by `process.next`, a client's loss.
    """
    try:
        while trained.num_rounds < config.total_rounds and not recorder.is_over:
            # The cohort of the next round. A backend that runs several rounds in a call gets more,
            # up to the next that is due a checkpoint or an evaluation.
            rounds = schedule.next_rounds(config, task, trained.num_rounds, process.rounds_per_call)
            # In each round every client trains, the updates are averaged, and the server steps.
            state, results = process.next(trained.state, rounds)
            recorder.add_rounds(results)  # A resumed run cuts rows of rounds after its checkpoint.
            trained = Trained(state, rounds[-1].number)
            for result in results:
                # A signal (Ctrl-C, SIGTERM) is only noted when it comes; this raises for it.
                progress.advance(loss=result.means["loss"])
            evaluator.check_finite(trained)
            # A run that is cut during a long evaluation resumes with it: the checkpoint is first.
            if schedule.is_checkpoint_due(config, trained.num_rounds):
                recorder.checkpoint(trained)
            if schedule.is_evaluation_due(config, trained.num_rounds):
                tables, pictures = evaluator.evaluate(trained)
                recorder.add_evaluation(trained, tables, pictures)
        if trained.num_rounds < config.total_rounds:  # It ended early.
            recorder.checkpoint(trained)
    except (KeyboardInterrupt, SystemExit):
        if evaluator.is_finite(trained):
            recorder.checkpoint(trained)
        raise
    return trained


def run(
    config: LoopConfig,
    task: Task,
    algorithm: Algorithm,
    personalization: Personalization,
    backend: base.Backend,
    directory: RunDirectory,
    algorithm_name: str,
    progress: Progress | None = None,
    bytes_before: Bytes = NO_BYTES,
    write_scalars: WriteScalars | None = None,
    epsilon: CountEpsilon | None = None,
) -> None:
    """Trains and evaluates to the end, from the last checkpoint if there is one.

    Args:
      directory: Where files go; held by this process.
      algorithm_name: What the tables' `algorithm` column says.
      bytes_before: What was communicated before the first round, in a warm start.
      write_scalars: Called with `{name: mean}` and the round's number, after each round and after
        each evaluation.
      epsilon: What a run with a private mean has spent after so many rounds.
    """
    progress = progress or Silent()
    process = backend.training(task, algorithm)
    recorder = Recorder(
        config,
        task,
        algorithm,
        process,
        directory,
        algorithm_name,
        bytes_before,
        write_scalars,
        epsilon,
    )
    clients = Evaluator(config.evaluation, backend, task, personalization, config.base_random_seed)
    evaluator = RoundEvaluator(
        config, task, algorithm, personalization, process, clients, directory.path, progress
    )
    trained = recorder.restore(process.initialize())
    number = trained.num_rounds
    progress.start("train", config.total_rounds, number)
    try:
        # A generator's pictures before training, to compare the later ones with.
        if number == 0 and config.total_rounds:
            recorder.add_pictures(0, evaluator.pictures(trained))
        if schedule.is_evaluation_due(config, number) and number not in recorder.evaluated:
            tables, pictures = evaluator.evaluate(trained)
            recorder.add_evaluation(trained, tables, pictures)
        trained = train(config, task, process, trained, evaluator, recorder, progress)
        if config.stop_after is None:
            recorder.export(trained)
    finally:
        recorder.close()
        progress.finish()
