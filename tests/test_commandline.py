"""Tests of what every command shares, on small programs of their own."""

import os
import pathlib
import signal
import subprocess
import sys
import textwrap

import pytest

PROGRAM = """
'''What it is for.'''
import signal, sys, time
from absl import flags
from motley_tff import commandline
from motley_tff.core.errors import UserError, WorkerError

FLAGS = flags.FLAGS
flags.DEFINE_integer("total_rounds", 10, "How many rounds.", lower_bound=1)
flags.DEFINE_float("server_learning_rate", 1.0, "The rate.")
flags.DEFINE_bool("use_synthetic_data", False, "Whether to make data up.")
flags.DEFINE_enum("backend", "auto", ["auto", "tff", "sequential"], "How to run.")
{declarations}

def main(*values):
{body}

if __name__ == "__main__":
    commandline.run_main(main, {positional})
"""


@pytest.fixture
def command(tmp_path):
    """Writes a program whose `main` is `body`; returns its command line."""

    def write(body="print('ran', *values)", positional=(), declarations=""):
        path = tmp_path / "some_command.py"
        body = textwrap.indent(textwrap.dedent(body), "    ")
        path.write_text(PROGRAM.format(**locals()), encoding="utf-8")
        return [sys.executable, str(path)]

    return write


def _environment():
    return {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).resolve().parents[1])}


def _run(arguments, **options):
    options = {"capture_output": True, "text": True, "timeout": 60, **options}
    return subprocess.run(arguments, env=_environment(), check=False, **options)


def _assert_one_line(result, status, *parts):
    assert result.returncode == status, result.stderr
    assert result.stderr.startswith("some_command: ")
    assert result.stderr.count("\n") == 1
    for part in parts:
        assert part in result.stderr


@pytest.mark.parametrize(
    ("argument", "parts"),
    [
        ("--total_round=3", ["unknown flag --total_round", "did you mean --total_rounds?"]),
        ("--nouse_sintetic_data", ["did you mean --nouse_synthetic_data?"]),
        ("--zzz", ["unknown flag --zzz", "--help lists the flags"]),
        ("--total_rounds=1e3", ["--total_rounds=1e3", "positive integer"]),
        ("--total_rounds=0", ["--total_rounds=0", "positive integer"]),
        ("--server_learning_rate=fast", ["--server_learning_rate=fast", "a number"]),
        ("--server_learning_rate=nan", ["--server_learning_rate=nan", "finite"]),
        ("--use_synthetic_data=maybe", ["--use_synthetic_data=maybe", "true or false"]),
        ("--backend=sequental", ["auto, tff, sequential", "did you mean sequential?"]),
        ("--total_rounds", ["Missing value for flag"]),
        ("--flagfile=/does/not/exist", ["--flagfile=/does/not/exist: ", "No such file"]),
        ("--flagfile=/", ["--flagfile=/: ", "Is a directory"]),
        ("total_rounds=3", ["unexpected argument 'total_rounds=3'", "--name=value"]),
        ("true", ["unexpected argument 'true'", "--name=value"]),
    ],
)
def test_a_wrong_argument_is_one_line_and_exit_2(command, argument, parts):
    _assert_one_line(_run([*command(), argument]), 2, *parts)


def test_right_flags_reach_main(command):
    body = "print(FLAGS.total_rounds, FLAGS.backend); return 7"
    result = _run([*command(body), "--total_rounds=3", "--backend=tff"])
    assert (result.returncode, result.stdout, result.stderr) == (7, "3 tff\n", "")


def test_a_required_flag_is_named(command):
    declarations = 'flags.DEFINE_string("experiment_name", None, "Name.", required=True)'
    program = command(declarations=declarations)
    _assert_one_line(_run(program), 2, "--experiment_name is required")
    _assert_one_line(_run([*program, "experiment_name=x"]), 2, "argument 'experiment_name=x'")
    # Here it is a flag's value.
    line = _run([*program, "--backend", "experiment_name=x"])
    _assert_one_line(line, 2, "--backend=experiment_name=x: ", "auto")


