"""Resuming is real: what goes on trains the rounds that are left, what is finished none.

Runs are deterministic, so one that began anew would write the same tables. Rounds are counted.
"""

import functools
import json
from unittest import mock

import pytest

from motley_tff.core.errors import UserError
from motley_tff.experiment import recorder
from tests.contracts import in_process
from tests.errors import refused
from tests.trainers import programs

_FINETUNING, _HYPCLUSTER, _KNN_PER, _MTL = in_process.TRAINERS
_slow = functools.partial(pytest.param, marks=pytest.mark.slow)
_FLAGS = (
    "--total_rounds=4", "--rounds_per_evaluation=2", "--rounds_per_checkpoint=2",
    "--backend=sequential", "--server_optimizer=adam", "--server_learning_rate=0.1",
)  # fmt: skip
# (trainer, flags): what keeps another kind of state adds a line.
RUNS = (
    (_FINETUNING, ("--dataset_name=emnist", "--clients_per_train_round=2", "--dropout_rate=0.3",
                   "--finetune_max_epochs=1")),
    (_FINETUNING, ("--finetune_every=2", "--finetune_max_epochs=1")),
    (_FINETUNING, ("--algorithm=scaffold", "--clients_per_train_round=2", "--dropout_rate=0.3",
                   "--finetune_max_epochs=1")),
    (_KNN_PER, ("--num_neighbors=2", "--coefficients=0.5")),
    (_MTL, ("--algorithm=ditto",)),
    (_MTL, ("--algorithm=fedper",)),
    # Nothing is better enough: it ends after the second evaluation.
    (_MTL, ("--algorithm=local", "--total_rounds=6", "--stop_after=1", "--min_improvement=100",
            "--client_schedule=exponential", "--server_schedule=cosine", "--warmup_rounds=3")),
    (_MTL, ("--algorithm=fedbn", "--client_optimizer=momentum", "--keep_optimizer_state")),
    (_HYPCLUSTER, ("--num_clusters=2", "--num_warmstart_fedavg_rounds=2")),
)  # fmt: skip


class _Killed(BaseException):
    """Ends a run without the checkpoint that a signal leaves."""


class _Counted:
    """What stands for the terminal: counts each stage's steps, and ends the run in one of them."""

    def __init__(self, stage="", last=0, error=_Killed):
        self._stages, self._stage, self._last, self._error = [], stage, last, error
        self.steps, self.went_on_after = {}, {}

    def __call__(self, opening=""):
        return self

    def start(self, stage, total, done=0):
        self._stages.append(stage)
        self.went_on_after[stage] = done

    def advance(self, steps=1, **facts):
        stage = self._stages[-1]
        self.steps[stage] = self.steps.get(stage, 0) + steps
        if (stage, self.steps[stage]) == (self._stage, self._last):
            raise self._error

    def finish(self):
        self._stages.pop()


def _shown(progress):
    """Puts a progress in place of the terminal's."""
    return mock.patch("motley_tff.commandline.progress.TerminalProgress", progress)


# Without warning, in round 4, after the checkpoint of round 2; on a signal, after round 3. Each
# kind of state meets one of them.
_ENDINGS = ((4, _Killed, 2), (3, KeyboardInterrupt, 3))
_CASES = [(*run, _ENDINGS[i % 2]) for i, run in enumerate(RUNS)]


@pytest.fixture(params=_CASES, ids=lambda case: "-".join((case[0], *case[1])))
def begun(request, tmp_path):
    """Runs a trainer once more under a progress that counts; returns (what does, the ending)."""
    trainer, flags, ending = request.param
    with in_process.opened(trainer) as run:

        def again(name, *counted):
            progress = _Counted(*counted)
            with _shown(progress):
                if counted:
                    with pytest.raises(counted[-1]):
                        run(tmp_path, name, *_FLAGS, *flags)
                    status = json.loads((tmp_path / name / "run.json").read_text())["status"]
                    assert status == "stopped"
                else:
                    run(tmp_path, name, *_FLAGS, *flags)
            return progress

        yield again, ending


