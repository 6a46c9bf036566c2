"""Flags that a trainer does not have, and what to give instead: those of Motley's published
programs, and of the other trainers.

The cross-silo program (`main.py`) has other names than the cross-device trainers, whose names are
kept; Keras's optimizers, which the published fine-tuning trainer took, have parameters that TFF's
lack. launch/grids/README.md has whole commands.
"""

import re

from trainers import TRAINERS, algorithm_flags, optimizer_flags


def _here(*flags: str) -> str:
    return "here it is " + " or ".join(f"--{flag}" for flag in flags)


def _swept(flag: str) -> str:
    return f"give motley_sweep a grid that has {flag} with a list of values"


_NO_LOG = "there is none here: a run prints a line now and then, and its tables stay small"
_STEPS = "there is none here: a round is --train_epochs passes over a client's examples"
_NO_ADVICE = "there is none here"
# {flag of the silo code's main.py: what to do}
SILO = {
    "trainer": "here each algorithm has its trainer: see launch/grids/README.md",
    "dataset": _here("dataset_name"),
    "density": f"{_NO_ADVICE}: of a smaller training set, give the data as a file (--data_file)",
    "no_std": f"{_NO_ADVICE}: without scaled features no published rate is of use",
    **dict.fromkeys(("lr", "client_lr"), _here("client_learning_rate")),
    "server_lr": _here("server_learning_rate"),
    "batch_size": _here("train_batch_size"),
    **dict.fromkeys(("t", "num_rounds"), _here("total_rounds")),
    **dict.fromkeys(("ee", "eval_every"), _here("rounds_per_evaluation")),
    "clients_per_round": f"{_here('clients_per_train_round')}; silos all take part without it",
    **dict.fromkeys(("inner_mode", "inner_iters"), _STEPS),
    "inner_epochs": _here("train_epochs"),
    "server_opt": f"{_here('server_optimizer')}, with the values sgd, fedavgm and adam",
    "fedavg_momentum": _here("server_fedavgm_momentum"),
    "fedadam_beta1": _here("server_adam_beta_1"),
    "fedadam_beta2": _here("server_adam_beta_2"),
    "fedadam_tau": _here("server_adam_epsilon"),
    "ifca_warmstart_frac": f"{_here('warmstart_fraction')} of hypcluster_trainer",
    "ifca_ensemble_baseline": "here it is hypcluster_trainer with --total_rounds=0 and the rounds "
    "as --num_warmstart_fedavg_rounds",
    "k": _here("num_clusters") + " of hypcluster_trainer",
    "ditto_secret_lr": f"{_here('personal_learning_rate')} of mtl_trainer",
    "seed": _here("base_random_seed"),
    "lambda": "mtl_trainer has it; of kNN-Per it is --coefficients here",
    "mocha_mode": f"{_NO_ADVICE}: Mocha is the primal one, which the paper's tables have",
    "finetune_epochs": f"{_here('finetune_max_epochs')} of finetuning_trainer",
    "finetune_lr": f"{_here('finetune_learning_rate')} of finetuning_trainer",
    "finetune_lrs": f"{_here('finetune_learning_rate')} of finetuning_trainer, with commas, and "
    "--finetune_tuning=per_client",
    "knn_neighbors": f"{_here('num_neighbors')} of knn_per_trainer",
    "knn_weights": f"{_NO_ADVICE}: neighbours weigh by their inverse distance, as in the paper's "
    "runs",
    "unweighted_updates": f"{_NO_ADVICE}: an update weighs as many examples as it was trained on",
    "sweep": "here it is the command motley_sweep",
    "num_procs": "here it is --max_parallel of motley_sweep",
    "client_lrs": _swept("client_learning_rate"),
    "server_lrs": _swept("server_learning_rate"),
    "ditto_secret_lrs": _swept("personal_learning_rate"),
    "fedadam_taus": _swept("server_adam_epsilon"),
    "lambdas": _swept("lambda"),
    "mocha_outers": _swept("mocha_outer"),
    **dict.fromkeys(("r", "repeat"), "here it is --seeds of motley_sweep"),
    **dict.fromkeys(("o", "outdir"), _here("root_output_dir", "experiment_name")),
    **dict.fromkeys(("q", "quiet", "no_per_round_log", "no_per_client_metric"), _NO_LOG),
}
# (pattern, what to do) of the device trainers' optimizers.
_DEVICE = (
    (
        r"(?:client|server|finetune)_(?P<what>lars|shampoo)_\w+",
        "there is no optimizer {what} here; --help lists those there are",
    ),
    (
        r"(?:client|server|finetune)_"
        r"(?P<what>(?:adam_amsgrad|yogi_(?:activation|l[12]_regularization_strength)))",
        "TFF's optimizers have no {what}; leave it out",
    ),
)


def advice(flag: str) -> str | None:
    """Returns what to give instead of a published flag, or whose another trainer's is; None of
    others.
    """
    if flag == "algorithm":  # Of a trainer that has one.
        return "it has one algorithm; see finetuning_trainer and mtl_trainer for others"
    for pattern, words in _DEVICE:
        if match := re.fullmatch(pattern, flag):
            return words.format(**match.groupdict())
    return SILO.get(flag) or _whose(flag)


def _whose(flag: str) -> str | None:
    name, positive = optimizer_flags.first_name(flag), flag.removeprefix("no")
    every = {trainer: algorithm_flags.make(trainer) for trainer in TRAINERS}
    owners = [
        trainer
        for trainer, known in every.items()
        if name in known or (positive in known and known[positive].flag.boolean)
    ]
    whose = " and ".join(f"{trainer}'s" for trainer in owners)
    return f"--{flag} is {whose}; leave it out, or run that trainer" if owners else None
