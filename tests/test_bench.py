"""The benchmark: that it measures what it says, and reports nothing on a red check. No timings are asserted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from test_cli import make_wrong

from accel.cli.contest import Cost
from accel.codec.decode import ENGINES

sys.path.insert(0, str(Path(__file__).parent.parent))  # the benchmark is part of a checkout, not of the package

from bench import report
from bench.__main__ import main
from bench.workload import Row
from bench.workloads import SUITES

ROOT = Path(__file__).parent.parent


def measure(folder: Path, out: Path, *workloads: str) -> dict[str, Any]:
    """The result file's content after one round of some workloads."""
    only = [argument for name in workloads for argument in ("--only", name)]
    status = main(["throughput", "--data", str(folder), "--rounds", "1", "--out", str(out), *only])
    assert status == 0
    content: dict[str, Any] = json.loads(out.read_text())
    return content


def contestants(result: dict[str, Any], workload: str) -> dict[str, Any]:
    found = next(each for each in result["workloads"] if each["name"] == workload)
    return {each["name"]: each for each in found["contestants"]}


def test_one_thread_and_recording(image_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "results" / "result.json"
    result = measure(image_folder, out, "one_thread_train", "one_thread_eval", "recording_train")
    assert result["data"] == {"name": image_folder.name, "images": 12}
    assert str(image_folder) not in out.read_text()
    assert set(result) >= {"suite", "date", "commit", "machine", "versions", "settings"}

    one = contestants(result, "one_thread_train")
    assert {"torchvision v1 with PIL", "accel, cpu, decode=auto", "accel, cpu, decode=pillow"} <= set(one)
    assert all(each["under"]["torch threads"] == 1 for each in one.values())
    assert {each["under"]["options"].get("decode") for each in one.values()} <= {None, *ENGINES}
    assert one["torchvision v1 with PIL"]["ratio"] == 1
    assert len(one["accel, cpu, decode=auto"]["rounds"]) == 1

    recorded = contestants(result, "recording_train")["accel, recording only"]
    assert list(recorded["median step ms"]) == [
        "load",
        "RandomResizedCrop",
        "RandomHorizontalFlip",
        "ToTensor",
        "Normalize",
        "stack",
    ]
    shown = capsys.readouterr().out
    assert "ms/image" in shown
    assert "RandomHorizontalFlip" in shown


def test_loader_in_a_process_of_its_own(image_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    command = [sys.executable, "-m", "bench", "throughput", "--only", "loader_train", "--only", "imports"]
    done = subprocess.run(
        [*command, "--rounds", "1", "--data", str(image_folder), "--out", str(out)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # torch's threads wait for each other on a busy machine
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "accel, cpu, 2 workers" in done.stdout
    result = json.loads(out.read_text())
    loader = contestants(result, "loader_train")
    assert [each["reference"] for each in loader.values()] == [True, False, True, False]
    assert max(each["ratio"] for each in loader.values() if each["reference"]) == 1
    assert all(each["ratio"] is None for each in contestants(result, "imports").values())


def test_a_red_check_reports_nothing(
    monkeypatch: pytest.MonkeyPatch, image_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_wrong(monkeypatch)
    out = tmp_path / "result.json"
    arguments = ["--data", str(image_folder), "--rounds", "1", "--out", str(out), "--only", "one_thread_train"]
    assert main(["throughput", *arguments]) == 1
    shown = capsys.readouterr()
    assert not shown.out
    assert "differs from the reference" in shown.err
    assert not out.exists()


@pytest.mark.parametrize("arguments", [("--only", "nonsense"), ("--data", "nowhere")])
def test_wrong_usage(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["throughput", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("bench: ")
    assert not shown.out


def test_medians_and_ratios_are_those_of_the_rounds() -> None:
    slow = Row("slow", 10, [Cost(9, 4), Cost(2, 3), Cost(3, 8)], reference=True)
    slower = Row("slower", 10, [Cost(6, 6)], reference=True)
    fast = Row("fast", 10, [Cost(1.5, 1)])
    assert (slow.seconds, slow.cpu_seconds) == (0.3, 0.4)
    assert [report.ratio(row, [slow, slower, fast]) for row in (slow, slower, fast)] == [1, 0.5, 2]
    assert report.ratio(fast, [fast]) is None


def test_workloads_have_names_of_their_own() -> None:
    names = [workload.name for suite in SUITES.values() for workload in suite]
    assert len(set(names)) == len(names)
