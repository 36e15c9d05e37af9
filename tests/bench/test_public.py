"""Contestants in environments of their own: what is installed, what fails, and the page."""

import importlib.util
import json
import subprocess
import sys
import time
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from accel.cli import screen
from accel.cli.arguments import Red
from bench import child, public, report
from bench.__main__ import main
from bench.contestants import CONTESTANTS
from tests.support.processes import eventually, linux

pytestmark = linux
OPENCV, SPDL = CONTESTANTS["opencv"], CONTESTANTS["spdl"]


# -- environments -------------------------------------------------------------------------------------------


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder that pip takes distributions from, and nowhere else."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def release(index: Path, version: str) -> None:
    """Put a wheel of the distribution "tiny-one" into the folder."""
    about = f"tiny_one-{version}.dist-info"
    with zipfile.ZipFile(index / f"tiny_one-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny_one.py", f"version = {version!r}\n")
        wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: tiny-one\nVersion: {version}\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")


def says(made: public.Environment, code: str) -> str:
    return subprocess.run([made.python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_an_environment_has_the_newest_version_and_shares_torch(index: Path, tmp_path: Path) -> None:
    release(index, "1.0")
    release(index, "1.1")
    made = public.environment(tmp_path / "env", ("tiny-one",))
    assert made == (str(tmp_path / "env" / "tiny-one" / "bin" / "python"), {"tiny-one": "1.1"}, None)
    torch = importlib.util.find_spec("torch")
    assert torch is not None
    code = "import importlib.util, tiny_one; print(tiny_one.version, importlib.util.find_spec('torch').origin)"
    assert says(made, code) == f"1.1 {torch.origin}"
    assert importlib.util.find_spec("tiny_one") is None

    release(index, "1.2")
    assert public.environment(tmp_path / "env", ("tiny-one",)) == made, "it is there"
    assert public.environment(tmp_path / "env", ("tiny-one",), anew=True).versions == {"tiny-one": "1.2"}


def test_what_is_unfinished_or_fails_is_made_anew(index: Path, tmp_path: Path) -> None:
    failed = public.environment(tmp_path / "env", ("tiny-one",))
    assert failed.why_not is not None
    assert failed.why_not.startswith("not installed: ERROR: No matching distribution found for tiny-one")
    release(index, "1.0")
    made = public.environment(tmp_path / "env", ("tiny-one",))
    assert made.why_not is None
    place = tmp_path / "env" / "tiny-one"
    (place / "finished.json").unlink()  # as if it had been ended before
    (place / "half").touch()
    assert public.environment(tmp_path / "env", ("tiny-one",)) == made
    assert not (place / "half").exists()


def test_reasons_name_no_folders(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text("Looking in /a/b\nERROR: Could not open '/home/me/x/setup.py': no such file\nnote: more\n")
    assert public._reason(1, 9, log) == "ERROR: Could not open 'setup.py': no such file"
    log.write_text("")
    assert public._reason(-11, 9, log) == "ended by signal 11: status -11"
    assert public._reason(None, 9, log) == "it had not ended after 9 s"


# -- processes ----------------------------------------------------------------------------------------------


def test_a_command_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    code = "import os, sys, time; os.fork(); print(os.getpid(), flush=True); time.sleep(100)"
    log = tmp_path / "log.txt"
    begin = time.monotonic()
    with log.open("wb") as out:
        assert child.run([sys.executable, "-c", code], 3, out, tmp_path) is None
    assert time.monotonic() - begin < 60
    pids = [int(line) for line in log.read_text().split()]
    assert len(pids) == 2
    eventually(lambda: not any(map(alive, pids)))


def alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def process(tmp_path: Path, seconds: float = 100) -> public.Process:
    return public.Process((), tmp_path, time.monotonic() + seconds, screen.Bar("measuring"))


def made(tmp_path: Path, program: str) -> public.Environment:
    """An environment whose interpreter is a program."""
    python = tmp_path / "python"
    python.write_text(f"#!{sys.executable}\n{program}\n")
    python.chmod(0o755)
    return public.Environment(str(python), {})


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("raise ValueError('its library is too old')", "ValueError: its library is too old"),
        ("import os; os.abort()", "ended by signal 6: status -6"),
        ("import time; time.sleep(100)", "it had not ended after 2 s"),
        ("print('bench: OpenCV, linear differs from torchvision v1, PIL'); exit(1)", "bench: OpenCV, linear differs"),
    ],
)
def test_a_contestant_that_fails_is_listed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str, reason: str
) -> None:
    monkeypatch.setattr(public, "_STARTING", 1.0)
    monkeypatch.setattr(public, "_MEASURING", 1.0)
    entry = public.rows(OPENCV, ["train"], made(tmp_path, program), process(tmp_path))["train"]
    assert entry["not run"].startswith(reason)
    assert entry["contestant"] == "opencv"


def test_what_is_not_installed_and_what_has_no_time_is_listed(tmp_path: Path) -> None:
    missing = public.Environment("", {}, "not installed: no wheel")
    assert public.rows(SPDL, ["train"], missing, process(tmp_path))["train"]["not run"] == "not installed: no wheel"
    fine = made(tmp_path, "raise SystemExit(3)")
    assert (
        public.rows(SPDL, ["train"], fine, process(tmp_path, -1))["train"]["not run"] == "no time was left (--minutes)"
    )


def test_one_workload_that_fails_leaves_the_others(tmp_path: Path) -> None:
    """The process that runs all fails, and then that of the one."""
    result = {"versions": public._common(), "workloads": {"eval": {"entries": [entry("opencv", 1, 0)]}}}
    program = "import sys, json\nif 'train' in sys.argv: raise ValueError('no crops')\n"
    program += f"json.dump({result!r}, open(sys.argv[-1], 'w'))"
    found = public.rows(OPENCV, ["train", "eval"], made(tmp_path, program), process(tmp_path))
    assert found["train"]["not run"] == "ValueError: no crops"
    assert found["eval"]["images per second"] == 100


