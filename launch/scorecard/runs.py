"""What each run is for FedEval's scorecard: a method, one of its variants, or a reference.

| role | a run whose flags say |
|---|---|
| centralized | `--algorithm=centralized` |
| local | `--algorithm=local`, or no rounds and no initial weights |
| iid | `--partition=iid` |
| dropout | `--dropout_rate` above 0 |
| straggler | `--straggler_rate` above 0 |
| attacked | `--attack`, whatever else but for the first two |
| method | none of these |

A variant belongs to the methods that have all its other flags. Methods may have another partition:
FedEval's own runs on MNIST have one class a client. An attacked run belongs to the methods that
have all its other flags, or, if there is none, all but for how updates are aggregated: a defence
against the attack need not be tried without one.
"""

import pathlib
from collections.abc import Mapping, Sequence, Set
from typing import Any, NamedTuple

from motley_tff.core.errors import UserError
from motley_tff.report.comparisons import FIRST_COUNTS
from motley_tff.report.runs import Run, dataset_named

VARIANTS = {"iid": "partition", "dropout": "dropout_rate", "straggler": "straggler_rate"}

# Flags of variants, and whether a value is one's.
_IS_VARIANT = {
    "partition": lambda value: value == "iid",
    "dropout_rate": lambda value: value > 0.0,
    "straggler_rate": lambda value: value > 0.0,
}
# Flags that decide how fast numbers come and how many, not which.
_SAME_NUMBERS = frozenset(
    {"backend", "memory_limit_gb", "threads_per_client", "rounds_per_checkpoint", "v"}
    | {"rounds_per_evaluation", "valid_clients_per_evaluation", "test_clients_per_evaluation"}
    | {"evaluate_ood", "ood_examples", "export_scores", "group_key"}
)
_AGGREGATION = frozenset({"aggregator", "trim_share", "dp_noise_multiplier"})
_PROTECTED = {
    "compressed": "noised or compressed",
    "differentially_private": "noised or compressed",
    "secure": "secure aggregation",
}
Variants = Mapping[str, Sequence[Run]]


class Method(NamedTuple):
    """A method's run, of `VARIANTS` those there are of it, and those under attack, by what was done
    to it and changed about it: `sign_flip:0.1:10+median`.
    """

    run: Run
    variants: Variants
    attacked: Mapping[str, Run]


class Roles(NamedTuple):
    """All runs by what they are for: costs are compared with the baseline's."""

    methods: Sequence[Method]
    baseline: Run | None
    centralized: Run | None
    local: Run | None


def assign(runs: Sequence[Run], baseline: pathlib.Path | None) -> Roles:
    """Returns what each run is for; costs are compared with those of a directory, or of FedSGD.

    UserError if runs do not fit together.
    """
    _check_comparable(runs)
    by_role: dict[str, list[Run]] = {}
    for run in runs:
        by_role.setdefault(role(run), []).append(run)
    methods = by_role.get("method", [])
    if not methods:
        listed = ", ".join(f"{run.run_id} ({role(run)})" for run in runs)
        raise UserError(f"no run of a method among {listed}; give one without --partition=iid etc.")
    variants = {kind: by_role.get(kind, []) for kind in VARIANTS}
    for kind, disturbed in variants.items():
        for run in disturbed:
            _check_has_method(kind, run, methods)
    attacked = _attacked(by_role.get("attacked", []), methods)
    return Roles(
        [
            Method(run, _variants_of(run, variants), of)
            for run, of in zip(methods, attacked, strict=True)
        ],
        _baseline(runs, methods, baseline),
        *(_only(name, by_role.get(name, [])) for name in ("centralized", "local")),
    )


def role(run: Run) -> str:
    """Returns a run's role, of the module's table; UserError for no flags or several variants."""
    if not run.flags:
        raise UserError(f"{run.path} has no run.json, whose flags say what the run is for")
    if run.flags.get("algorithm") == "centralized":
        return "centralized"
    if run.algorithm == "local":
        return "local"
    if run.flags.get("attack") not in (None, "", "none"):
        return "attacked"
    kinds = [
        kind
        for kind, flag in VARIANTS.items()
        if flag in run.flags and _IS_VARIANT[flag](run.flags[flag])
    ]
    if len(kinds) > 1:
        flags = " and ".join(f"--{VARIANTS[kind]}" for kind in kinds)
        raise UserError(f"{run.path} has {flags}; expected runs with one of them at a time")
    return kinds[0] if kinds else "method"


def exchange(run: Run) -> str:
    """Returns what a method's clients and server exchange, of `scorecard.EXCHANGES`."""
    if str(run.flags.get("algorithm")).startswith("fedstc"):
        return _PROTECTED["compressed"]
    steps = "one step" if run.flags.get("algorithm") == "fedsgd" else "many steps"
    return _PROTECTED.get(run.flags.get("aggregator", "mean"), f"plain, {steps} of training")


