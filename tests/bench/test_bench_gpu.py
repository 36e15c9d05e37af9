"""``python -m bench.gpu``: every command of it runs, here on the host; no timings are asserted."""

import gzip
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torchvision import models

from accel.backends.cuda import cache, compile, device
from accel.backends.cuda.jpeg import Decoding
from accel.backends.cuda.jpeg.decoder import KERNELS
from accel.cli.error_stats import Different
from accel.codec import engines
from accel.runtime import prefetch
from bench import train
from bench.gpu import __main__ as command
from bench.gpu import (
    checks,
    counts,
    decode,
    fused,
    gpus,
    kernels,
    path,
    peers,
    predict,
    processes,
    resources,
    sass,
    setting,
    start,
    sustained,
    training,
    variants,
)
from bench.gpu.setting import NotInstalled, Photo, Setting, Step
from bench.machine import ROOT
from bench.pipelines import Draw
from tests.support.cuda import needs_compiler
from tests.support.helpers import jpeg

pytestmark = needs_compiler
HOST = torch.device("cpu")


@pytest.fixture
def four(paths: list[str], image_folder: Path, tmp_path: Path) -> Setting:
    """A setting of four photos, for the shortest measurements."""
    return Setting(setting.photos(paths, 4), paths, image_folder, HOST, 1, 1, 0.1, 60, tmp_path)


def needs_toolkit(*files: str) -> None:
    for file in files:
        try:
            gpus.toolkit_file(file)
        except FileNotFoundError as error:
            pytest.skip(str(error))


def figures(part: Callable[[Setting], Iterator[Step]], of: Setting, *names: str) -> dict[str, dict[str, Any]]:
    """What the steps of these names give, by default all."""
    return {name: step() for name, step in part(of) if not names or name in names}


# -- what is measured ---------------------------------------------------------------------------------------


def test_the_kernels_are_measured(four: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "REPEATS", 1)
    found = figures(kernels.emit, four)
    assert len(found) == 4
    assert found["float32, NCHW"]["bytes"] > 4 * 3 * 224 * 224 * 4
    assert all(each["kernels GB/s"] > 0 for each in found.values())


def test_the_path_is_measured(four: Setting) -> None:
    found = figures(path.measure, four)
    assert {"plan", "decode on the host", "upload", "kernels"} <= found.pop("by part, ms, the host decodes").keys()
    assert {*path.CONTESTANTS, "torchvision with Pillow, all cores"} == found.keys()
    assert all(each["images/s"] > 0 for each in found.values())
    assert found["accel, exact, decoded on the device"]["max"] == 0


def test_quality_is_measured(four: Setting) -> None:
    assert figures(decode.quality, four, "4:2:0")["4:2:0"]["max"] == 0  # nvImageCodec's host mode


def test_the_decoder_is_measured(four: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "LARGE", (90, 120))
    monkeypatch.setattr(decode, "BATCHES", (1, 8, 64))
    found = figures(decode.measure, four)
    assert {"photos, 1 at once", "photos, 8 at once", "crops, 8 at once", "noise, 12 megapixels"} <= found.keys()
    assert "photos, 64 at once" not in found  # of four files
    for each in found.values():
        assert each["images/s"] > 0
        assert each["bytes"] > 100
        assert {"jpeg_tables", "jpeg_transform", "jpeg_pixels"} <= set(each["each, ms"]) <= set(KERNELS)
        assert sum(each["each, ms"].values()) == pytest.approx(each["kernels, ms"])