def test_another_pillow_is_not_compared(tmp_path: Path) -> None:
    versions = {**public._common(), "Pillow": "9.9"}
    program = f"import sys, json; json.dump({{'versions': {versions!r}}}, open(sys.argv[-1], 'w'))"
    entry = public.rows(OPENCV, ["train"], made(tmp_path, program), process(tmp_path))["train"]
    assert entry["not run"].startswith("its environment has Pillow 9.9, not ")


def test_wrong_values_of_accel_are_red(tmp_path: Path) -> None:
    program = "print('bench: accel, cpu differs from torchvision v1, PIL, first in a.jpg'); exit(1)"
    with pytest.raises(Red, match=r"first in a\.jpg"):
        public.rows(OPENCV, ["train"], made(tmp_path, program), process(tmp_path))["train"]


# -- the command and its page -------------------------------------------------------------------------------


def test_the_command(image_folder: Path, tmp_path: Path, index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a contestant that cannot be installed."""
    pytest.importorskip("matplotlib")
    out = tmp_path / "out" / "public.json"
    arguments = ["--data", str(image_folder), "--images", "4", "--rounds", "1", "--only", "opencv", "--out", str(out)]
    assert main(["public", "cifar", "--env", str(tmp_path / "env"), *arguments]) == 0
    result = json.loads(out.read_text())
    assert result["contestants"]["torchvision-v1"] == result["contestants"]["accel-cpu"] == "runs"
    assert result["contestants"]["opencv"].startswith("not installed: ")
    assert result["command"] == "python -m bench public cifar --data DIR --only opencv --images 4 --rounds 1"
    assert str(tmp_path) not in out.read_text()
    page = out.with_suffix(".md").read_text()
    assert "not run: OpenCV, linear: not installed: " in page
    assert "| accel, cpu |" in page
    assert "small images in memory" in capsys.readouterr().out

    assert main(["public", "nonsense"]) == main(["public", "--only", "nonsense"]) == 2


def entry(key: str, seconds: float, largest: float, exact: bool = False, accel: float = 1.0) -> dict[str, Any]:
    """Two rounds of a hundred images each; torchvision took two seconds."""
    return {
        "contestant": key,
        "name": key,
        "settings": f"how {key} is used",
        "threads": 1,
        "workers": 0,
        "exact": exact,
        "images per round": 100,
        "rounds": [{"seconds": seconds, "cpu_seconds": seconds}] * 2,
        "median ms": 10 * seconds,
        "lowest ms": 10 * seconds,
        "highest ms": 10 * seconds,
        "median CPU ms": 9.0,
        "images per second": 100 / seconds,
        "ratio": 2 / seconds,
        "difference in levels": {"max": largest, "mean": largest / 2, "share that differs": 0.5 * bool(largest)},
        "beside": {"accel-cpu": [{"seconds": accel, "cpu_seconds": accel}] * 2},
    }


def test_the_page_says_who_is_equal_and_who_is_faster() -> None:
    part: dict[str, Any] = {
        "title": "some photos",
        "entries": [
            entry("torchvision-v1", 2, 0, exact=True),
            entry("accel-cpu", 1, 0, exact=True),
            entry("equal", 4, 0, accel=2),
            entry("faster", 1, 7, accel=1.5),
            {"contestant": "missing", "name": "missing", "settings": "how missing is used", "exact": False}
            | {"not run": "not installed: no wheel"},
        ],
    }
    small = {"title": "small ones", "entries": [part["entries"][0], {**part["entries"][1], "ratio": 1.1}]}
    row = {"model": "net", "images per second": 9.0, "waiting": 0.01, "CPU ms": 1.0}
    losses = {"losses are torchvision's": True}
    training = [
        {**row, **losses, "backend": "torchvision", "ratio": 1.0},
        {**row, **losses, "backend": "cpu", "ratio": 1.01},
    ]
    result = {
        "date": "2026-11-29",
        "commit": "0" * 40,
        "uncommitted changes": False,
        "versions": {"Pillow": "13"},
        "machine": {"cpu": "a", "cores": 2, "cuda devices": [], "system": "Linux"},
        "rounds": 2,
        "command": "this",
        "data": {"name": "photos", "images": 100},
        "contestants": {"equal": "runs", "missing": "not installed: no wheel"},
        "environments": {"equal": {"equal-lib": "1.2"}},
        "workloads": {"train": part, "small": small, "training": {"title": "training", "training": training}},
    }
    text = report.text([result], {})
    assert "| equal | 40.000 | 40.00-40.00 | 25 | 0.50 | 0.50 | 9.000 | yes | 0 | 0 | 0 |" in text
    assert "| faster | 10.000 | 10.00-10.00 | 100 | 2.00 | 1.50 | 9.000 | no | 7 | 3.500 | 50% |" in text
    assert "not run: missing: not installed: no wheel" in text
    assert "**Faster: faster, 10.000 ms (1.50x accel), pixels off by up to 7 levels, 50% of values differ.**" in text
    assert "- some photos: accel 2.00x torchvision; faster 1.50x accel." in text
    assert "- small ones: accel 1.10x torchvision.\n" in text
    assert "- training, net: accel 1.01x torchvision, which waited for data 1% of the time." in text
    assert "| equal | how equal is used | equal-lib 1.2 | runs |" in text
    assert "| missing | how missing is used |  | not installed: no wheel |" in text