def test_a_name_that_says_too_little_is_asked_about(command):
    declarations = """
flags.DEFINE_integer("train_epochs", 1, "Epochs.")
flags.DEFINE_integer("finetune_max_epochs", 1, "Epochs.")
"""
    for name, meant in (
        ("epochs", "one of --finetune_max_epochs, --train_epochs"),
        ("max_epochs", "--finetune_max_epochs"),
    ):
        result = _run([*command(declarations=declarations), f"--{name}=3"])
        _assert_one_line(result, 2, f"unknown flag --{name}; did you mean {meant}?")


@pytest.mark.parametrize("flag", ["--help", "-h", "--helpfull"])
def test_help_names_the_flags_and_exits_0(command, flag):
    result = _run([*command("raise SystemExit(9)", ("GRID",)), flag])
    assert result.returncode == 0
    for part in ("usage: some_command GRID", "What it is for.", "--total_rounds", "(default: 10)"):
        assert part in result.stdout
    assert "<auto|tff|sequential>" in result.stdout
    assert "pdb" not in result.stdout


def test_help_of_a_flag_that_is_repeated(command):
    declarations = 'flags.DEFINE_multi_string("generated", [], "A file; repeat for more.")'
    result = _run([*command(declarations=declarations), "--help"])
    assert "--generated=...\n      A file; repeat for more.\n" in result.stdout
    assert "default: []" not in result.stdout


@pytest.mark.parametrize(
    ("positional", "given", "status"),
    [
        (("GRID",), ["a"], 0),
        (("GRID",), [], 2),
        (("GRID",), ["a", "b"], 2),
        (("RUN...",), ["a", "b"], 0),
        (("RUN...",), [], 2),
    ],
)
def test_positional_arguments(command, positional, given, status):
    result = _run([*command(positional=positional), *given])
    assert result.returncode == status
    assert result.stdout == (" ".join(["ran", *given]) + "\n" if status == 0 else "")
    if not given:
        assert f"missing {positional[0]}; usage: some_command {positional[0]}" in result.stderr


_SIGNALS = pytest.mark.parametrize(
    ("number", "status", "word"),
    [
        (signal.SIGINT, 130, "interrupted"),
        (signal.SIGTERM, 143, "SIGTERM"),
        (signal.SIGHUP, 129, "SIGHUP"),
    ],
)


def test_errors_a_user_can_cause_are_one_line_and_others_keep_their_stack_trace(command):
    body = "raise UserError('emnist.npz: expected images,\\n  found none; fetch it again')"
    expected = "emnist.npz: expected images, found none; fetch it again"
    _assert_one_line(_run(command(body)), 2, expected)
    _assert_one_line(_run(command("raise WorkerError('gone')")), 1, "gone")
    result = _run(command("raise ValueError('a bug')"))
    assert result.returncode == 1 and "Traceback" in result.stderr
    assert "ValueError: a bug" in result.stderr


@_SIGNALS
def test_signals_run_finally_blocks(command, number, status, word):
    body = f"""
    try:
        print("started", flush=True)
        time.sleep(600)
    finally:
        if {number} != signal.SIGINT:
            signal.raise_signal({number})  # An impatient sender.
        print("cleaned up")
    """
    with subprocess.Popen(
        command(body), env=_environment(), stdout=-1, stderr=-1, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=60)
    assert stdout == "cleaned up\n"
    ended = subprocess.CompletedProcess((), process.returncode, stdout, stderr)
    _assert_one_line(ended, status, word)


@pytest.mark.parametrize(
    ("ignored", "body", "stdout"),
    [
        # The ends of children are seen, whoever started the program.
        ("CHLD", "import os; print(os.system('exit 3') >> 8)", "3\n"),
        ("HUP", "signal.raise_signal(signal.SIGHUP); print('still here')", "still here\n"),
    ],
)
def test_signals_that_the_starter_ignores(command, ignored, body, stdout):
    script = f"trap '' {ignored}; exec \"$@\""
    result = _run(["bash", "-c", script, "bash", *command(body)])
    assert (result.returncode, result.stdout, result.stderr) == (0, stdout, "")


@_SIGNALS
def test_a_signal_that_python_drops_comes_back(command, number, status, word):
    body = f"""
    class Collected:
        def __del__(self):
            signal.raise_signal({number})

    Collected()  # Collected at once, where nothing can catch the exception.
    print("went on")
    commandline.raise_if_ended()
    print("not this far")
    """
    result = _run(command(body))
    assert result.stdout == "went on\n"
    _assert_one_line(result, status, word)


