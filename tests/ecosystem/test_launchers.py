"""Launchers of ranks: torchrun, Accelerate's, Lightning's. Losses are those of torchvision, and indexes are shared."""

import ast
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from accel.cli import command_line
from tests.support import helpers
from tests.support.processes import ROOT, linux

pytestmark = linux
SCRIPTS = Path(__file__).with_name("scripts")
IMAGES = 32
TORCHRUN = "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"
ACCELERATE = "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1"
ACCELERATE_REST = "--mixed_precision", "no", "--dynamo_backend", "no"
RUN = "-m", "accel", "run", "--backend", "cpu"


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ImageFolder tree of files that get an index."""
    root = tmp_path_factory.mktemp("photos")
    for number in range(IMAGES):
        folder = root / ("cat" if number < IMAGES // 2 else "dog")
        folder.mkdir(exist_ok=True)
        (folder / f"{number:03}.jpg").write_bytes(helpers.jpeg(300, 220 + number, seed=number))
    return root


def ended(*words: str, place: Path, status: int = 0) -> str:
    """The output of a Python with these arguments, whose temporary files lie in ``place``."""
    own = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TMPDIR": str(place), "ACCELERATE_USE_CPU": "true"}
    command = [sys.executable, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env={**os.environ, **own})
    assert done.returncode == status, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(TORCHRUN, id="torchrun"),
        pytest.param((*TORCHRUN, *RUN), id="torchrun -m accel run", marks=pytest.mark.sweep),
        pytest.param((*RUN, *TORCHRUN), id="accel run -m torchrun", marks=pytest.mark.sweep),
        pytest.param((*ACCELERATE, *ACCELERATE_REST), id="accelerate launch"),
        pytest.param((*ACCELERATE, *ACCELERATE_REST, *RUN), id="accelerate launch -m accel run"),
    ],
)
def test_losses_and_indexes(words: tuple[str, ...], photos: Path, tmp_path: Path) -> None:
    if words[1].startswith("accelerate"):
        helpers.optional("accelerate")
    found = ast.literal_eval(ended(*words, str(SCRIPTS / "ranks.py"), str(photos), "auto", place=tmp_path))
    assert found == {"images": 2 * IMAGES, "indexes": IMAGES, "indexed": IMAGES, "results": 0, "results used": 0}


@pytest.mark.sweep
def test_one_cache(photos: Path, tmp_path: Path) -> None:
    """The second epoch has other files for each rank."""
    cache = f"{tmp_path / 'cache'}:50MB"
    found = ast.literal_eval(ended(*TORCHRUN, str(SCRIPTS / "ranks.py"), str(photos), cache, place=tmp_path))
    assert (found["images"], found["results used"]) == (2 * IMAGES, IMAGES)


def test_a_rank_that_is_killed(photos: Path, tmp_path: Path) -> None:
    """torchrun ends the other one. They leave the cache, unlocked, and nothing else."""
    cache, place = tmp_path / "cache", tmp_path / "temporary"
    place.mkdir()
    ended(*TORCHRUN, str(SCRIPTS / "ranks.py"), str(photos), f"{cache}:50MB", "kill", place=place, status=1)
    processes = {*map(int, (place / "processes").read_text().split())}
    assert len(processes) == 6  # two ranks, and a worker of each in two epochs
    until = time.monotonic() + 30  # a worker looks every few seconds whether its rank has been killed
    while any(Path(f"/proc/{process}").exists() for process in processes):
        assert time.monotonic() < until
        time.sleep(0.1)
    assert not [name for name in os.listdir("/dev/shm") if any(f"_{process}_" in name for process in processes)]
    assert not [name for name in os.listdir(place) if "accel" in name]
    assert command_line.main(["cache", "clear", str(cache)]) == 0  # which needs the cache to itself


@pytest.mark.parametrize("strategy", ["ddp", "ddp_spawn", "ddp_fork"])
def test_lightning(strategy: str, photos: Path, tmp_path: Path) -> None:
    helpers.optional("lightning")
    ended("-W", "ignore", str(SCRIPTS / "lightning_ranks.py"), str(photos), strategy, str(tmp_path), place=tmp_path)

    def seen(backend: str) -> list[Any]:
        return [json.loads((tmp_path / f"{backend} {rank}").read_text()) for rank in range(2)]

    plain, ours = seen("torchvision"), seen("cpu")
    assert [each["losses"] for each in ours] == [each["losses"] for each in plain]
    assert len(ours[0]["losses"]) == IMAGES // 8
    indexed = [each["indexed"] for each in ours]  # counted together by processes that Python has started
    assert (sum(indexed) if strategy == "ddp" else max(indexed)) == IMAGES
