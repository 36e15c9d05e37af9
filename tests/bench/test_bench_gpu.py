"""``python -m bench.gpu``: what its parts measure, here on the host; no timings are asserted."""

import gzip
import json
import subprocess
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torchvision import models

import accel
from accel.backends.cuda import device
from accel.backends.cuda.jpeg import Decoding
from accel.backends.cuda.jpeg.batch_fields import LAUNCHES
from accel.cli.error_stats import Different
from accel.runtime import prefetch
from bench import train
from bench.contestants.servers import SERVERS
from bench.gpu import (
    checks,
    decode,
    kernels,
    latency,
    path,
    peers,
    profiled,
    ranks,
    setting,
    sinking,
    start,
    sustained,
    training,
)
from bench.gpu.setting import NotInstalled, Setting, Step
from bench.machine import ROOT
from tests.support.cuda import needs_compiler

pytestmark = needs_compiler


def figures(part: Callable[[Setting], Iterator[Step]], of: Setting, *names: str) -> dict[str, dict[str, Any]]:
    """What the steps of these names give, by default all."""
    return {name: step() for name, step in part(of) if not names or name in names}


def test_the_kernels_are_measured(four: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "REPEATS", 1)
    found = figures(kernels.emit, four)
    assert len(found) == 4
    assert found["float32, NCHW"]["bytes"] > 4 * 3 * 224 * 224 * 4
    assert all(each["kernels GB/s"] > 0 for each in found.values())


def test_the_path_is_measured(four: Setting) -> None:
    found = figures(path.measure, four)
    assert {"plan", "decode on the host", "upload and kernels"} <= found.pop("by part, ms, the host decodes").keys()
    assert {*path.CONTESTANTS, "torchvision with Pillow, all cores"} == found.keys()
    assert all(each["images/s"] > 0 for each in found.values())


def test_the_decoder_is_measured(four: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "LARGE", (90, 120))
    monkeypatch.setattr(decode, "BATCHES", (1, 8, 64))
    found = figures(decode.measure, four)
    assert {"photos, 1 at once", "photos, 8 at once", "crops, 8 at once", "noise, 12 megapixels"} <= found.keys()
    assert "photos, 64 at once" not in found  # of four files
    for each in found.values():
        assert each["images/s"] > 0
        assert each["bytes"] > 100
        assert {"jpeg_tables", "jpeg_transform", "jpeg_pixels"} <= set(each["each, ms"]) <= set(LAUNCHES)
        assert sum(each["each, ms"].values()) == pytest.approx(each["kernels, ms"])


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


def test_checks_say_how_they_ended(four: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], **options: Any) -> Any:
        commands.append(command)
        assert (options["env"]["ACCEL_TEST_DEVICE"], options["env"]["ACCEL_REQUIRE_GPU"]) == ("cuda:0", "1")
        print("1 failed", file=options["stdout"], flush=True)
        if "conformance" in " ".join(command):
            raise subprocess.TimeoutExpired(command, options["timeout"])
        return SimpleNamespace(returncode=5 if "memcheck" in command else int("racecheck" in command))

    monkeypatch.setattr(checks.subprocess, "run", run)
    monkeypatch.setattr(checks.shutil, "which", lambda name: None)
    for name, needs in (
        ("memcheck", "compute-sanitizer"),
        ("conformance", "a GPU"),
        ("forks, streams, memory", "a GPU"),
    ):
        with pytest.raises(NotInstalled, match=needs):
            figures(checks.measure, four, name)
    monkeypatch.setattr(checks.shutil, "which", lambda name: f"/usr/bin/{name}")
    found = figures(checks.measure, four._replace(device=torch.device("cuda:0")))
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
    monkeypatch.setattr(training, "RUNS", [each for each in training.RUNS if each[2] is None])
    found = figures(training.measure, four)
    assert len(found) == 2
    assert all(each["images/s"] > 0 and 0 <= each["share waiting for data"] <= 1 for each in found.values())


