"""``python -m bench.gpu``: its processes, whatever ends them, and its variants of the kernels."""

import json
import os
import signal
import time
from collections.abc import Callable
from importlib import import_module, metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from accel.backends.cuda import compile
from bench.gpu import __main__ as command
from bench.gpu import gpus, plan, processes, variants
from bench.gpu.setting import Setting
from bench.machine import ROOT, versions
from tests.support.cuda import needs_compiler
from tests.support.fresh import Process

pytestmark = needs_compiler


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_without_a_device_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--plan"]) == 2
    assert "no CUDA device" in capsys.readouterr().err


OPTIONS = {"batch": 1, "rounds": 1, "steps": 1, "seconds": 0.1}
STEPS = {"good": 0, "not there": 0, "error": 0, "crash": 0, "hang": 0, "last": 0}


def told(of: Setting, part: str, **more: Any) -> dict[str, Any]:
    identity = {"commit": "a", "sources": "b", "card": "host", "options": OPTIONS}
    given = {"device": "cpu", "data": str(of.folder), "options": OPTIONS, "identity": identity, "limit": 60}
    return {**given, "part": part, "steps": STEPS, **more}


@pytest.fixture
def bad_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the processes run ``tests.support.bad_parts`` by the parts' names there."""
    monkeypatch.setattr(processes, "PART", ("-m", "tests.support.bad_parts"))


@pytest.mark.usefixtures("bad_parts")
def test_no_step_takes_others_with_it(four: Setting, tmp_path: Path, thorough: bool) -> None:
    how = "hang" if thorough else "crash"
    seconds = {"hang": 2, "crash": 60}[how]  # to start a process takes long on a busy machine
    found = processes.run(tmp_path / "part.json", told(four, how, limit=seconds), 200)
    assert found == json.loads((tmp_path / "part.json").read_text())
    steps = found["steps"]
    assert set(steps) == set(STEPS)
    assert (steps["good"], steps["last"]) == ({"images/s": 1}, {"images/s": 2})
    assert steps["not there"] == {"not installed": "that"}
    assert steps["hang" if how == "crash" else "crash"] == {"left out": "there is no such step with these options"}
    assert "ZeroDivisionError" in steps["error"]["failed"]
    ended = {"crash": f"status {-signal.SIGABRT}", "hang": "took too long, status 1"}[how]
    assert steps[how]["failed"] == f"its process was ended: {ended}"
    assert any(f"in {how}" in line for line in steps[how]["says"]), "every thread says where it is"
    assert not alive(int((tmp_path / "child").read_text()))
    assert {"versions", "commit", "machine", "device", "identity"} <= found.keys()


@pytest.mark.usefixtures("bad_parts")
def test_a_later_call_goes_on(four: Setting, tmp_path: Path) -> None:
    """Steps with results are not run again, unless they lacked a package and others are installed now."""
    file = tmp_path / "part.json"
    some = {"good": 0, "not there": 0}
    processes.run(file, told(four, "counted", steps=some), 100)
    found = processes.run(file, told(four, "counted", steps={"last": 0, "late": 1e9, **some}), 100)
    assert set(found["steps"]) == {"good", "not there", "last"}, "there is no time for the late one"
    assert (tmp_path / "ran").read_text().split() == ["good", "there", "last"]
    file.write_text(json.dumps({**found, "versions": {"DALI": None}}))
    assert plan.done(file, found["versions"]).keys() == {"good", "last"}
    again = processes.run(file, told(four, "counted", steps=some), 100)
    assert (tmp_path / "ran").read_text().split() == ["good", "there", "last", "there"]
    assert again["versions"] == found["versions"]


@pytest.mark.usefixtures("bad_parts")
def test_a_step_that_calls_ended_in(four: Setting, tmp_path: Path) -> None:
    """It is begun once more, and no third time."""
    file = tmp_path / "part.json"
    processes.run(file, told(four, "counted", steps={"good": 0}), 100)
    for times in (1, 2):
        file.write_text(json.dumps({**json.loads(file.read_text()), "running": "last"}))
        found = processes.run(file, told(four, "counted", steps={"last": 0}), 100)
        assert found["interrupted"] == {"last": times}
        assert "running" not in found
        if times == 1:
            assert found["steps"].pop("last") == {"images/s": 2}
            file.write_text(json.dumps(found))
    assert found["steps"]["last"] == {"failed": "its call was ended in it 2 times"}