@pytest.mark.sweep
def test_the_decoder_is_predicted(
    image_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Counts fit together; and the lines of the kernels that it knows are there."""
    pytest.importorskip("cuda.core", reason="NVRTC is used through cuda.core")
    needs_toolkit("bin/nvdisasm", "include/cuda_occupancy.h")
    monkeypatch.setattr(decode, "LARGE", (200, 300))
    assert predict.main(["--data", str(image_folder), "--batch", "4", "--fused", "2", "--lines", "3"]) == 0
    mixes, kernels, batches, lines = (part.splitlines() for part in capsys.readouterr().out.strip().split("\n\n"))
    assert len(lines) == 3
    of_kernel = [[line[2:-2].split(" | ") for line in part[2:]] for part in (mixes, kernels)]
    for rows in of_kernel:
        assert [row[0].strip("`") for row in rows if row[0] != "all"] == [*KERNELS, "pass3"]
    for _, total, *pipes, _, warps in of_kernel[0]:
        assert float(total) == pytest.approx(sum(map(float, pipes)), abs=0.5)
        assert 4 <= int(warps) <= 16
    for name, whole, crop, made, later, *_ in of_kernel[1][:-1]:
        assert float(whole) >= float(crop) or name == "`jpeg_segments`", name
        assert float(made) >= float(crop) >= 0
        assert later == "0.00" or name.strip("`") in {
            "jpeg_tables",
            "jpeg_segments",
            "jpeg_transform",
            "jpeg_pixels",
            "all",
        }
    for row in of_kernel[1]:
        assert row[-1] == "", "what is measured"
        ranges = [tuple(map(float, cell.split(" to "))) for cell in row if " to " in cell]
        assert ranges
        assert all(0 <= low <= high for low, high in ranges)
    assert len(batches) > 2
    wanted = decode.whole_file(decode.encoded(np.zeros((64, 64, 3), np.uint8)))
    monkeypatch.setattr(gpus, "UPLOAD", len(wanted.data) * np.array([2.0, 1.0]))
    pass3: Any = SimpleNamespace(seconds=lambda gpu, photos: np.array([0.25, 0.75]))
    shown = predict.batches({"one": [wanted]}, pass3)
    ((_, _, _, _, alone, rates, *_),) = shown.rows
    assert rates == "1 to 2", "a batch's copy overlaps with the kernels of the one before"
    assert [float(value) // 1 for value in str(alone).split(" to ")] == [750, 1750], "and is waited for"
    batch = predict.predicted([wanted])
    (trips,) = batch.trips
    assert trips["keeping"]["symbols"] == 2 * 16 * 6  # in each of 16 MCUs of 4:2:0: a DC value and an end of block
    steps = counts.CASES.index("steps")
    assert trips["keeping"]["symbols"] >= trips["first"]["symbols"] >= trips["first"]["warps"][steps] > 0
    assert trips["rounds"] == 0  # threads beyond the end of the stream take no part


def test_a_wrong_decoder_is_not_measured(four: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    read = Decoding.read
    monkeypatch.setattr(Decoding, "read", lambda *arguments: read(*arguments) ^ 1)
    with pytest.raises(RuntimeError, match="not Pillow's"):
        figures(decode.measure, four, "crops, 1 at once")


def test_wrong_values_are_not_reported(four: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (path, kernels, start, sustained):
        made = module.batch  # type: ignore[attr-defined]
        monkeypatch.setattr(module, "batch", lambda *arguments, made=made: made(*arguments) + 1)
    with pytest.raises(AssertionError, match="not torchvision's"):
        figures(path.measure, four, "accel, exact, the host decodes")
    with pytest.raises(AssertionError, match="not torchvision's"):
        figures(kernels.augment, four, "plain")
    with pytest.raises(AssertionError, match="not torchvision's"):
        figures(start.measure, four, "one batch")
    with pytest.raises(Different):
        figures(sustained.measure, four, "accel, recipes in memory")


def test_the_host_is_not_measured_under_nvimagecodecs_name(four: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "has_nvimgcodec", lambda: False)
    left_out = [
        *((part, name) for part in (path.measure, training.measure, sustained.measure) for name, _ in part(four)),
        (decode.quality, "photos"),
    ]
    for part, name in left_out:
        if "exact=False" in name or part is decode.quality:
            with pytest.raises(NotInstalled, match="nvImageCodec"):
                figures(part, four, name)


def test_checks_say_how_they_ended(four: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], **options: Any) -> Any:
        commands.append(command)
        assert options["env"]["ACCEL_TEST_DEVICE"] == "cpu"
        print("1 failed", file=options["stdout"], flush=True)
        if "conformance" in " ".join(command):
            raise subprocess.TimeoutExpired(command, options["timeout"])
        return SimpleNamespace(returncode=5 if "memcheck" in command else int("racecheck" in command))

    monkeypatch.setattr(checks.subprocess, "run", run)
    monkeypatch.setattr(checks.shutil, "which", lambda name: None)
    with pytest.raises(NotInstalled, match="compute-sanitizer"):
        figures(checks.measure, four, "memcheck")
    monkeypatch.setattr(checks.shutil, "which", lambda name: f"/usr/bin/{name}")
    found = figures(checks.measure, four)
    assert found["kernels"] == {"status": 0, "says": ["1 failed"]}
    assert found["racecheck"]["failed"] == "pytest: 1"
    assert found["memcheck"]["failed"] == "pytest: 5", "there was nothing to run"
    assert found["conformance"]["failed"] == "pytest: stopped after 55 s"
    assert any("/usr/bin/compute-sanitizer" in each and "racecheck" in each for each in commands)
    named = [argument for each in commands for argument in each if argument.startswith("tests/")]
    assert "tests/backends/cuda/test_submit_gpu.py" in named
    assert all((ROOT / name).exists() for name in named)


def test_training_is_measured(four: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(train.MODELS, "small", models.shufflenet_v2_x0_5)
    monkeypatch.setattr(training, "MODELS", ("small",))
    monkeypatch.setattr(training, "WARM_UP", 2)
    monkeypatch.setattr(training, "RUNS", training.RUNS[:2])
    found = figures(training.measure, four)
    assert len(found) == 2
    assert all(each["images/s"] > 0 and 0 <= each["share waiting for data"] <= 1 for each in found.values())


def test_policies_are_measured_beside_the_plain_pipeline(four: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "REPEATS", 1)
    found = figures(kernels.augment, four)
    assert found.keys() == kernels.POLICIES.keys()
    assert found["plain"]["path, times plain"] == found["plain"]["kernels, times plain"] == 1
    assert found["plain"]["launches"] == ["coefficients", "pass3"]
    assert found["RandAugment"]["launches"] == ["coefficients", "pass3", "effects", "effects", "pass3"]
    pixels = 4 * 3 * 224 * 224
    blurred = found["GaussianBlur, 23 x 23"]["bytes"] - found["plain"]["bytes"]
    assert blurred == 4 * pixels  # written by the first pass, read and written by the blur, read by the last pass
    assert found["plain"]["bytes"] > 4 * pixels


def test_the_loop_is_traced(four: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(train.MODELS, "small", models.shufflenet_v2_x0_5)
    monkeypatch.setattr(training, "MODEL", "small")
    monkeypatch.setattr(training, "WARM_UP", 2)
    (found,) = figures(training.overlap, four).values()
    assert found["steps"] == 1
    trace = json.loads(gzip.decompress((tmp_path / found["trace"]).read_bytes()))
    assert len(trace["traceEvents"]) > 100
    assert "share of them beside training" not in found, "nothing ran on a device"


def test_what_is_sustained(four: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    threads, executor = list[int](), sustained.ThreadPoolExecutor
    monkeypatch.setattr(sustained, "WORKERS", (1,))
    monkeypatch.setattr(prefetch, "_LAUNCHERS", 3)
    monkeypatch.setattr(sustained, "ThreadPoolExecutor", lambda number: threads.append(number) or executor(number))
    found = figures(sustained.measure, four, "accel, recipes in memory", "accel, DataLoader, 1 workers")
    for each in found.values():
        assert each["images"] % 4 == 0 < each["images/s"]
        assert 0 <= each["share of time without a kernel"] <= 1
        assert each["main, CPU s a s"] > 0
    assert found["accel, recipes in memory"]["launchers"] == 3
    assert threads == [3]
    assert found["accel, DataLoader, 1 workers"]["workers, CPU s a s"] >= 0
    assert {*peers.PEERS, "torchvision, DataLoader, 1 workers"} <= {name for name, _ in sustained.measure(four)}


@pytest.mark.filterwarnings("ignore:The image decoding and encoding")  # of torchvision 0.29
def test_peers_are_sustained(four: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    assert figures(sustained.measure, four, "torchvision on the device")["torchvision on the device"]["mean"] < 0.1
    monkeypatch.setattr(sustained, "find_spec", lambda name: name)
    with pytest.raises(NotInstalled, match="driver"):
        figures(sustained.measure, four, "CV-CUDA")
    monkeypatch.setattr(sustained, "find_spec", lambda name: None)
    with pytest.raises(NotInstalled, match="torchcodec"):
        figures(sustained.measure, four, "TorchCodec on the device")


def white(of: Setting) -> peers.Batches:
    while True:
        yield torch.ones(4, 3, 224, 224)


@pytest.mark.parametrize("own_draws", [False, True])
def test_a_peer_that_makes_other_pictures(four: Setting, monkeypatch: pytest.MonkeyPatch, own_draws: bool) -> None:
    monkeypatch.setattr(sustained, "PEERS", {"white": (white, (), own_draws)})
    with pytest.raises(Different):
        figures(sustained.measure, four, "white")


def test_dali_is_sustained(four: Setting) -> None:
    pytest.importorskip("nvidia.dali")
    assert figures(sustained.measure, four, "DALI, 65% by the hardware")["DALI, 65% by the hardware"]["own draws"]


def test_a_start(four: Setting) -> None:
    found = figures(start.measure, four, "packages", "backends", "one batch")
    assert found["packages"]["torch"] == metadata.version("torch")
    assert found["backends"]["cpu"] == "runs"
    assert found["one batch"]["equal"]


# -- clocks -------------------------------------------------------------------------------------------------


def test_kernels_are_timed_by_events_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each launch between two events of the stream, of which nobody asks anything before the end."""
    done: list[str] = []
    clock = iter(range(100))

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            self.at = next(clock)

        def elapsed_time(self, other: "Event") -> float:
            assert done[-1] == "synchronize"
            return 1000.0 * (other.at - self.at)

    def launch(self: Any, kernel: str, *arguments: int) -> None:
        done.append(kernel)

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: done.append("synchronize"))
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: done.append("pause"))
    monkeypatch.setattr(device.CudaDevice, "launch", launch)
    of = torch.device("cuda:0")
    gpu = device.CudaDevice(of)
    with setting.launches(of) as spans:
        gpu.launch("first", 1, 2, 3)
        gpu.launch("second", 1, 2, 3)
    assert done == ["first", "second", "synchronize"]
    assert spans == [("first", (1.0, 2.0)), ("second", (3.0, 4.0))]
    assert device.CudaDevice.launch is launch
    done.clear()
    assert setting.device_seconds(lambda: gpu.launch("third", 1, 2, 3), of) == 1.0
    assert done == ["synchronize", "pause", "third", "synchronize"], "the device begins when all is queued"


