"""A real Slurm of one node on this machine, all of it in one folder and gone afterwards."""

import contextlib
import os
import pathlib
import secrets
import shutil
import socket
import subprocess
import time

_DAEMONS = ("munged", "slurmctld", "slurmd")
_CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AuthType=auth/munge
AuthInfo=socket={root}/munge.socket,cred_expire=5
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
MailProg=/bin/true
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_interval=2
ReturnToService=2
KillWait=20
MinJobAge=10
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=8000 State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
PartitionName=short Nodes={host} MaxTime=1 State=UP
"""


def why_not():
    """Returns why there can be none here, or None."""
    missing = [name for name in _DAEMONS if not _which(name)]
    if missing:
        return f"{', '.join(missing)} not installed (Debian: slurm-wlm, munge)"
    return None if os.geteuid() == 0 else "Slurm's daemons need root"


def _which(name):
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


@contextlib.contextmanager
def running(root: pathlib.Path, cpus=2):
    """Starts it and yields the environment in which its commands work."""
    host = socket.gethostname().partition(".")[0]
    root.chmod(0o755)
    for name in ("state", "spool"):
        (root / name).mkdir()
    (root / "munge.key").write_bytes(secrets.token_bytes(1024))
    (root / "munge.key").chmod(0o400)
    config = root / "slurm.conf"
    config.write_text(_CONFIG.format(root=root, host=host, cpus=cpus, ports=_free_ports()))
    environment = {**os.environ, "SLURM_CONF": str(config)}
    munge = [f"--{flag}={root}/munge.{flag.partition('-')[0]}" for flag in _MUNGE_FILES]
    daemons = []
    try:
        for command in (
            ["munged", "--foreground", "--force", "--num-threads=2", *munge],
            ["slurmctld", "-D", "-c"],
            ["slurmd", "-D", "-N", host],
        ):
            daemons.append(_start(command, environment, root))
            if command[0] == "munged":
                _wait_for(lambda: (root / "munge.socket").exists(), "munged", root)
        _wait_for(lambda: _is_idle(environment), "the node", root)
        yield environment
    finally:
        subprocess.run(
            ["scancel", f"--user={os.environ.get('USER', 'root')}", "--signal=KILL"],
            env=environment, capture_output=True, check=False,
        )  # fmt: skip
        for daemon in reversed(daemons):
            daemon.terminate()
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


_MUNGE_FILES = ("socket", "key-file", "pid-file", "log-file", "seed-file")


def _start(command, environment, root):
    with open(root / f"{command[0]}.out", "wb") as out:
        return subprocess.Popen(
            [_which(command[0]), *command[1:]], env=environment, stdout=out, stderr=out
        )


def _is_idle(environment):
    answer = subprocess.run(
        ["sinfo", "--noheader", "--format=%T"], env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    return "idle" in answer.stdout


def _wait_for(is_there, name, root, seconds=40):
    deadline = time.monotonic() + seconds
    while not is_there():
        if time.monotonic() > deadline:
            said = "\n".join(p.read_text(errors="replace") for p in root.glob("*.[ol]*"))
            raise TimeoutError(f"{name} did not come up:\n{said[-4000:]}")
        time.sleep(0.2)


def _free_ports():
    sockets = [socket.socket() for _ in range(2)]
    for opened in sockets:
        opened.bind(("127.0.0.1", 0))
    ports = [opened.getsockname()[1] for opened in sockets]
    for opened in sockets:
        opened.close()
    return ports