def test_results_of_something_else_have_a_file_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = plan.identity(torch.device("cpu"), OPTIONS)
    assert plan.place(tmp_path, "part", ours) == tmp_path / "part.json"
    (tmp_path / "part.json").write_text(json.dumps({"identity": ours, "steps": {}}))
    assert plan.place(tmp_path, "part", json.loads(json.dumps(ours))) == tmp_path / "part.json"
    for name in ours:
        assert plan.place(tmp_path, "part", {**ours, name: "another"}) == tmp_path / "part.2.json", name
    (tmp_path / "part.json").write_text(json.dumps({"steps": {}}))
    assert plan.place(tmp_path, "part", ours) == tmp_path / "part.2.json", "an earlier version's"
    (tmp_path / "checkout" / "accel").mkdir(parents=True)
    digests = []
    for text in ("one", "two", "one"):
        (tmp_path / "checkout" / "accel" / "file.py").write_text(text)
        digests.append(plan.sources(tmp_path / "checkout"))
    assert digests[0] == digests[2] != digests[1], "uncommitted changes"


def test_the_plan_has_every_step(four: Setting) -> None:
    setting = four._replace(photos=four.photos * 128)
    for part, function in plan.PARTS.items():
        module, _, name = function.partition(":")
        yielded = [step for step, _ in getattr(import_module(module), name)(setting)]
        assert sorted(yielded) == sorted(each.step for each in plan.PLAN if each.part == part), part


def alive(pid: int) -> bool:
    """A process that has ended may be there until somebody asks how it did."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


ONE_PART = """
from bench.gpu import __main__ as command, plan, processes
plan.PLAN = tuple(plan.Planned("start", step, 0) for step in ("good", "hang", "last"))
plan.PARTS = {"start": "tests.support.bad_parts:hang"}
processes.PART = ("-m", "tests.support.bad_parts", "hang")
command.run()
"""


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.sweep)]
)
def test_the_command_is_ended(number: signal.Signals, image_folder: Path, tmp_path: Path) -> None:
    """In the midst of a part: what was measured is there, and no process of the part's is."""
    options = ("--plan", "--device", "cpu", "--batch", "1", "--out", str(tmp_path), "--data", str(image_folder))
    run = Process(ONE_PART, options)
    child = tmp_path / "child"
    try:
        until(lambda: child.exists() and child.read_text() != "", 100)
    finally:
        os.kill(run.pid, number)
        run.communicate(20)
    assert run.returncode == (-number if number == signal.SIGKILL else 1)
    until(lambda: not alive(int(child.read_text())), 20)
    found = json.loads((tmp_path / "start.host.json").read_text())
    assert found["steps"] == {"good": {"images/s": 1}}
    assert found["running"] == "hang"


def until(condition: Callable[[], bool], seconds: float) -> None:
    """Wait for it.

    Raises:
        TimeoutError: in vain.
    """
    ends = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > ends:
            raise TimeoutError
        time.sleep(0.05)


@pytest.mark.usefixtures("bad_parts")
def test_a_part_ends_at_its_limit(four: Setting, tmp_path: Path) -> None:
    found = processes.run(tmp_path / "part.json", told(four, "never"), 6)
    assert "stopped after 6 s" in found["steps"]["its start"]["failed"]
    assert not (tmp_path / "part.json").exists(), "the next call begins it"


def test_steps_that_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    ran: list[tuple[str, dict[str, float]]] = []

    def run(file: Path, told: dict[str, Any], limit: float, where: Path) -> dict[str, Any]:
        ran.append((file.stem, told["steps"]))
        bad = {"failed": "RED\nin line 7"} if told["part"] == "checks" else {"not installed": "it"}
        steps = plan.done(file, versions()) | dict.fromkeys(told["steps"], bad)
        file.write_text(json.dumps({"identity": told["identity"], "versions": versions(), "steps": steps}))
        return {"steps": steps}

    monkeypatch.setattr(processes, "run", run)
    assert command.main(["--device", "cpu", "--plan"]) == 2
    assert "--device cpu needs --out" in capsys.readouterr().err
    steps = (("start", "a", 1), ("emit", "b", 200), ("emit", "c", 20), ("path", "d", 100), ("start", "e", 2))
    monkeypatch.setattr(plan, "PLAN", tuple(plan.Planned(*each) for each in steps))
    given = ["--device", "cpu", "--out", str(tmp_path), "--data", str(tmp_path)]
    assert command.main(given) == 0
    assert not ran, "without a choice, the plan is shown"
    assert "emit | b | 200" in " ".join(capsys.readouterr().out.split())
    assert command.main([*given, "--plan", "--minutes", "1.5"]) == 0
    assert ran == [("start.host", {"a": 1}), ("emit.host", {"b": 200, "c": 20}), ("start.host", {"e": 2})]
    said = capsys.readouterr().out
    assert "emit: c: not installed: it" in said
    assert "on host" in said, "every call names the card"
    assert "4 not installed\n1 steps are left, which usually take 100 s" in said
    ran.clear()
    assert command.main([*given, "--plan"]) == 0
    assert ran == [("path.host", {"d": 100})], "it goes on where the call before ended"
    assert capsys.readouterr().out.endswith("5 not installed\n")
    ran.clear()
    assert command.main([*given, "--plan", "--rounds", "3", "--only", "emit", "--match", "c", "--patience", "3"]) == 0
    assert ran == [("emit.host.2", {"c": 60})], "with other options, into another file"
    monkeypatch.setattr(plan, "PLAN", (plan.Planned("checks", "kernels", 1),))
    assert command.main([*given, "--only", "checks", "--variant", "blocks=4"]) == 1
    assert ran[-1] == ("checks.blocks-4.host", {"kernels": 1})
    said = capsys.readouterr().out
    assert "FAILED: RED" in said
    assert said.endswith("1 failed: checks: kernels\n")
    assert "line 7" not in said, "a row is one line"


