"""Flags that a trainer does not have, and what to give instead: those of Motley's published
programs, of the other trainers, and some that other suites have.

The cross-silo program (`main.py`) has other names than the cross-device trainers, whose names are
kept; Keras's optimizers, which the published fine-tuning trainer took, have parameters that TFF's
lack. launch/grids/README.md has whole commands.
"""

import re

from absl import flags

from trainers import TRAINERS, algorithm_flags, optimizer_flags

_HYP, _MTL, _TUNING = (f" of {name}_trainer" for name in ("hypcluster", "mtl", "finetuning"))
# {flag here: flags of the silo code's main.py}
_RENAMED = {
    "dataset_name": "dataset", "client_learning_rate": "lr client_lr",
    "server_learning_rate": "server_lr", "train_batch_size": "batch_size",
    "total_rounds": "t num_rounds", "rounds_per_evaluation": "ee eval_every",
    "clients_per_train_round": "clients_per_round", "train_epochs": "inner_epochs local_epochs",
    "server_optimizer": "server_opt", "server_fedavgm_momentum": "fedavg_momentum",
    "server_adam_beta_1": "fedadam_beta1", "server_adam_beta_2": "fedadam_beta2",
    "server_adam_epsilon": "fedadam_tau", "base_random_seed": "seed",
    f"warmstart_fraction{_HYP}": "ifca_warmstart_frac", f"num_clusters{_HYP}": "k",
    f"personal_learning_rate{_MTL}": "ditto_secret_lr",
    f"finetune_max_epochs{_TUNING}": "finetune_epochs",
    f"finetune_learning_rate{_TUNING}": "finetune_lr finetune_lrs",
    "num_neighbors of knn_per_trainer": "knn_neighbors", "proximal_strength": "mu prox_mu",
    "max_parallel of motley_sweep": "num_procs", "seeds of motley_sweep": "r repeat",
    "root_output_dir or --experiment_name": "o outdir", "experiment_name": "name run_name",
}  # fmt: skip
# {flag that a grid gives a list of values: flag of main.py}
_SWEPT = {
    "client_learning_rate": "client_lrs", "server_learning_rate": "server_lrs",
    "personal_learning_rate": "ditto_secret_lrs", "server_adam_epsilon": "fedadam_taus",
    "lambda": "lambdas", "mocha_outer": "mocha_outers",
}  # fmt: skip
# {flags of main.py that there are not: why, or what to do}
_MISSING = {
    "trainer": "here each algorithm has its trainer: see launch/grids/README.md",
    "density": "there is none here: give a smaller training set as a file (--data_file)",
    "no_std": "there is none here: without scaled features no published rate is of use",
    "inner_mode inner_iters": "there is none here: a round is --train_epochs passes",
    "ifca_ensemble_baseline": "here it is hypcluster_trainer with --total_rounds=0 and the rounds "
    "as --num_warmstart_fedavg_rounds",
    "lambda": "mtl_trainer has it; of kNN-Per it is --coefficients here",
    "mocha_mode": "there is none here: Mocha is the primal one, which the paper's tables have",
    "knn_weights": "there is none here: neighbours weigh by their inverse distance",
    "unweighted_updates": "there is none here: an update weighs as many examples as it has",
    "sweep": "here it is the command motley_sweep",
    "device gpu cuda": "there is none here: all runs on CPUs",
    "q quiet no_per_round_log no_per_client_metric": "there is none here: logs are short anyway",
}
SILO = {
    **{t: f"here it is --{ours}" for ours, names in _RENAMED.items() for t in names.split()},
    **{t: f"give motley_sweep a grid that has {ours} with a list" for ours, t in _SWEPT.items()},
    **{theirs: words for names, words in _MISSING.items() for theirs in names.split()},
}
# (pattern, what to do) of the device trainers' optimizers.
_DEVICE = (
    (r"\w+_(?P<name>lars|shampoo)_\w+", "there is no {name} here; --help lists the optimizers"),
    (r"\w+_(?P<name>adam_amsgrad|yogi_activation|yogi_l[12]_regularization_strength)",
     "TFF's optimizers have no {name}; leave it out"),
)  # fmt: skip


def advice(flag: str) -> str | None:
    """Returns what to give in place of a flag that a trainer does not have; None if unknown."""
    if f"{flag}_list" in flags.FLAGS:
        return f"here it is --{flag}_list"
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
