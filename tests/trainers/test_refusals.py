"""Flags that contradict each other: one line that names them, and nothing is written.

Bounds of single flags are in trainers/flags.csv, and how they are kept in `core/test_options`.
"""

import os

import pytest

from tests.trainers import programs

_SCHOOL = ("--dataset_name=school", "--use_synthetic_data")
# Flags that the others come after: the last value of a flag counts.
_BEFORE = {
    "finetuning_trainer": _SCHOOL,
    "hypcluster_trainer": (*_SCHOOL, "--num_clusters=2", "--total_rounds=1"),
    "knn_per_trainer": _SCHOOL,
    "mtl_trainer": _SCHOOL,
    "generative_trainer": ("--dataset_name=mnist", "--use_synthetic_data", "--train_steps=6"),
}
# {trainer: (flags, what the line says)}
_REFUSED = {
    "finetuning_trainer": (
        ("--dataset_name=shool", "did you mean 'school'"),
        ("--valid_clients_per_round=5", "--valid_clients_per_evaluation"),
        ("--train_batch_size=0", "--train_batch_size=0: expected a whole number"),
        ("--finetune_learning_rate=0.1,0.10", "--finetune_learning_rate=0.1,0.10: expected"),
        ("--trim_share=0.2", "--aggregator=trimmed_mean"),
        ("--clients_per_train_round=61", "--clients_per_train_round=61"),
        ("--dataset_name=emnist --finetune_every=2", "--finetune_every=2"),
        ("--dataset_name=emnist --reported_round=best", "--reported_round=best"),
        ("--dataset_name=stackoverflow --only_digits", "--dataset_name=emnist, not stackoverflow"),
        ("--algorithm=per_fedavg --finetune_learning_rate=0.1,0.2", "--finetune_learning_rate"),
        ("--algorithm=centralized --dropout_rate=0.5", "--dropout_rate=0.5"),
        ("--experiment_name==SUM(A1)", "experiment_name"),
        ("--root_output_dir=/dev/null", "root_output_dir"),
        ("--acceptance=sometimes", "expected always, min_examples:N"),
        ("--acceptance=validated:0.5", "validated:0.5"),
        ("--partition=random", "partition"),
        ("--min_improvement=0.1", "--min_improvement=0.1: expected --stop_after beside it"),
        ("--stop_after=10", "--stop_after=10: expected below 10"),
        ("--dataset_name=emnist --stop_after=2 --final_evaluation_clients=5", "same clients"),
        ("--warmup_rounds=101", "at most 100, the rounds"),
        ("--decay_rounds=5", "--client_schedule or --server_schedule of step or exponential"),
        ("--algorithm=fedsgd --client_schedule=cosine", "a client of FedSGD takes no steps"),
        ("--algorithm=centralized --server_schedule=cosine", "no server's step in one place"),
        ("--train_steps=3 --train_epochs=2", "--train_steps takes its place"),
        ("--client_schedule=cosin", "did you mean cosine"),
        ("--export_scores", "expected a task of labels, such as emnist or vehicle"),
    ),
    "hypcluster_trainer": (
        ("--num_clusters=61", "--num_clusters=61"),
        ("--path_to_initial_model_weights_list=a,b,c", "--num_clusters=2"),
        ("--path_to_initial_model_weights=a", "--path_to_initial_model_weights_list"),
        ("--warmstart_fraction=0.2 --num_warmstart_fedavg_rounds=3", "--num_warmstart_fedavg"),
        ("--dataset_name=emnist --warmstart_fraction=0.2", "--warmstart_fraction=0.2"),
        ("--path_to_initial_model_weights_list=a,b --cluster_initialization=updates",
         "--cluster_initialization=updates"),
        ("--warmstart_client_learning_rate=0.1", "--num_warmstart_fedavg_rounds"),
        ("--num_warmstart_fedavg_rounds=3 --warmstart_server_adam_epsilon=0.1",
         "--server_optimizer=adam"),
        # Before the warm start.
        ("--num_warmstart_fedavg_rounds=2 --acceptance=validated:0.2", "validated:0.2"),
        ("--client_adam_beta_1=0.5", "--client_adam_beta_1: expected --"),
    ),
    "knn_per_trainer": (("--total_rounds=0", "--path_to_initial_model_weights"),),
    "mtl_trainer": (
        ("--val_split=0.5 --test_split=0.5", "--test_split=0.5"),
        ("--lam_svm=0", "--dataset_name=vehicle"),
        ("--dataset_name=emnist", "adni, school, vehicle"),
        ("--alpha=0.5", "--algorithm=apfl"),
        ("--algorithm=dito", "did you mean ditto?"),
        ("--algorithm=fedprox", "see finetuning_trainer and knn_per_trainer"),
    ),
    "generative_trainer": (
        ("--generator=ddpm --n_critic=3", "--generator=wgan_gp"),
        ("--server_decay=0.5", "--generator=ddpm"),
        ("--generator=ddpm --diffusion_steps=30", "--diffusion_steps=30"),
        ("--generator=ddpm --generator_width=12", "multiple of 8"),
        ("--model=lenet", "--model=lenet"),
        ("--evaluate_ood", "--evaluate_ood=True"),
        ("--train_epochs=2", "--train_steps"),
        ("--algorithm=centralized --only_client=a", "--only_client=a"),
        ("--keep_optimizer_state", "--keep_optimizer_state"),
        ("--algorithm=ditto", "see mtl_trainer"),
        ("--attack=label_flip:0.1", "--attack"),
        ("--dataset_name=school", "--dataset_name=school: expected pictures"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("trainer", "flags", "words"),
    [(trainer, *case) for trainer, cases in _REFUSED.items() for case in cases],
)
def test_a_refusal_is_one_line(tmp_path, trainer, flags, words):
    given = ("--experiment_name=x", *_BEFORE[trainer], *flags.split())
    _, stderr = programs.run(trainer, tmp_path, *given, status=2)
    assert stderr.count("\n") == 1 and words in stderr
    assert not [name for name in os.listdir(tmp_path) if (tmp_path / name / "summary.csv").exists()]