def test_backends_are_found_in_a_bare_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "before")
    processes.make_findable(tmp_path / "found")
    assert os.environ["PYTHONPATH"].split(os.pathsep) == [str(tmp_path / "found"), "before"]
    (made,) = metadata.distributions(path=[str(tmp_path / "found")])
    assert {each.name for each in made.entry_points.select(group="accel.backends")} == {
        "cpu",
        "cuda",
        "dali",
        "reference",
    }
    assert all(each.value.endswith("Backend") for each in made.entry_points)


def test_variants_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = dict(map(variants.parsed, ("subsequence=512", "blocks=4", "carveout=50", "launchers=1")))
    assert chosen.keys() == variants.VARIANTS.keys()
    for name, number in chosen.items():
        made = variants.made({name: number}, tmp_path / name)
        file = variants.VARIANTS[name][0]
        assert (made / file).read_text() != (ROOT / file).read_text()
        assert f"{number}" in (made / file).read_text()
        changed = [
            each
            for each in chosen
            if (made / (other := variants.VARIANTS[each][0])).read_text() != (ROOT / other).read_text()
        ]
        assert changed == [name]
    with pytest.raises(ValueError, match="no such variant"):
        variants.parsed("threads=4")
    monkeypatch.setitem(variants.VARIANTS, "blocks", ("accel/backends/cuda/shim.h", "THREADS", "{}"))
    with pytest.raises(LookupError, match="places for blocks"):
        variants.made({"blocks": 4}, tmp_path / "twice")


def test_a_carved_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = pytest.importorskip("cuda.bindings.driver")
    given: list[Any] = []
    good, bad = driver.CUresult.CUDA_SUCCESS, driver.CUresult.CUDA_ERROR_INVALID_VALUE
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(driver, "cuDeviceGet", lambda number: (good, f"device {number}"))
    monkeypatch.setattr(driver, "cuKernelSetAttribute", lambda *arguments: given.append(arguments) or (good,))
    kernel = SimpleNamespace(handle="handle")
    assert variants.carved(kernel, 50) is kernel
    assert given[0][1:] == (50, "handle", "device 3")
    monkeypatch.setattr(driver, "cuKernelSetAttribute", lambda *arguments: (bad,))
    with pytest.raises(RuntimeError, match="carveout=50"):
        variants.carved(kernel, 50)


KERNELS_VARIANTS = {"subsequence": (512, 1536, 2048), "blocks": (2, 4, 5)}


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "number"), [(name, each) for name, of in KERNELS_VARIANTS.items() for each in of])
def test_a_variant_fits_the_devices(name: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVRTC compiles all kernels, a multiprocessor holds as many blocks as are asked for unless shared memory is
    short, and only those that must have few registers spill."""
    pytest.importorskip("cuda.core", reason="NVRTC is used through cuda.core")
    monkeypatch.setattr(
        compile, "SOURCES", variants.made({name: number}, tmp_path / "made") / "accel" / "backends" / "cuda"
    )
    least = number if name == "blocks" else 3
    for arch in gpus.SHARED:
        for unit in compile.UNITS:
            for usage in compile.build(unit, arch)[1]:
                assert usage.registers * 256 * least <= 1 << 16, usage
                assert usage.shared <= 48 << 10, usage
                assert usage.spilled == 0 or least > 3, usage
                fit = (gpus.SHARED[arch] - (1 << 10)) // (usage.shared + (1 << 10))
                assert gpus.blocks_at_once(arch, usage.registers, usage.shared) >= min(least, fit), usage


@pytest.mark.sweep
@pytest.mark.parametrize("subsequence", [512, 1536, 2048])
def test_a_variant_runs(
    subsequence: int, image_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other subsequences and the same pixels: the kernels and what describes them to Python are the copy's."""
    few = ["--device", "cpu", "--batch", "2", "--rounds", "1", "--patience", "3", "--out", str(tmp_path)]
    only = ["--only", "decode", "--match", "photos, 1 at once", "--variant", f"subsequence={subsequence}"]
    assert command.main([*few, *only, "--data", str(image_folder)]) == 0
    found = json.loads((tmp_path / f"decode.subsequence-{subsequence}.host.json").read_text())
    assert found["identity"]["options"]["variant"] == {"subsequence": subsequence}
    assert found["kernels' sources"] != compile.key()
    assert found["steps"]["photos, 1 at once"]["images/s"] > 0
    assert "images/s" in capsys.readouterr().out