def test_sinking_is_measured(four: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(train.MODELS, "small", models.shufflenet_v2_x0_5)
    monkeypatch.setattr(sinking, "MODELS", {"small": (2, 100)})
    monkeypatch.setattr(sinking, "EQUAL", 4)
    monkeypatch.setattr(sinking, "cores", lambda: 1)
    found = figures(sinking.measure, four)["small"]
    assert all(found[f"{way}, images/s"] > 0 for way in train.WAYS)
    assert (found["batch"], found["steps replayed"], found["reason"]) == (2, 0, "the step runs on the host")
    monkeypatch.setattr(accel, "sink", lambda *given, **named: lambda loader: [torch.zeros(2)] * 2)
    with pytest.raises(AssertionError, match=r"losses differ"):
        figures(sinking.measure, four)


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
    uses = {
        "plain": sustained.Loader(1),
        "half": sustained.LOADERS["accel, half"]._replace(workers=1, batch=2),
        "half before": sustained.LOADERS["accel, half, before it is sent"]._replace(workers=1),
        "channels_last": sustained.LOADERS["accel, channels_last"]._replace(workers=1),
        "files": sustained.LOADERS["accel, 20,000 files"]._replace(workers=1, copies=6),
        "torchvision": sustained.Loader(1, "torchvision"),
    }
    monkeypatch.setattr(sustained, "LOADERS", uses)
    monkeypatch.setattr(prefetch, "_LAUNCHERS", 3)
    monkeypatch.setattr(sustained, "ThreadPoolExecutor", lambda number: threads.append(number) or executor(number))
    found = figures(sustained.measure, four, "accel, recipes in memory", *uses)
    for name, each in found.items():
        assert each["images"] % each.get("batch", 4) == 0 < each["images/s"]
        assert name == "torchvision" or 0 <= each["share of time without a kernel"] <= 1
        assert each["main, CPU s a s"] > 0
    assert found["accel, recipes in memory"]["launchers"] == 3
    assert threads == [3]
    assert found["half"]["batch"] == 2
    assert found["plain"]["workers, CPU s a s"] >= 0
    assert found["plain"]["shares"].keys() == {"indexed", "sent in place"}
    assert {*peers.PEERS, *uses} <= {name for name, _ in sustained.measure(four)}
    made = sustained._reference.__wrapped__
    monkeypatch.setattr(sustained, "_reference", lambda *given: made(*given) + 1)
    with pytest.raises(Different):
        figures(sustained.measure, four, "plain")


def test_dali_under_accel_is_sustained(four: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("nvidia.dali")
    name = "accel, dali, exact=False"
    monkeypatch.setattr(sustained, "LOADERS", {name: sustained.LOADERS[name]._replace(workers=1)})
    assert 0 < figures(sustained.measure, four, name)[name]["mean"] < 1


def test_latency_is_measured(four: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = SERVERS[0]._replace(title="gone", modules=("no_such_module",))
    monkeypatch.setattr(latency, "SERVERS", (*SERVERS, gone))
    monkeypatch.setattr(latency, "SIZES", (1, 3))
    monkeypatch.setattr(latency, "LEAST", 2)
    names = ("accel.submit, cuda", "accel.submit, cpu", "torchvision v2, tensors")
    found = figures(latency.measure, four, *names)
    assert len(found) == len(names)
    for each in found.values():
        assert 0 < each["p50, ms, 1"] <= each["p99, ms, 1"]
        assert each["requests, 3"] >= 2
    with pytest.raises(NotInstalled, match=r"^no_such_module$"):
        figures(latency.measure, four, "gone")


@pytest.mark.parametrize("exact", [True, False])
def test_wrong_answers_are_not_timed(four: Setting, monkeypatch: pytest.MonkeyPatch, exact: bool) -> None:
    wrong = SERVERS[0]._replace(make=lambda device, pool: lambda files: torch.full((len(files), 3, 224, 224), 9.0))
    monkeypatch.setattr(latency, "SERVERS", [wrong._replace(exact=exact)])
    with pytest.raises(Different):
        figures(latency.measure, four)


@pytest.mark.sweep
def test_two_ranks_are_measured(four: Setting) -> None:
    found = ranks.together(four, sustained.Loader(1))
    assert [each["rank"] for each in found["ranks"]] == [0, 1]
    assert found["images/s"] == sum(each["images/s"] for each in found["ranks"])


def test_the_machine_and_its_link(four: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "LINKED", 1 << 20)
    found = figures(start.measure, four, "machine")["machine"]
    assert found["to the device, GB/s"] > 0
    assert found["to the host, GB/s"] > 0


def test_what_nsight_compute_says(four: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    for of, needs in ((four, "a GPU"), (four._replace(device=torch.device("cuda:0")), "ncu")):
        with monkeypatch.context() as nothing:
            nothing.setattr(profiled.shutil, "which", lambda name: None)
            with pytest.raises(NotInstalled, match=needs):
                figures(profiled.measure, of, "jpeg_segments")
    head = '"ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"'
    rows = [f'"{n}","k","Occupancy","Achieved Occupancy","%","{50 + n}"' for n in (0, 1)]
    text = "\n".join(["==PROF== connected", head, *rows, '"1","k","Occupancy","","",""'])
    assert profiled.figures(text) == {"Occupancy: Achieved Occupancy": "51 %"}
    assert profiled.figures("==PROF== nothing") == {}
    launched: list[str] = []
    with setting.launches(four.device) as spans:
        profiled.main("cpu", str(four.folder), "4")
    launched = [name for name, _ in spans]
    assert all(launched.count(name) >= 2 for name in profiled.KERNELS if name != "jpeg_segments")  # small files


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