def test_the_share_of_time_without_a_kernel() -> None:
    assert setting.standing_still([(0.0, 2.0), (6.0, 8.0), (1.0, 3.0)]) == pytest.approx(3 / 8)
    assert setting.standing_still([]) == 1


def test_what_a_trace_says() -> None:
    """10 of pass3's 40 us and 20 of effects' 20 us lie beside training; the device stands still for 30 of 130."""
    kernels = [
        ("void at::native::vectorized()", (0.0, 30.0)),
        ("pass3", (20.0, 60.0)),
        ("sm90_xmma_gemm", (90.0, 120.0)),
        ("effects", (100.0, 120.0)),
        ("Memcpy HtoD (Pinned -> Device)", (50.0, 55.0)),
        ("Memcpy DtoH (Device -> Pinned)", (110.0, 130.0)),
    ]
    found = training.summary(kernels, 2)
    assert found == {
        "ms a step": pytest.approx(0.065),
        "accel's kernels, ms a step": pytest.approx(0.03),
        "share of them beside training": pytest.approx(30 / 60),
        "share of time the device stands still": pytest.approx(30 / 130),
    }
    assert training.summary([], 2) == {}


# -- the command --------------------------------------------------------------------------------------------


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
    found = processes.run(tmp_path / "part.json", told(four, how), 200)
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


