"""How many cores this process may use: its share of a machine that others use, too."""

import math
import os
import pathlib

# What says how many threads to use: the scheduler's allocation, and whoever started this process.
_VARIABLES = ("SLURM_CPUS_PER_TASK", "OMP_NUM_THREADS")
_QUOTA_V2 = pathlib.Path("/sys/fs/cgroup/cpu.max")
_QUOTA_V1 = pathlib.Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
_PERIOD_V1 = pathlib.Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us")


def num_available() -> int:
    """Returns the number of cores, at least 1.

    The least of what affinity (`taskset`, Slurm's task plugins), the control group's quota
    (containers) and the environment (`SLURM_CPUS_PER_TASK`, `OMP_NUM_THREADS`) allow.
    """
    limits = [len(os.sched_getaffinity(0)), _quota()]
    for variable in _VARIABLES:
        text = os.environ.get(variable, "")
        limits.append(int(text) if text.isdecimal() and int(text) else math.inf)
    return max(1, math.floor(min(limits)))


def _quota() -> float:
    """Returns how many cores' time the control group has, rounded up, or infinity."""
    try:
        if _QUOTA_V2.exists():
            quota, period = _QUOTA_V2.read_text().split()
        else:
            quota, period = _QUOTA_V1.read_text().strip(), _PERIOD_V1.read_text().strip()
        return math.ceil(int(quota) / int(period)) if int(quota) > 0 else math.inf
    except (OSError, ValueError):  # No control group here, or "max".
        return math.inf