def test_only_the_rounds_that_are_left_are_trained(begun, tmp_path, capsys):
    run, (last, error, kept) = begun
    whole = run("whole")
    assert whole.steps["train"] == 4 and whole.went_on_after["train"] == 0
    run("ended", "train", last, error)
    progress = run("ended")
    assert (progress.went_on_after["train"], progress.steps["train"]) == (kept, 4 - kept)
    assert not [stage for stage in progress.steps if stage.startswith("warm start")]
    programs.same_tables(tmp_path / "whole", _renamed(tmp_path, "ended"))
    capsys.readouterr()
    assert run("whole").steps == {}, "a finished run trains and evaluates nothing"
    assert "whole" in capsys.readouterr().out


def test_an_evaluation_that_was_due_is_made_up_for(tmp_path):
    """A run that is ended right after a round that is to be evaluated begins with that."""
    flags = ("--algorithm=ditto", *_FLAGS)
    with in_process.opened(_MTL) as run:
        run(tmp_path, "whole", *flags)
        cut, rest = _Counted("train", 2, KeyboardInterrupt), _Counted()
        with _shown(cut), pytest.raises(KeyboardInterrupt):
            run(tmp_path, "owed", *flags)
        assert programs.last_checkpoint(tmp_path / "owed") == 2 and len(cut.steps) == 1
        with _shown(rest):
            run(tmp_path, "owed", *flags)
    assert [stage for stage in rest.steps if stage != "train"] == [
        "evaluate round 2", "evaluate round 4"
    ]  # fmt: skip
    programs.same_tables(tmp_path / "whole", _renamed(tmp_path, "owed"))


@pytest.mark.parametrize("place", [_slow("evaluate round 4"), "end"])
def test_a_run_that_ends_early_is_cut_where_it_ends(tmp_path, place):
    """In the evaluation that ends it, or right after: it ends there again, with the best model."""
    flags = ("--algorithm=local", *_FLAGS, "--total_rounds=6", "--stop_after=1",
             "--min_improvement=100", "--client_learning_rate=2")  # fmt: skip
    with in_process.opened(_MTL) as run:
        run(tmp_path, "whole", *flags)
        cut = _Counted(place, 1) if place != "end" else _Counted()
        close = recorder.Recorder.close

        def killed(self):
            close(self)
            if place == "end":
                raise _Killed

        with (
            _shown(cut),
            mock.patch.object(recorder.Recorder, "close", killed),
            pytest.raises(_Killed),
        ):
            run(tmp_path, "ended", *flags)
        rest = _Counted()
        with _shown(rest):
            run(tmp_path, "ended", *flags)
    assert rest.steps.get("train", 0) == 0 and "evaluate round 6" not in rest.steps
    whole, ended = tmp_path / "whole", tmp_path / "ended"
    assert (whole / "global_model.npz").read_bytes() == (ended / "global_model.npz").read_bytes()
    programs.same_tables(whole, _renamed(tmp_path, "ended"))