def names(methods: Sequence[Method]) -> list[str]:
    """Returns what methods are called, no two alike: their algorithms, with server optimizers other
    than SGD and aggregators other than the mean, if all differ, else their run ids, with as many
    directories in front as tell them apart.
    """
    runs = [method.run for method in methods]
    called = ["+".join([run.algorithm, *_unusual(run)]) for run in runs]
    above, depth = [_directories(run) for run in runs], 0
    while len(set(called)) < len(called) and depth <= max(map(len, above)):
        called = [
            "/".join([*of[max(0, len(of) - depth) :], run.run_id])
            for of, run in zip(above, runs, strict=True)
        ]
        depth += 1
    return called


def _directories(run: Run) -> tuple[str, ...]:
    """Returns the directories that a run is in, but for its own and a sweep's `runs`."""
    parts = run.path.resolve().parts
    parts = parts[:-1] if parts[-1] == run.run_id else parts
    return parts[:-1] if parts[-1] == "runs" else parts


def _unusual(run: Run) -> list[str]:
    usual = {"server_optimizer": "sgd", "aggregator": "mean"}
    values = {flag: str(run.flags.get(flag, value)) for flag, value in usual.items()}
    return [value for flag, value in values.items() if value != usual[flag]]


def _check_comparable(runs: Sequence[Run]) -> None:
    first = runs[0]
    for run in runs:
        for name, base, value in (
            ("dataset", _undealt(first), _undealt(run)),
            ("metric", first.metric, run.metric),
        ):
            if base != value:
                raise UserError(
                    f"{run.path} has {name} {value} and {first.path} has {base}; give runs of one"
                )


def _undealt(run: Run) -> str:
    """Returns what a run's data are, whoever has which."""
    name = run.flags.get("dataset_name")
    return dataset_named(name, {**run.flags, "partition": None}) if name else run.dataset


def _variants_of(method: Run, variants: Variants) -> dict[str, list[Run]]:
    return {
        kind: [run for run in runs if not _differences(run, method)]
        for kind, runs in variants.items()
    }


def _attacked(runs: Sequence[Run], methods: Sequence[Run]) -> list[dict[str, Run]]:
    """Returns of each method its attacked runs, by name; UserError if one is of no method, or two
    of one name.
    """
    named: list[dict[str, Run]] = [{} for _ in methods]
    for run in runs:
        _check_has_method("attacked", run, methods, _AGGREGATION)
        of_each = list(zip(methods, named, strict=True))
        alike = [pair for pair in of_each if not _differences(run, pair[0])]
        for method, of in alike or of_each:
            if _differences(run, method, _AGGREGATION):
                continue
            name = _attack_name(run, method)
            if of.setdefault(name, run) is not run:
                _only(f"{name} ({method.run_id})", [of[name], run])
    return named


def _attack_name(run: Run, method: Run) -> str:
    """Returns the attack, and what else an attacked run's flags change about the method."""
    name = [str(run.flags["attack"])]
    if _AGGREGATION & {*_differences(run, method)}:
        aggregator = str(run.flags.get("aggregator", "mean"))
        is_trimming = aggregator == "trimmed_mean" and "trim_share" in run.flags
        name.append(f"{aggregator}:{run.flags['trim_share']}" if is_trimming else aggregator)
    shared = [flag for flag in _IS_VARIANT if flag in run.flags and flag in method.flags]
    changed = [flag for flag in shared if run.flags[flag] != method.flags[flag]]
    return "+".join([*name, *(f"{flag}={run.flags[flag]}" for flag in changed)])


def _check_has_method(
    kind: str, run: Run, methods: Sequence[Run], beside: Set[str] = frozenset()
) -> None:
    nearest = min(methods, key=lambda method: len(_differences(run, method, beside)))
    if changed := _differences(run, nearest, beside):
        listed = ", ".join(
            f"--{name} ({run.flags[name]}, there {nearest.flags[name]})" for name in changed
        )
        raise UserError(
            f"{run.path} is the {kind} run of no method given; {nearest.run_id} differs in {listed}"
        )


def _differences(run: Run, method: Run, beside: Set[str] = frozenset()) -> list[str]:
    """Returns the flags, known to both, that set two runs apart beside the variant's own."""
    own = {*_IS_VARIANT, "attack", *_SAME_NUMBERS, *beside}
    shared = run.flags.keys() & method.flags.keys() - own

    def decides(run: Run, flag: str) -> Any:
        return run.flags[flag][:1] if flag in FIRST_COUNTS else run.flags[flag]

    return sorted(flag for flag in shared if decides(run, flag) != decides(method, flag))


def _baseline(
    runs: Sequence[Run], methods: Sequence[Run], given: pathlib.Path | None
) -> Run | None:
    if given is None:
        return _only("fedsgd", [run for run in methods if run.flags.get("algorithm") == "fedsgd"])
    for run in runs:
        if run.path.resolve() == given.resolve():
            return run
    raise UserError(f"--baseline={given} is none of the runs given; give its directory as well")


def _only(name: str, runs: Sequence[Run]) -> Run | None:
    if len(runs) > 1:
        hint = "; name one with --baseline=RUN" if name == "fedsgd" else "; give one of them"
        raise UserError(f"several {name} runs: {', '.join(str(r.path) for r in runs)}{hint}")
    return runs[0] if runs else None
