"""motley_benchmark: how fast the backends are here, and how much memory they take.

Runs each backend on the same work, beside PyTorch where you name a Python that has it, and prints a
table for each workload. Contenders take turns; times are medians over the repeats, and a ratio is
the median of the ratios of neighbouring runs. An idle machine gives the steadiest numbers.

    motley_benchmark --workloads=emnist_cnn,school_fedavg --data_dir=DATA --json=times.json
"""

import functools
import importlib.metadata
import json
import pathlib
import platform
import shutil
import sys

from absl import flags

from launch.benchmarks import measuring, report
from motley_tff import commandline
from motley_tff.core import cores, errors
from motley_tff.core.errors import UserError
from trainers import option_flags

FLAGS = flags.FLAGS
_PACKAGES = ("tensorflow", "tensorflow-federated", "numpy")

flags.DEFINE_list("workloads", list(measuring.REGISTRY), "What to measure, separated by commas.")
flags.DEFINE_integer("repeats", 5, "Runs of each contender.", lower_bound=1)
flags.DEFINE_string("json", None, "File that gets all numbers as JSON; - for stdout, no table.")
for _flag in option_flags.make("", [measuring.Sizes]).values():
    flags.DEFINE_flag(_flag.flag)


@flags.validator("workloads", f"expected some of {', '.join(measuring.REGISTRY)}")
def _are_workloads(names: list[str]) -> bool:
    return bool(names) and set(names) <= set(measuring.REGISTRY)


def main() -> None:
    """Measures and reports."""
    path, names = FLAGS.json, dict.fromkeys(FLAGS.workloads)
    sizes = option_flags.read(measuring.Sizes)
    if sizes.torch_python and not shutil.which(sizes.torch_python):
        expected = "the path of a Python that has PyTorch"
        raise UserError(errors.name("torch_python"), sizes.torch_python, expected)
    is_file = path not in (None, "-")
    if is_file:  # Better now than after all has been measured.
        try:
            pathlib.Path(path).open("a").close()
        except OSError as error:
            expected = f"a file that can be written ({error.strerror})"
            raise UserError(errors.name("json"), path, expected, "name another") from error
    tables = []
    for name in names:
        title, contenders = measuring.run_workload(name, sizes, FLAGS.repeats)
        tables.append(report.tabulate(name, title, contenders))
        shown = sys.stderr if path == "-" else sys.stdout
        print(report.to_text(tables[-1]), file=shown, flush=True)
    everything = {
        "repeats": FLAGS.repeats,
        "cores": cores.num_available(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in _PACKAGES},
        "sizes": {n: v for n, v in vars(sizes).items() if isinstance(v, int)},
        "workloads": tables,
    }
    text = json.dumps(everything, indent=2, allow_nan=False) + "\n"
    if is_file:
        pathlib.Path(path).write_text(text, encoding="utf-8")
    elif path:
        print(text, end="")


run = functools.partial(commandline.run_main, main)


if __name__ == "__main__":
    run()
