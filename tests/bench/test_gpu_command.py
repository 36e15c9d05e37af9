"""``python -m bench.gpu``: its processes, whatever ends them, and its variants of the kernels."""

import json
import os
import signal
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from accel.backends.cuda import compile
from bench.gpu import __main__ as command
from bench.gpu import gpus, processes, variants
from bench.gpu.setting import Setting
from bench.machine import ROOT
from tests.support.cuda import needs_compiler
from tests.support.fresh import Process

pytestmark = needs_compiler


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_without_a_device_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([]) == 2
    assert "no CUDA device" in capsys.readouterr().err


def told(of: Setting, part: str) -> dict[str, Any]:
    options = {"device": "cpu", "batch": 1, "rounds": 1, "steps": 1, "seconds": 0.1, "match": "", "limit": 2}
    function = f"tests.support.bad_parts:{part}"
    return {**options, "data": str(of.folder), "variant": {}, "part": part, "function": function}


def test_no_step_takes_others_with_it(four: Setting, tmp_path: Path, thorough: bool) -> None:
    how = "hang" if thorough else "crash"
    seconds = {"hang": 2, "crash": 60}[how]  # to start a process takes long on a busy machine
    found = processes.run(tmp_path / "part.json", {**told(four, how), "limit": seconds}, 200)
    assert found == json.loads((tmp_path / "part.json").read_text())
    assert found["complete"]
    steps = found["steps"]
    assert list(steps) == ["good", "not there", "error", how, "last"]
    assert (steps["good"], steps["last"]) == ({"images/s": 1}, {"images/s": 2})
    assert steps["not there"] == {"not installed": "that"}
    assert "ZeroDivisionError" in steps["error"]["failed"]
    ended = {"crash": f"status {-signal.SIGABRT}", "hang": "took too long, status 1"}[how]
    assert steps[how]["failed"] == f"its process was ended: {ended}"
    assert any(f"in {how}" in line for line in steps[how]["says"]), "every thread says where it is"
    assert not alive(int((tmp_path / "child").read_text()))
    assert {"versions", "commit", "machine", "device"} <= found.keys()


def alive(pid: int) -> bool:
    """A process that has ended may be there until somebody asks how it did."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


ONE_PART = """
from bench.gpu import __main__ as command
command.PARTS = {"start": command.Part("tests.support.bad_parts:hang", 100, 300)}
command.run()
"""


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.sweep)]
)
def test_the_command_is_ended(number: signal.Signals, image_folder: Path, tmp_path: Path) -> None:
    """In the midst of a part: what was measured is there, and no process of the part's is."""
    options = ("--device", "cpu", "--batch", "1", "--out", str(tmp_path), "--data", str(image_folder))
    run = Process(ONE_PART, options)
    child = tmp_path / "child"
    try:
        until(lambda: child.exists() and child.read_text() != "", 100)
    finally:
        os.kill(run.pid, number)
        run.communicate(20)
    assert run.returncode == (-number if number == signal.SIGKILL else 1)
    until(lambda: not alive(int(child.read_text())), 20)
    found = json.loads((tmp_path / "start.json").read_text())
    assert found["steps"]["good"] == {"images/s": 1}
    assert found["steps"]["hang"] == {"failed": "its process ended"}
    assert "last" not in found["steps"]
    assert "complete" not in found


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


def test_a_part_ends_at_its_limit(four: Setting, tmp_path: Path) -> None:
    found = processes.run(tmp_path / "part.json", told(four, "never"), 6)
    assert "stopped after 6 s" in found["steps"]["its start"]["failed"]


def test_parts_that_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    ran: dict[str, float] = {}

    def run(file: Path, options: dict[str, Any], limit: float, where: Path) -> dict[str, Any]:
        ran[file.stem] = limit
        steps = {"a": {"failed": "RED\nin line 7"} if file.stem == "start" else {"not installed": "it"}}
        return {"steps": {} if options["match"] else steps}

    monkeypatch.setattr(processes, "run", run)
    data = ["--device", "cpu", "--out", str(tmp_path), "--data", str(tmp_path)]
    assert command.main([*data, "--minutes", "5.01"]) == 1
    assert list(ran) == ["start", "decode", "path", "emit", "augment", "sink", "overlap", "quality"]
    assert max(ran.values()) <= 300.6
    said = capsys.readouterr().out
    assert "FAILED: RED" in said
    assert "line 7" not in said, "a row is one line"
    assert "sustained | left out: it may take 540 s" in " ".join(said.split())
    ran.clear()
    assert command.main([*data, "--only", "emit", "--only", "path", "--variant", "blocks=4", "--patience", "3"]) == 0
    assert ran == {"path.blocks-4": 360, "emit.blocks-4": 180}
    assert "not installed: it" in capsys.readouterr().out
    assert command.main([*data, "--only", "emit", "--match", "float 128"]) == 1
    assert list(ran)[-1] == "emit.float-128"
    assert "no such step" in capsys.readouterr().out


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
        assert (made / "accel" / "backends").resolve() == made / "backends", "what is changed is what is imported"
    with pytest.raises(ValueError, match="no such variant"):
        variants.parsed("threads=4")
    monkeypatch.setitem(variants.VARIANTS, "blocks", ("backends/cuda/shim.h", "THREADS", "{}"))
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
    monkeypatch.setattr(compile, "SOURCES", variants.made({name: number}, tmp_path / "made") / "backends" / "cuda")
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
    found = json.loads((tmp_path / f"decode.subsequence-{subsequence}.photos-1-at-once.json").read_text())
    assert found["variant"] == {"subsequence": subsequence}
    assert found["kernels' sources"] != compile.key()
    assert found["steps"]["photos, 1 at once"]["images/s"] > 0
    assert "images/s" in capsys.readouterr().out
