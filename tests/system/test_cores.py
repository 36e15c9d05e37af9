"""How many cores are this process's, from made-up machines."""

import os
import threading
from pathlib import Path

import pytest
import torch
from torchvision.transforms import functional as F

import accel
from accel.cli import info
from accel.cli.machine import numa_nodes
from accel.runtime.parallel import ParallelFor
from accel.system import cores
from accel.system.cores import cpuset, quota, share
from tests.support import helpers

RANKS = {"LOCAL_WORLD_SIZE": "8"}
STEP = {"SLURM_CPUS_ON_NODE": "64", "SLURM_NTASKS_PER_NODE": "8", "SLURM_STEP_TASKS_PER_NODE": "1"}


@pytest.mark.parametrize(
    ("usable", "machine", "limit", "environment", "expected"),
    [
        (64, 64, None, {}, 64),
        (6, 64, None, {}, 6),
        (64, 64, 3.5, {}, 4),
        (64, 64, 0.2, {}, 1),
        # ranks of torchrun
        (64, 64, None, RANKS, 8),
        (64, 64, 16.0, RANKS, 2),
        (16, 16, None, RANKS, 2),  # a container with 16 of a machine's cores
        (4, 4, None, RANKS, 1),
        (8, 64, None, RANKS, 8),  # each has been given its own
        (4, 64, None, RANKS, 4),
        (32, 64, None, RANKS, 8),  # each has been given those of its socket, as others have
        (64, 64, None, {"LOCAL_WORLD_SIZE": "1"}, 64),
        (64, 64, None, {"LOCAL_WORLD_SIZE": "0"}, 64),
        (64, 64, None, {"LOCAL_WORLD_SIZE": "many"}, 64),
        # ranks of Lightning, all on this machine or not
        (64, 64, None, {"WORLD_SIZE": "8", "MASTER_ADDR": "127.0.0.1"}, 8),
        (64, 64, None, {"WORLD_SIZE": "8", "MASTER_ADDR": "10.0.0.1"}, 64),
        (64, 64, None, {"WORLD_SIZE": "16", "MASTER_ADDR": "127.0.0.1", **RANKS}, 8),
        # tasks of Slurm
        (64, 64, None, {"SLURM_CPUS_PER_TASK": "12"}, 12),
        (8, 64, None, {"SLURM_CPUS_PER_TASK": "12"}, 8),
        (64, 64, None, {"SLURM_CPUS_ON_NODE": "32", "SLURM_NTASKS_PER_NODE": "4"}, 8),
        (64, 64, None, {"SLURM_CPUS_ON_NODE": "32", "SLURM_TASKS_PER_NODE": "4(x2),3"}, 8),
        (64, 64, None, {"SLURM_CPUS_ON_NODE": "32", "SLURM_TASKS_PER_NODE": "2,16(x3)"}, 2),
        (64, 64, None, {"SLURM_CPUS_ON_NODE": "32"}, 32),
        (64, 64, None, {"SLURM_CPUS_ON_NODE": "2", "SLURM_NTASKS_PER_NODE": "4"}, 1),
        (64, 64, None, STEP, 64),
        # torchrun in a task; ranks that are the tasks
        (64, 64, None, {**RANKS, "SLURM_CPUS_PER_TASK": "32", "SLURM_NTASKS_PER_NODE": "1"}, 4),
        (64, 64, None, {**RANKS, "SLURM_CPUS_PER_TASK": "8", "SLURM_NTASKS_PER_NODE": "8"}, 8),
        (8, 8, None, {**RANKS, "SLURM_CPUS_PER_TASK": "8", "SLURM_NTASKS_PER_NODE": "8"}, 8),
    ],
)
def test_share(usable: int, machine: int, limit: float | None, environment: dict[str, str], expected: int) -> None:
    found = share(usable, machine, limit, environment)
    assert found.number == expected, found.why


def test_the_reason_is_said() -> None:
    assert share(64, 64, None, {}).why == "affinity to 64"
    assert share(64, 64, None, RANKS).why == "64 in the machine, shared by 8 ranks"
    assert share(64, 64, 1.5, {}).why == "cgroup quota of 1.5"
    assert share(64, 64, None, {"SLURM_CPUS_PER_TASK": "12"}).why == "Slurm's 12 for a task"
    environment = {"SLURM_CPUS_ON_NODE": "32", "SLURM_NTASKS_PER_NODE": "4"}
    assert share(64, 64, None, environment).why == "Slurm's 32 for 4 tasks"


