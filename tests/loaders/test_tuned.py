"""What was found about a loader is where the script's next epoch and next run begin, on as many cores as before."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder

import accel
from accel.codec import store
from accel.hooks import prefetching, tuned
from accel.hooks.prefetching import LOOKED_AT
from accel.processes.launch import environment
from accel.system import cores
from tests.support.loaders import TIMEOUT, TRAIN
from tests.support.processes import linux

pytestmark = linux


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "of a folder" / "tuned.json"
    monkeypatch.setenv(environment.TUNE_FILE, str(path))
    return path


@pytest.fixture
def loader(image_folder: Path) -> DataLoader[Any]:
    return DataLoader(ImageFolder(str(image_folder), TRAIN), 4, num_workers=2, timeout=TIMEOUT)


def begun(loader: DataLoader[Any]) -> int:
    """How many batches are under way when an epoch begins."""
    depth = prefetching.depth(loader, 0)
    assert depth is not None
    return depth.batches


def in_bursts(loader: DataLoader[Any], size: int = 1000) -> None:
    depth = prefetching.depth(loader, 0)
    assert depth is not None
    for _ in range(LOOKED_AT + 1):
        depth.note(True, True, size)


def test_the_next_epoch(file: Path, loader: DataLoader[Any], image_folder: Path) -> None:
    with accel.image_backend("cpu"):
        assert (begun(loader), accel.stats()["tuned"]) == (4, {})
        assert "under way" not in accel.explain(loader)
        in_bursts(loader)
        assert begun(loader) == 8
        name = f"ImageFolder of {len(loader.dataset)}, batches of 4, 2 workers, prefetch_factor 2"  # type: ignore[arg-type]
        assert accel.stats()["tuned"] == {name: 8}
        assert f"8 batches are under way of {name}" in accel.summary()
        assert "8 batches are under way, as when this script last ran; it asks for 4" in accel.explain(loader)
        assert begun(DataLoader(loader.dataset, 2, num_workers=2)) == 4, "another loader"
        iterator: Any = iter(loader)
        assert len(iterator._task_info) == min(8, len(loader))
        assert len(list(iterator)) == len(loader)
    assert json.loads(file.read_text())["loaders"] == {name: [8, 1000]}
    with accel.image_backend("cpu", threads=1):
        assert prefetching.depth(loader, 0) is None


def test_back_at_the_scripts_number(file: Path, loader: DataLoader[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    left = [1 << 40]
    monkeypatch.setattr(store, "left", lambda: left[0])
    with accel.image_backend("cpu"):
        in_bursts(loader)
        left[0] = 4 * 8 * 1000 - 1
        assert begun(loader) == 4, "there is no room"
        left[0] += 1
        depth = prefetching.depth(loader, 0)
        assert depth is not None
        assert depth.batches == 8
        left[0] = 8 * 1000 - 1
        for _ in range(LOOKED_AT):
            depth.note(False, False, 1000)
        left[0] = 1 << 40
        assert (begun(loader), accel.stats()["tuned"]) == (4, {})
    assert json.loads(file.read_text())["loaders"] == {}


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def test_the_next_run(
    file: Path, loader: DataLoader[Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with accel.image_backend("cpu"):
        here = [cores.cores(), *cores.machine()]
        name = tuned.name(loader)
        write(file, {"cores": here, "loaders": {name: [12, 1000]}})
        assert begun(loader) == 12
        assert accel.stats()["tuned"] == {name: 12}
        monkeypatch.setattr(cores, "machine", lambda: (here[1], 0.5))
        assert begun(loader) == 4, "another quota"
        monkeypatch.undo()
        monkeypatch.setenv(environment.TUNE_FILE, str(file.with_name("more")))
        write(file.with_name("more"), {"cores": here, "loaders": {name: [10**9, 0]}})
        assert begun(loader) == 2 * prefetching.MOST
        assert not caplog.records


DAMAGED: dict[str, Any] = {
    "text": "{",
    "bytes": "\0",
    "a list": [],
    "no loaders": {"cores of": []},
    "a name": {"loaders": {"x": "12"}},
    "one number": {"loaders": {"x": [1]}},
    "a negative one": {"loaders": {"x": [-1, 1]}},
    "a fraction": {"loaders": {"x": [1.5, 1]}},
    "deep": "[" * 9999,
}


@pytest.mark.parametrize("which", DAMAGED)
def test_a_damaged_file(file: Path, loader: DataLoader[Any], which: str, caplog: pytest.LogCaptureFixture) -> None:
    content = DAMAGED[which]
    if isinstance(content, dict) and "loaders" in content:
        content = {**content, "cores": [cores.cores(), *cores.machine()]}
    write(file, content)
    with accel.image_backend("cpu"):
        assert [begun(loader) for _ in range(2)] == [4, 4]
        assert [str(file) in each.message for each in caplog.records] == [True], "said once"
        in_bursts(loader)
        assert begun(loader) == 8
    assert json.loads(file.read_text())["loaders"], "it is written anew"


def test_a_file_that_cannot_be_written(file: Path, loader: DataLoader[Any], caplog: pytest.LogCaptureFixture) -> None:
    write(file.parent / "a file", "")
    file.parent.joinpath("a file").rename(file.parent / "elsewhere")
    file.mkdir()
    with accel.image_backend("cpu"):
        in_bursts(loader)
        assert begun(loader) == 8, "in this run"
    assert any("is not kept" in each.message for each in caplog.records)
    assert sorted(path.name for path in file.parent.iterdir()) == ["elsewhere", file.name]


_SCRIPT = """
import sys, torchvision
from accel.hooks import tuned
print(tuned.path())
"""


def test_where_it_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(environment.TUNE_FILE)
    (tmp_path / "script.py").write_text(_SCRIPT)

    def told(*words: str) -> str:
        run = [sys.executable, "-m", "accel", "run", "--backend", "cpu", *words]
        return subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.strip()

    assert told("--tune-file", "here.json", "script.py") == str(tmp_path / "here.json")
    (tmp_path / "other.py").write_text(_SCRIPT)
    kept = {told("script.py"), told(str(tmp_path / "script.py")), told("other.py")}
    assert len(kept) == 2
    assert {Path(path).name[:6] for path in kept} == {"tuned-"}