def test_a_part_ends_at_its_limit(four: Setting, tmp_path: Path) -> None:
    begin = time.monotonic()
    found = processes.run(tmp_path / "part.json", told(four, "never"), 6)
    assert time.monotonic() - begin < 30
    assert "stopped after 6 s" in found["steps"]["its start"]["failed"]


def test_parts_that_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    ran: dict[str, float] = {}

    def run(file: Path, options: dict[str, Any], limit: float, where: Path) -> dict[str, Any]:
        ran[file.stem] = limit
        steps = {"a": {"failed": "RED"} if file.stem == "start" else {"not installed": "it"}}
        return {"steps": {} if options["match"] else steps}

    monkeypatch.setattr(processes, "run", run)
    data = ["--device", "cpu", "--out", str(tmp_path), "--data", str(tmp_path)]
    assert command.main([*data, "--minutes", "5.01"]) == 1
    assert list(ran) == ["start", "decode", "path", "emit", "augment", "overlap", "quality"]
    assert max(ran.values()) <= 300.6
    said = capsys.readouterr().out
    assert "FAILED: RED" in said
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


@pytest.mark.sweep
def test_a_variant_runs(image_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Other subsequences and the same pixels: the kernels and what describes them to Python are the copy's."""
    few = ["--device", "cpu", "--batch", "2", "--rounds", "1", "--patience", "3", "--out", str(tmp_path)]
    only = ["--only", "decode", "--match", "photos, 1 at once", "--variant", "subsequence=2048"]
    assert command.main([*few, *only, "--data", str(image_folder)]) == 0
    found = json.loads((tmp_path / "decode.subsequence-2048.photos-1-at-once.json").read_text())
    assert found["variant"] == {"subsequence": 2048}
    assert found["kernels' sources"] != cache.key()
    assert found["steps"]["photos, 1 at once"]["images/s"] > 0
    assert "images/s" in capsys.readouterr().out


# -- what is known without a GPU ----------------------------------------------------------------------------


def test_resources_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def build(unit: str, arch: str) -> tuple[bytes, list[compile.Usage]]:
        return b"", [compile.Usage(name, 80 if arch == "sm_80" else 61, 0, 16144) for name in compile.UNITS[unit]]

    needs_toolkit("include/cuda_occupancy.h")
    monkeypatch.setattr(compile, "build", build)
    assert resources.main(["--out", str(tmp_path / "kernels.json")]) == 0
    found = json.loads((tmp_path / "kernels.json").read_text())
    assert found["kernels"].keys() == {name for names in compile.UNITS.values() for name in names}
    assert found["kernels"]["pass3"]["sm_90"] == {"registers": 61, "spilled": 0, "shared": 16144, "blocks": 4}
    assert "| `pass3` | 80, 61, 61 | 0 | 16,144 | 3, 4, 4 |" in capsys.readouterr().out


def test_what_bounds_the_blocks_of_a_multiprocessor() -> None:
    needs_toolkit("include/cuda_occupancy.h")
    assert gpus.blocks_at_once("sm_90", 80, 0) == 3, "registers"
    assert gpus.blocks_at_once("sm_80", 32, 47 << 10) == 3, "shared memory"
    assert gpus.blocks_at_once("sm_100", 16, 0) == 8, "threads"


@pytest.mark.parametrize(
    ("line", "pipe"),
    [
        ("IMAD.MOV.U32 R8, RZ, RZ, 0x1 ;", "FMA"),
        ("@!P0 IADD3 R1, R2, R3, RZ ;", "ALU"),
        ("LDS.U8 R1, [R2] ;", "LSU"),
        ("@P1 ST.E.64 desc[UR4][R2.64], R4 ;", "LSU"),
        ("POPC R1, R2 ;", "XU"),
        ("@!UP0 UIADD3 UR4, UR5, UR6, URZ ;", "uniform"),
        ("BSYNC B0 ;", "CBU"),
        ("NOP ;", None),
        ("BRA `(.L_x_3);", None),
    ],
)
def test_an_instruction_has_a_pipe(line: str, pipe: str | None) -> None:
    place = '\t//## File "/a/b.cu", line 7'
    found = sass._chains(f"{place}\n        /*00b0*/                   {line}\n")
    assert {chain: dict(zip(gpus.PIPES, gpus.pipes(kinds), strict=True)) for chain, kinds in found.items()} == (
        {} if pipe is None else {(("b.cu", 7),): {name: float(name == pipe) for name in gpus.PIPES}}
    )


def test_what_binds_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The busiest pipe of many warps; the chain of a lone one; memory; and blocks that are there at once."""
    monkeypatch.setattr(gpus, "resident", lambda kernel: 8)
    gpu, many, each = gpus.GPUS["H100"], 1 << 20, np.eye(len(gpus.KINDS))
    kind = gpus.kind_of

    def low(mix: np.ndarray, blocks: int, moved: float = 0, chain: np.ndarray | None = None) -> float:
        return float(gpus.seconds(gpu, mix, "any", blocks, moved, chain)[0] - gpus.LAUNCH[0])

    alu, imad, load = (1e9 * each[kind(name)] for name in ("IADD3", "IMAD", "LDS"))
    second = 132 * 4 * gpu.hertz[0]
    assert low(alu, many) == pytest.approx(2e9 / second)
    assert low(alu + imad, many) == pytest.approx(2e9 / second), "side by side"
    assert low(load, many) == pytest.approx(4e9 / second)
    assert low(alu + imad + load / 2, many) == pytest.approx(2.5e9 / second), "issued one after the other"
    assert (gpus.bound(alu), gpus.bound(load + alu), gpus.bound(alu + imad + load / 2)) == ("ALU", "LSU", "issue")
    assert low(alu, 1) == pytest.approx(1e9 * 4 * 0.5 / 8 / gpu.hertz[0]), "a block alone"
    assert low(alu / 1e6, many, chain=alu) == pytest.approx(1e9 * 4 * 0.5 / gpu.hertz[0])
    assert low(alu, many, moved=gpu.bandwidth[0]) == pytest.approx(1)
    one, two = gpus.seconds(gpu, alu, "any", many, 0)
    monkeypatch.setattr(gpus, "resident", lambda kernel: 1)
    assert gpus.seconds(gpu, alu, "any", many, 0)[1] > two > one


def test_the_reports_in_the_repository_are_of_these_kernels() -> None:
    reported = json.loads((ROOT / "bench" / "results" / "kernels.json").read_text())
    assert reported["kernels"].keys() == {name for names in compile.UNITS.values() for name in names}


@pytest.mark.sweep
def test_the_fused_pass_is_predicted() -> None:
    pytest.importorskip("cuda.core", reason="NVRTC is used through cuda.core")
    needs_toolkit("bin/nvdisasm")
    small, large = (
        fused.predicted([Photo(name, data, Draw((0, 0, *size)))])
        for name, data, size in (("small", jpeg(230, 240), (230, 220)), ("large", jpeg(460, 450), (440, 450)))
    )
    assert 50_000 < small.code.sum() < small.ptx < large.ptx < 3 * small.ptx
    assert small.moved == 3 * (230 * 220 + 4 * 224 * 224)
