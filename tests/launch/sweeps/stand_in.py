"""Stands for the Python that trains, so that a sweep of trainers takes no seconds.

A run's mean over validation clients is its client_learning_rate (0.1 without one), that over test
clients the same plus its seed / 10000; three clients are a tenth of it apart. The baseline's is 2
less that mean. At a rate above 1 it ends with an error; at one above 10, or such a
proximal_strength, it finds no data. Where a file `hold` lies beside the sweeps it waits, and ends
at SIGTERM as a trainer does, with a checkpoint. The data of all grids are there.
"""

import sys

from tests.trainers import programs

_PYTHON = sys.executable  # Which tests replace.
_TEXT = """#!{python}
import json, os, pathlib, signal, sys, time, types
words = sys.argv[1:]
module = words[1] if words[0] == "-m" else ""
if module == "launch.sweeps.data_check":  # It imports a trainer.
    sys.exit(print("null"))
if module != "launch.sweeps.pool" or not words[2].startswith("trainers."):
    os.execv("{python}", ["{python}", *words])

def run():
    flags = dict(word[2:].split("=", 1) for word in sys.argv[1:])
    run = pathlib.Path(flags["root_output_dir"], flags["experiment_name"])
    rate = float(flags.get("client_learning_rate", 0.1))
    if max(rate, float(flags.get("proximal_strength", 0))) > 10:
        sys.stderr.write("trainer: no data\\n")
        sys.exit(2)
    (run / "checkpoints").mkdir(parents=True, exist_ok=True)
    number = len(list((run / "checkpoints").iterdir())) + 1

    def end(*_):
        (run / "checkpoints" / str(number)).touch()
        print("ended by SIGTERM", flush=True)
        os._exit(143)

    signal.signal(signal.SIGTERM, end)
    hold = pathlib.Path("{folder}", "hold")
    (run / f"started_{{number}}").touch()
    while hold.exists() and int(hold.read_text() or 9) >= number:
        time.sleep(0.02)
    seed = int(flags["base_random_seed"])
    if rate > 1:
        sys.exit("the loss is not finite")
    means = {{"valid": rate, "test": rate + seed / 1e4}}
    about = f"{{run.name}},emnist,fedavg,{{seed}},1,"
    (run / "summary.csv").write_text(
        "round,split,candidate,num_clients,baseline_mean,personalized_mean"
        + "".join(f"\\n1,{{split}},1,2,{{2 - mean}},{{mean}}" for split, mean in means.items())
        + "\\n")
    (run / "clients.csv").write_text(
        "run_id,dataset,algorithm,base_random_seed,round,split,client_id,"
        "metric,higher_is_better,baseline,personalized"
        + "".join(f"\\n{{about}}{{split}},{{name}},error,0,{{2 - mean}},{{mean + apart * mean}}"
                  for split, mean in means.items()
                  for name, apart in (("a", -0.1), ("b", 0.0), ("c", 0.1))) + "\\n")
    (run / "run.json").write_text(json.dumps(
        {{"flags": {{"train_epochs": int(flags.get("train_epochs", 0))}},
          "higher_is_better": False, "metric": "error"}}))

# It forks, too; nothing is imported that takes long.
for name in (words[2], "motley_tff.experiment.runner"):
    sys.modules[name] = types.SimpleNamespace(run=run, __file__="trainer")
sys.argv = words[1:]
from launch.sweeps import pool
pool.main()
"""
# Makes a process, and Slurm's jobs, start what they start with the program in place of Python.
_SITE = "import sys; sys.executable = {program!r}\n"


def write(folder):
    """Writes it, and returns (the program, an environment in which programs start it)."""
    program = folder / "python"
    program.write_text(_TEXT.format(python=_PYTHON, folder=folder))
    program.chmod(0o755)
    (folder / "sitecustomize.py").write_text(_SITE.format(program=str(program)))
    return str(program), {"PYTHONPATH": f"{folder}:{programs.ROOT}"}
