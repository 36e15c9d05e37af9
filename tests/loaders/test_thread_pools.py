"""Pools of threads that other libraries have in DataLoader workers: named by the profiler, limited on request."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from accel.__main__ import main
from accel.cli import run
from tests.cli.ended import ended
from tests.support.processes import linux

SCRIPT = """
import numpy, torch, torchvision
from torch.utils.data import DataLoader, Dataset
class Multiplies(Dataset):
    def __len__(self):
        return 16
    def __getitem__(self, index):
        square = numpy.ones((300, 300))
        return float((square @ square).sum())
if __name__ == "__main__":
    print(sum(batch.sum().item() for batch in DataLoader(Multiplies(), 4, num_workers=1, multiprocessing_context={!r})))
"""


def profiled(folder: Path, method: str, *options: str) -> tuple[str, Any]:
    """The report of the script, as a screen, and the pools in its data."""
    (folder / "script.py").write_text(SCRIPT.format(method))
    words = "-m", "accel", "run", "--backend", "cpu", "--profile", "--json", "profile.json"
    found = ended(*words, *options, "script.py", cwd=folder)
    assert found.returncode == 0, found.stderr
    assert found.stdout == f"{16 * 300.0**3}\n"
    return found.stderr, json.loads((folder / "profile.json").read_text())["counters"]["thread pools"]


@linux
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="OpenBLAS has one thread anyway")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_pool_is_named_and_limited(tmp_path: Path, method: str) -> None:
    pytest.importorskip("threadpoolctl")
    screen, pools = profiled(tmp_path, method)
    (name,) = pools
    assert name.startswith("openblas: ")
    assert f"threads of other libraries in a worker: {name} (accel run --limit-threads)" in screen
    screen, pools = profiled(tmp_path, method, "--limit-threads")
    assert pools == {}
    assert "other libraries" not in screen


@pytest.mark.parametrize(
    ("backend", "message"),
    [("cpu", "needs threadpoolctl: pip install threadpoolctl"), ("torchvision", "needs a backend of accel's")],
)
def test_what_it_needs(
    backend: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "find_spec", lambda _: None if backend == "cpu" else object())
    assert main(["run", "--backend", backend, "--limit-threads", "script.py"]) == 2
    assert f"--limit-threads {message}" in capsys.readouterr().err