@pytest.mark.parametrize(
    ("trainer", "flags"),
    [
        # Of two clients a split an evaluation while training takes one.
        (_FINETUNING, ("--dataset_name=emnist", "--clients_per_train_round=2",
                       "--finetune_max_epochs=1", "--valid_clients_per_evaluation=1",
                       "--test_clients_per_evaluation=1")),
        # Round 2 was due as the last.
        _slow(_MTL, ("--algorithm=ditto", "--rounds_per_evaluation=3")),
        _slow(_MTL, ("--algorithm=local", "--client_schedule=step", "--decay_rounds=1",
                     "--server_schedule=exponential")),
        _slow(_HYPCLUSTER, ("--num_clusters=2", "--num_warmstart_fedavg_rounds=1")),
    ],
)  # fmt: skip
def test_rounds_that_are_raised_are_as_if_there_had_always_been_so_many(tmp_path, trainer, flags):
    with in_process.opened(trainer) as run:
        run(tmp_path, "whole", *_FLAGS, *flags)
        run(tmp_path, "raised", *_FLAGS, *flags, "--total_rounds=2")
        with _shown(progress := _Counted()):
            run(tmp_path, "raised", *_FLAGS, *flags)
        with refused("total_rounds", 3, "at least 4"):
            run(tmp_path, "raised", *_FLAGS, *flags, "--total_rounds=3")
    assert (progress.went_on_after["train"], progress.steps["train"]) == (2, 2)
    programs.same_tables(tmp_path / "whole", _renamed(tmp_path, "raised"))
    record = json.loads((tmp_path / "raised" / "run.json").read_text())
    assert (record["status"], record["flags"]["total_rounds"]) == ("finished", 4)
    assert record["raised_from"] is None


def test_rounds_are_not_raised_where_another_flag_depends_on_them(tmp_path):
    with in_process.opened(_HYPCLUSTER) as run:
        for name, value in (
            ("warmstart_fraction", 0.5), ("balance", 0.1), ("client_schedule", "cosine"),
            ("stop_after", 1),
        ):  # fmt: skip
            flags = (*_FLAGS, "--num_clusters=2", f"--{name}={value}", "--total_rounds=2",
                     "--rounds_per_evaluation=1")  # fmt: skip
            run(tmp_path, name, *flags)
            with refused("total_rounds", 4, name):
                run(tmp_path, name, *flags, "--total_rounds=4")
            run(tmp_path, name, *flags)  # What is there is still shown.


def test_what_is_cut_while_rounds_are_raised_loses_nothing(tmp_path):
    """Before it goes on nothing is written; cut in its third round, it goes on from the second."""
    flags = ("--algorithm=ditto", *_FLAGS)
    with in_process.opened(_MTL) as run:
        run(tmp_path, "whole", *flags)
        run(tmp_path, "raised", *flags, "--total_rounds=2")
        before = (tmp_path / "raised" / "summary.csv").read_bytes()
        lost = mock.patch("datasets.create_task", side_effect=UserError("no data"))
        with lost, pytest.raises(UserError, match="no data"):
            run(tmp_path, "raised", *flags)
        assert (tmp_path / "raised" / "summary.csv").read_bytes() == before
        cut = _shown(_Counted("train", 1))
        with cut, pytest.raises(_Killed):
            run(tmp_path, "raised", *flags)
        with _shown(rest := _Counted()):
            run(tmp_path, "raised", *flags)
    assert rest.steps["train"] == 2
    programs.same_tables(tmp_path / "whole", _renamed(tmp_path, "raised"))


def _renamed(root, name):
    """Returns the run's directory with the run_id `whole` in its tables."""
    for path in (root / name).glob("*.csv"):
        path.write_text(path.read_text().replace(f"{name},", "whole,"))
    return root / name


def test_a_warm_start_goes_on_with_the_model_it_was_cut_in(tmp_path):
    flags = ("--num_clusters=3", "--num_warmstart_fedavg_rounds=2", "--total_rounds=1")
    stages = [f"warm start of model {j}" for j in (1, 2, 3)]
    with in_process.opened(_HYPCLUSTER) as run:
        cut, rest = _Counted(stages[1], 1), _Counted()
        with _shown(cut), pytest.raises(_Killed):
            run(tmp_path, "x", *_FLAGS, *flags)
        with _shown(rest):
            run(tmp_path, "x", *_FLAGS, *flags)
    assert cut.steps == {stages[0]: 2, stages[1]: 1}
    assert {s: rest.steps.get(s) for s in (*stages, "train")} == {
        stages[0]: None, stages[1]: 2, stages[2]: 2, "train": 1,
    }  # fmt: skip