def test_a_terminal_that_knows_ascii_only(command):
    result = _run(["env", "PYTHONIOENCODING=ascii", *command("print('0.93 ± 0.07')")])
    assert (result.returncode, result.stdout) == (0, "0.93 ? 0.07\n")


def test_a_reader_that_leaves_is_no_error_to_talk_about(command):
    body = "for _ in range(100000): print('line')"
    script = '("$@"; echo $? >&2) | head -n 1'
    result = _run(["sh", "-c", script, "sh", *command(body)])
    assert (result.stdout, result.stderr) == ("line\n", "141\n")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_stdout_that_cannot_be_written(command):
    with open("/dev/full", "w") as full:
        result = _run(
            command("print('lost')"), capture_output=False, stdout=full, stderr=subprocess.PIPE
        )
    _assert_one_line(result, 2, "stdout: No space left on device")


@pytest.mark.parametrize(
    "error", ["MemoryError()", "OSError(12, 'Cannot allocate memory')", "ResourceExhaustedError()"]
)
def test_no_memory_is_one_line_and_an_end_at_once(command, error):
    """TensorFlow's destructors wait forever for locks that a failed allocation left taken."""
    body = f"""
    class Hanging:
        def __del__(self):
            time.sleep(600)

    class ResourceExhaustedError(Exception):
        pass

    mine, sys.modules["kept"] = Hanging(), Hanging()
    print("printed before")
    raise {error}
    """
    result = _run(command(body), timeout=20)
    _assert_one_line(result, 2, "memory ran out")
    assert result.stdout == "printed before\n"


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (30, "make it writable"),
        (5, "see to the disk"),
        (28, "No space left on device; make room"),
        (36, "File name too long; give a shorter path"),
        (40, "Too many levels of symbolic links; mend the link"),
    ],
)
def test_a_disk_or_a_path_that_fails_is_one_line(command, number, words):
    body = f"raise OSError({number}, os.strerror({number}), 'clients.csv')"
    _assert_one_line(_run(command(f"import os; {body}")), 2, "clients.csv: ", words)


@pytest.mark.parametrize(
    ("closed", "stdout", "stderr"),
    [("<&-", "out", "err"), (">&-", "", "err"), ("2>&-", "out", ""), ("<&- >&- 2>&-", "", "")],
)
def test_a_closed_stream_is_none_of_our_business(command, tmp_path, closed, stdout, stderr):
    """And no file gets its number: what libraries print would go into that."""
    body = """
    with open("some_table.csv", "w") as file:
        assert file.fileno() > 2
    sys.stdout.write("out")
    sys.stderr.write("err")
    sys.stdin.read()
    """
    script = f'"$@" {closed}'
    result = _run(
        ["sh", "-c", script, "sh", *command(body)], stdin=subprocess.DEVNULL, cwd=tmp_path
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, stdout, stderr)


def test_libraries_are_silent_unless_asked(command):
    body = """
    import logging, os, warnings
    warnings.warn("chatter")
    logging.getLogger("tensorflow").warning("chatter")
    print(os.environ["TF_CPP_MIN_LOG_LEVEL"])
    """
    words = ["env", "TF_CPP_MIN_LOG_LEVEL=1", *command(body)]
    quiet, loud = _run(words), _run([*words, "--verbosity=0"])
    assert (quiet.stdout, quiet.stderr) == ("3\n", "")
    assert loud.stdout == "0\n"
    assert loud.stderr.count("chatter") >= 2


def test_nothing_heavy_is_imported(command):
    body = "print({'tensorflow', 'tensorflow_federated', 'numpy', 'jax'} & set(sys.modules))"
    assert _run(command(body)).stdout == "set()\n"


def test_tensorflow_is_imported_without_what_no_command_uses(command, tmp_path):
    (tmp_path / "tensorflow.py").write_text(
        "try:\n    import jax, pandas\nexcept ImportError as error:\n    found = error.name\n"
        "import json, decimal\n"
    )
    for name in ("jax", "pandas"):
        (tmp_path / f"{name}.py").write_text("")
    body = """
        import tensorflow
        print(tensorflow.found, "pandas" in sys.modules)
        import jax, pandas
    """
    result = _run(command(body))
    assert (result.returncode, result.stdout) == (0, "jax False\n"), result.stderr
