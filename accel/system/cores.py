"""The number of cores for accel's own threads in this process, and how long threads waited for one.

torch's own threads are the user's affair.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache, lru_cache
from math import ceil
from pathlib import Path
from typing import NamedTuple

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")


class Cores(NamedTuple):
    """A number of cores, and the reason in words."""

    number: int
    why: str


def cores() -> int:
    """How many cores this process may use; see ``share``."""
    return found().number


def found(usable: int | None = None) -> Cores:
    """How many cores this process may use, and why; see ``share``. ``usable``: in place of its own affinity."""
    names = _VARIABLES if os.environ.get("SLURM_JOB_ID") is not None else _OF_RANKS  # each look takes microseconds
    return _found(
        affinity() if usable is None else usable, machine(), tuple([(name, os.environ.get(name, "")) for name in names])
    )


_TASKS = ("SLURM_STEP_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
_OF_RANKS = ("LOCAL_WORLD_SIZE", "WORLD_SIZE", "MASTER_ADDR")
_VARIABLES = (*_OF_RANKS, "SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE", *_TASKS)


@lru_cache(maxsize=16)
def _found(usable: int, machine: tuple[int, float | None], environment: tuple[tuple[str, str], ...]) -> Cores:
    return share(usable, *machine, dict(environment))


def ranks(environment: Mapping[str, str] = os.environ) -> int:
    """How many ranks a launcher has started on this machine; 1 if there is none, or it does not tell."""
    alone = environment.get("MASTER_ADDR") in ("127.0.0.1", "localhost")  # Lightning and DeepSpeed, on one machine
    return _number(environment, "LOCAL_WORLD_SIZE") or (_number(environment, "WORLD_SIZE") if alone else 0) or 1


def affinity(process: int = 0) -> int:
    """The number of cores that the system lets this process, or another one, run on."""
    if process and hasattr(os, "sched_getaffinity"):
        with suppress(OSError):  # it has ended
            return len(os.sched_getaffinity(process))
    usable: Callable[[], int | None] | None = getattr(os, "process_cpu_count", None)  # from Python 3.13 on
    if usable is not None:
        return usable() or 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def share(usable: int, machine: int, quota: float | None, environment: Mapping[str, str]) -> Cores:
    """The number of cores that this process should use, if several on the machine (ranks) do the same.

    Args:
        usable: cores by affinity. machine: cores of the machine, or of this container.
        quota: the control group's quota, in cores; None: no limit.
        environment: variables of torchrun (``LOCAL_WORLD_SIZE``), other launchers and Slurm.

    Returns:
        The least of the following, but at least 1:

        - the affinity, undivided: a rank may have been given its own cores;
        - an equal share of the machine and of the quota, which all ranks share;
        - what Slurm gives a task. Ranks of torchrun share it if they are in one task; if there are as many tasks as
          ranks these are the same, and nothing is divided twice.
    """
    tasks = _tasks(environment)
    number = max(ranks(environment) // tasks, 1)
    shared = f", shared by {number} ranks" if number > 1 else ""
    limits = [Cores(usable, f"affinity to {usable}"), Cores(machine // number, f"{machine} in the machine{shared}")]
    if quota is not None:
        limits.append(Cores(ceil(quota / number), f"cgroup quota of {quota:g}{shared}"))
    of_task, on_node = _number(environment, "SLURM_CPUS_PER_TASK"), _number(environment, "SLURM_CPUS_ON_NODE")
    if of_task:
        limits.append(Cores(of_task // number, f"Slurm's {of_task} for a task{shared}"))
    elif on_node:
        limits.append(Cores(on_node // tasks // number, f"Slurm's {on_node} for {tasks} tasks{shared}"))
    least = min(limits, key=lambda limit: limit.number)
    return least._replace(number=max(least.number, 1))


def _number(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name, "")
    return int(text) if text.isdecimal() else None


def _tasks(environment: Mapping[str, str]) -> int:
    """The most tasks that Slurm runs on a node, from a list such as "4(x2),3" for three nodes; 1 without Slurm."""
    for name in _TASKS:
        if numbers := [int(number) for number in re.findall(r"(?:^|,)(\d+)", environment.get(name, ""))]:
            return max(*numbers, 1)
    return 1


# -- control groups -----------------------------------------------------------------------------------------


@cache
def machine() -> tuple[int, float | None]:
    """The number of cores for all processes of this container, and their quota."""
    return min(os.cpu_count() or 1, cpuset() or sys.maxsize), quota()


def quota(own: Path = OWN_CGROUP, root: Path = CGROUPS) -> float | None:
    """The process's CPU quota in cores: the least of its control group's and of the groups around it.

    Args:
        own: the system's list of the groups that the process is in. root: where the groups are mounted.

    Returns:
        The quota; None if there is none, or it cannot be read.
    """
    texts = of_groups("cpu", "cpu.cfs_quota_us cpu.cfs_period_us", "cpu.max", own, root)
    limits = [text.split() for text in texts if re.fullmatch(r"\d+\s+\d+\s*", text)]  # none: "max 100000", "-1 100000"
    return min((int(time) / int(period) for time, period in limits), default=None)


def cpuset(own: Path = OWN_CGROUP, root: Path = CGROUPS) -> int | None:
    """The number of cores in the control group's list, such as "0-3,8"; arguments and None as for ``quota``."""
    texts = of_groups("cpuset", "cpuset.effective_cpus", "cpuset.cpus.effective", own, root)
    parts = [re.findall(r"(\d+)-?(\d*)", text) for text in texts]
    counts = [sum(int(last or first) - int(first) + 1 for first, last in part) for part in parts]
    return min(filter(None, counts), default=None)


def of_groups(controller: str, v1: str, v2: str, own: Path = OWN_CGROUP, root: Path = CGROUPS) -> Iterator[str]:
    """Yield the text of the files of a controller (``v1``, ``v2``: names by version of control groups) in the process's
    group and in those around it, up to the root that is visible: a container sees its own group as the root."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        for mounted in {root / controllers, root / controller} if controllers else {root}:
            group = mounted / path.lstrip("/")
            for folder in (group, *group.parents):
                if folder == mounted or mounted in folder.parents:
                    with suppress(OSError):
                        yield "\n".join([(folder / name).read_text() for name in (v1 if controllers else v2).split()])


def delayed_ns(*, of_thread: bool = False) -> int | None:
    """Nanoseconds that threads of this process, or this thread, waited for a core; None if the system does not tell."""
    total = 0
    try:
        for thread in [threading.get_native_id()] if of_thread else os.listdir("/proc/self/task"):
            with suppress(FileNotFoundError), open(f"/proc/self/task/{thread}/schedstat") as file:
                total += int(file.read().split()[1])
    except (OSError, IndexError):
        return None
    return total
