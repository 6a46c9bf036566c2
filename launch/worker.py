"""motley_worker: a TFF worker for trainers on other machines (their --tff_workers).

    motley_worker --port=9000

It says so when it is ready, and works until Ctrl-C or SIGTERM. It serves one trainer after the
other, or several at once. Data sets that trainers load by client id (EMNIST, CelebA, StackOverflow,
TedMulti and Landmark from their files) must be on this machine, too, under the same path as on the
trainer's; all other data are sent. Use the same version of this project everywhere.

Whoever reaches the port can read and write all files that you can, and nothing on the way is
encrypted. It is therefore closed to other machines unless --listen_address opens it, which belongs
on a private network. To do without, run on the trainer's machine

    ssh -N -L 9000:localhost:9000 THIS_MACHINE

and give the trainer --tff_workers=localhost:9000. Other users of this machine reach the port, too.
TFF's program itself listens everywhere and cannot be told otherwise: this command listens on each
of the machine's other addresses at the same port and hangs up on who comes that way, within a
second for an address that is new.
"""

import functools

from absl import flags

from motley_tff import commandline
from motley_tff.backends.tff import guard
from motley_tff.core.errors import WorkerError

FLAGS = flags.FLAGS

flags.DEFINE_integer(
    "port", None, "Where it listens.", required=True, lower_bound=1, upper_bound=65535
)
flags.DEFINE_integer(
    "threads",
    0,
    "Operations, of one client or of several, that run at the same time; 0 for one per core that "
    "this program may use.",
    lower_bound=0,
)
flags.DEFINE_integer(
    "threads_per_client",
    1,
    "Threads inside one client's arithmetic; 0 lets TensorFlow choose. As the trainer's, for the "
    "same numbers.",
    lower_bound=0,
)
flags.DEFINE_string(
    "listen_address",
    "127.0.0.1",
    "The address of this machine, besides the loopback's, that is open to others; `all` for every "
    "one.",
)

# How often a signal that Python dropped is asked for.
_SIGNAL_SECONDS = 1.0


def main() -> None:
    """Runs a worker until a signal ends it, or its own end does."""
    guard.check(FLAGS.listen_address)
    from motley_tff.backends.tff import runtime  # TensorFlow takes 3 s.

    with runtime.running_worker(
        port=FLAGS.port,
        threads=FLAGS.threads or None,
        intra_op_threads=FLAGS.threads_per_client or None,
        listen_address=FLAGS.listen_address,
    ) as (worker, _):
        print(f"ready on port {FLAGS.port} of {FLAGS.listen_address}; Ctrl-C ends it", flush=True)
        while worker.exit_reason(_SIGNAL_SECONDS) is None:
            commandline.raise_if_ended()
        raise WorkerError(f"{worker.describe_exit()}; if memory ran out, use fewer --threads")


run = functools.partial(commandline.run_main, main)

if __name__ == "__main__":
    run()
