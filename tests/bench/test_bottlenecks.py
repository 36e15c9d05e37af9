"""Planted bottlenecks: the profiler names some, the bench tells right from wrong, advice is applied."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accel.system.cores import cores
from bench import bottlenecks
from bench.bottlenecks import child, data, processes
from bench.bottlenecks.__main__ import _sum_up, main
from bench.bottlenecks.data import photos, pipeline
from bench.bottlenecks.load import Load
from bench.bottlenecks.plant import Plant
from bench.bottlenecks.script import Script
from bench.bottlenecks.steps import Step


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("photos")
    data.write(root, ("tiny",))
    return root


WAITS = Script(photos(pipeline(size=16), "tiny", data.Wait(150)), Step(1), batches=6, batch_size=2)
STEPS = replace(WAITS, dataset=photos(pipeline(size=16), "tiny"), step=Step(400), loader={"num_workers": 1})


@pytest.mark.parametrize(
    "plant",
    [
        Plant("user", "a database asked for every sample", "user", WAITS, names=("data.py",)),
        Plant("user", "the same in a worker", "user", replace(WAITS, loader={"num_workers": 1}), names=("data.py",)),
        Plant("step", "a long step", "step", STEPS, never=("num_workers", "prefetch_factor", "backend")),
    ],
    ids=["alone", "worker", "step"],
)
def test_a_planted_bottleneck_is_named(plant: Plant, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "_tried", lambda script, advice, folder: 100.0)
    found = child.profiled(plant, folder, 1)
    assert found["found"] == plant.expected, found["screen"]
    assert plant.wrong(found["advice"], found["why"]) == []


def test_every_plant_is_expected_to_have_a_name() -> None:
    from accel.profiling.verdict import BOTTLENECKS

    named = {plant.expected for plant in bottlenecks.PLANTS.values()}
    assert named <= set(BOTTLENECKS)
    assert set(BOTTLENECKS) - named == {"none"}
    assert len(bottlenecks.PLANTS) >= 24
    assert all(plant.script.batches * plant.script.epochs <= 50 for plant in bottlenecks.PLANTS.values())


def test_wrong_advice_is_found() -> None:
    plant = Plant("a", "", "user", WAITS, helps=("num_workers",), never=("backend",), names=("data.py",))
    right = {"text": "without data.py:7", "change": {"num_workers": 4}}
    assert plant.wrong([right], "") == []
    assert plant.wrong([{**right, "text": "more"}], "data.py is slow") == []
    assert plant.wrong([{"text": "data.py", "change": {"backend": "cpu"}}], "") == [
        "backend must not be advised",
        "num_workers is not advised",
    ]
    assert plant.wrong([{"text": "", "change": {"num_workers": 4}}], "") == ["nothing says data.py"]


def test_advice_is_applied() -> None:
    changed = replace(WAITS, options={"threads": 2}).changed({"num_workers": 4, "threads": 8})
    assert (changed.loader, changed.options, changed.backend) == ({"num_workers": 4}, {"threads": 8}, "cpu")
    assert replace(WAITS, options={"threads": 2}).changed({"backend": "reference"}).options == {}


def rounds(*rates: tuple[float | None, float]) -> list[dict[str, Any]]:
    return [{"predicted": said, "measured": rate, "others": [0.1, 0.1]} for said, rate in rates]


@pytest.mark.parametrize(("bound", "wrong"), [("at_most", -0.2), ("at_least", 0.2)])
def test_a_bound_is_wrong_where_it_is_passed(bound: str, wrong: float) -> None:
    each = {"at_most": False, "at_least": False, bound: True}
    errors = [_sum_up({**each, "rounds": rounds((rate, 100.0))})["error"] for rate in (80.0, 120.0)]
    assert sorted(errors, key=abs) == [0.0, pytest.approx(wrong)]


def test_what_else_runs_is_seen() -> None:
    burns = [sys.executable, "-c", "while True: pass"]
    with Load() as own:
        subprocess.run([sys.executable, "-c", "sum(range(10**7))"], check=True)
    other = subprocess.Popen(["sh", "-c", '"$0" "$@" & echo $!', *burns], stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    pid = int(other.stdout.readline())
    try:
        other.wait()
        with Load() as load:
            time.sleep(1)
    finally:
        os.kill(pid, 9)
        other.stdout.close()
    assert own.others is not None
    assert load.others is not None
    assert load.others > 0.2


@pytest.mark.parametrize(("name", "status"), [("step", 0), ("read", 1)])
def test_a_wrong_name_is_exit_status_1(
    name: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said: dict[str, Any] = {"found": name, "why": "", "failed": None, "screen": "", "measured": {}}
    each = {"text": "more", "change": {"num_workers": 2}, "rate": 50.0, "at_most": False, "at_least": False, "cost": ""}
    advice = [
        {**each, "predicted_rate": 120.0, "rounds": rounds((120.0, 100.0))},
        {
            **each,
            "predicted_rate": 110.0,
            "rounds": rounds((150.0, 50.0), (110.0, 100.0), (None, 9.0), (100.0, 100.0)),
        },
    ]
    busy = {"predicted": 7.0, "measured": 700.0, "others": [2.0 * cores(), 0.0]}
    advice[1]["rounds"] += [busy] * 3  # what else ran was another thing
    left = [{**each, "predicted_rate": None, "rounds": rounds((100.0, 100.0))}]
    found = {**said, "advice": advice, "not advised": left}
    monkeypatch.setattr(processes, "run", lambda plants, *arguments: [(plant, dict(found)) for plant in plants])
    monkeypatch.setattr(data, "write", lambda root: None)
    out = tmp_path / "out.json"
    assert main(["--only", "step-2", "--out", str(out)]) == status
    written = json.loads(out.read_text())
    assert written["summary"]["named"] == 1 - status
    assert written["summary"]["predictions"] == {"tried": 2, "within 15%": 1, "bounds": 0}
    assert written["summary"]["of what is not advised"] == {"tried": 1, "within 15%": 1, "bounds": 0}
    assert written["summary"]["with wrong advice"] == ["step-2"]
    assert "+20%" in capsys.readouterr().out