def test_nothing_is_more_than_affinity() -> None:
    assert 1 <= cores.found().number <= cores.affinity() <= (os.cpu_count() or 1)


def write(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 1.5),
        ("0::/\n", {"cpu.max": "max 100000\n"}, None),
        ("0::/\n", {}, None),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "200000 100000\n", "cpu.max": "800000 100000\n"}, 2),
        ("0::/a/b\n", {"a/b/cpu.max": "100000 100000\n", "a/cpu.max": "200000 100000\n"}, 1),
        ("0::/seen/only/outside\n", {"cpu.max": "300000 100000\n"}, 3),
        ("0::/a\n", {"a/cpu.max": "nonsense"}, None),
        (
            "4:cpu,cpuacct:/docker/x\n3:memory:/docker/x\n",
            {"cpu,cpuacct/docker/x/cpu.cfs_quota_us": "250000\n", "cpu,cpuacct/docker/x/cpu.cfs_period_us": "100000\n"},
            2.5,
        ),
        (
            "4:cpu:/docker/x\n0::/\n",  # a container sees its own group as the root
            {"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n"},
            0.5,
        ),
        ("4:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ("3:memory:/\n", {"memory/cpu.cfs_quota_us": "1\n", "memory/cpu.cfs_period_us": "100000\n"}, None),
    ],
)
def test_quota(tmp_path: Path, own: str, files: dict[str, str], expected: float | None) -> None:
    root = write(tmp_path / "groups", files)
    write(tmp_path, {"own": own})
    assert quota(tmp_path / "own", root) == expected


def test_a_system_without_control_groups(tmp_path: Path) -> None:
    assert quota(tmp_path / "none", tmp_path) is None
    assert cpuset(tmp_path / "none", tmp_path) is None


def test_cpuset(tmp_path: Path) -> None:
    files = {"a/cpuset.cpus.effective": "0-2,7,9-10\n", "cpuset.cpus.effective": "0-63\n"}
    assert cpuset(write(tmp_path, {"own": "0::/a\n"}) / "own", write(tmp_path / "2", files)) == 6
    files = {"cpuset/a/cpuset.effective_cpus": "5\n"}
    assert cpuset(write(tmp_path, {"own": "5:cpuset:/a\n"}) / "own", write(tmp_path / "1", files)) == 1
    assert cpuset(tmp_path / "own", write(tmp_path / "0", {"cpuset/a/cpuset.effective_cpus": "\n"})) is None


def test_threads_of_ours(monkeypatch: pytest.MonkeyPatch, paths: list[str]) -> None:
    monkeypatch.setattr(cores, "affinity", lambda: 6)
    monkeypatch.setattr(cores, "machine", lambda: (6, None))
    torch_threads = torch.get_num_threads()
    assert ParallelFor("auto", "tried").size == 6
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert ParallelFor("auto", "tried").size == 3
    assert ParallelFor(5, "tried").size == 5
    threads = set(threading.enumerate())
    with accel.image_backend("cpu", on_error="replace"):  # an instance whose threads have not been started
        torch.stack([F.to_tensor(helpers.open_rgb(path).resize((20, 20))) for path in paths]).sum()
    started = [thread for thread in set(threading.enumerate()) - threads if thread.name.startswith("accel-cpu")]
    assert len(started) <= 2
    assert torch.get_num_threads() == torch_threads


def test_info_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "1")
    shown = info.gather()["machine"]
    assert (shown["cores"], shown["cores by"]) == (1, "Slurm's 1 for a task")


def test_numa_nodes(tmp_path: Path) -> None:
    for number, cpus in ((0, "0-3,8\n"), (10, "4-7\n"), (2, "\n")):
        (tmp_path / f"node{number}").mkdir()
        (tmp_path / f"node{number}" / "cpulist").write_text(cpus)
    assert numa_nodes(tmp_path) == ["node0: 0-3,8", "node10: 4-7"]
    assert numa_nodes(tmp_path / "none") == []
    assert info.gather()["machine"]["NUMA nodes"] == numa_nodes()
