"""A process that has imported TensorFlow and forks a program for every request.

A trainer's tables do not depend on how its process came to be, and importing TensorFlow and TFF is
most of a small run. Tests of start-up and of signals start processes of their own instead.

A request is a line of JSON on stdin: `argv`, `environment`, `stdout` and `stderr` (paths), and
whether TensorFlow's functions run `eagerly`, without being traced. The answer is a line on stdout:
the exit status, or minus the number of the signal that ended it.
"""

import atexit
import contextlib
import json
import os
import runpy
import sys
import threading
import traceback


def main():
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    # Imported, not used: what has run an operation has threads, and cannot be forked.
    import tensorflow_federated  # noqa: F401

    import motley_tff.experiment.runner  # noqa: F401
    from tests import eager

    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if not child:
            with eager.running() if request["eagerly"] else contextlib.nullcontext():
                _become(request)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _become(request):
    """Runs the program in this process, whose end is the program's."""
    for path, descriptor in ((os.devnull, 0), (request["stdout"], 1), (request["stderr"], 2)):
        opened = os.open(path, os.O_RDONLY if descriptor == 0 else os.O_WRONLY | os.O_APPEND)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.environ.clear()
    os.environ.update(request["environment"])
    module, *arguments = request["argv"]
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as end:
        is_number = end.code is None or isinstance(end.code, int)
        status = int(end.code or 0) if is_number else 1
        if not is_number:
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        status = 1
    # As an interpreter ends, but for taking TensorFlow apart.
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
