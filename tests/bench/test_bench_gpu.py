"""``python -m bench.gpu``: every command of it runs, here on the host; no timings are asserted."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torchvision import models

from accel.backends.cuda import compile
from accel.backends.cuda.jpeg import Decoding
from accel.backends.cuda.jpeg.decoder import KERNELS
from bench import train
from bench.gpu import __main__ as command
from bench.gpu import checks, counts, decode, fused, kernels, path, peers, predict, resources, sass, training
from bench.gpu.setting import Photo, Setting
from bench.machine import ROOT
from bench.pipelines import Draw
from tests.support.cuda import needs_compiler
from tests.support.helpers import jpeg

pytestmark = needs_compiler


def run(image_folder: Path, tmp_path: Path, *parts: str, status: int = 0) -> dict[str, Any]:
    chosen = [argument for part in parts for argument in ("--only", part)]
    out = tmp_path / "result.json"
    few = ["--batch", "2" if status else "4", "--rounds", "1", "--steps", "1", "--device", "cpu"]
    assert command.main(["--data", str(image_folder), "--out", str(out), *few, *chosen]) == status
    return json.loads(out.read_text())  # type: ignore[no-any-return]


def test_the_measurements(
    image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kernels, "REPEATS", 1)
    found = run(image_folder, tmp_path, "emit", "path", "quality")
    assert found["device"] == "host"
    assert {"versions", "commit", "machine", "data"} <= found.keys()
    assert found["emit"]["float32, NCHW"]["bytes"] > 4 * 3 * 224 * 224 * 4
    contestants = found["path"]["contestants"]
    assert all(each["images/s"] > 0 for name, each in contestants.items() if name.startswith("accel"))
    assert found["path"]["missing"].keys() == peers.PEERS.keys()
    assert {"plan", "decode on the host", "upload", "kernels"} <= found["path"]["the host decodes, by part, ms"].keys()
    assert found["quality"]["4:2:0"]["max"] == 0  # nvImageCodec's host mode
    assert "exact=False, photos" in capsys.readouterr().out


def test_the_decoder_is_measured(image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "LARGE", (90, 120))
    monkeypatch.setattr(decode, "BATCHES", (1, 8, 64))
    found = run(image_folder, tmp_path, "decode")["decode"]
    assert {"photos, 1 at once", "photos, 8 at once", "crops, 8 at once"} <= found["batches"].keys()
    assert "photos, 64 at once" not in found["batches"]  # of four files
    assert all(each["images/s"] > 0 and each["bytes"] > 100 for each in found["batches"].values())
    assert set(found["kernels, ms"]) == set(KERNELS)


@pytest.mark.sweep
def test_the_decoder_is_predicted(
    image_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Counts fit together; and the lines of the kernels that it knows are there."""
    pytest.importorskip("cuda.core", reason="NVRTC is used through cuda.core")
    try:
        sass.nvdisasm()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    monkeypatch.setattr(decode, "LARGE", (200, 300))
    assert predict.main(["--data", str(image_folder), "--batch", "4"]) == 0
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| `jpeg_")]
    assert [row[0][3:-1] for row in rows] == list(KERNELS)
    assert all(float(whole) >= float(crop) for _, whole, crop, *_ in rows)
    batch = predict.predicted([decode.whole_file(decode.encoded(np.zeros((64, 64, 3), np.uint8)))])
    (trips,) = batch.trips
    assert trips["keeping"]["symbols"] == 2 * 16 * 6  # in each of 16 MCUs of 4:2:0: a DC value and an end of block
    steps = counts.CASES.index("steps")
    assert trips["keeping"]["symbols"] >= trips["first"]["symbols"] >= trips["first"]["warps"][steps] > 0
    assert trips["rounds"] == 0  # threads beyond the end of the stream take no part


def test_a_wrong_decoder_is_not_measured(
    image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    read = Decoding.read
    monkeypatch.setattr(Decoding, "read", lambda *arguments: read(*arguments) ^ 1)
    assert "not Pillow's" in run(image_folder, tmp_path, "decode", status=1)["decode"]["failed"]
    assert "FAILED" in capsys.readouterr().out


def test_wrong_values_are_not_reported(
    image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pillow = path._pillow
    monkeypatch.setattr(path, "_pillow", lambda setting: lambda: pillow(setting)() + 1)
    assert "not torchvision's" in run(image_folder, tmp_path, "path", status=1)["path"]["failed"]
    assert "FAILED" in capsys.readouterr().out


def test_a_red_check_is_the_commands_status(
    image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(checks, "measure", lambda setting: {"tests": {"status": 1, "says": "1 failed"}})
    run(image_folder, tmp_path, "checks", status=1)
    assert "RED (1)" in capsys.readouterr().out


def test_checks_say_how_they_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def run(prefix: list[str], device: str, *arguments: str) -> dict[str, Any]:
        commands.append([*prefix, *arguments])
        return {"status": 0, "says": ""}

    monkeypatch.setattr(checks, "_pytest", run)
    on_device = Setting([], [], ROOT, torch.device("cuda:0"), 1, 1, ROOT)
    monkeypatch.setattr(checks.shutil, "which", lambda name: None)
    assert checks.measure(on_device)["memcheck"]["status"] is None
    monkeypatch.setattr(checks.shutil, "which", lambda name: f"/usr/bin/{name}")
    assert checks.measure(on_device)["racecheck"]["status"] == 0
    assert any("/usr/bin/compute-sanitizer" in each and "racecheck" in each for each in commands)
    named = [argument for each in commands for argument in each if argument.startswith("tests/")]
    assert len(named) > 5
    assert all((ROOT / name).exists() for name in named)


def test_training_is_measured(image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(train.MODELS, "small", models.shufflenet_v2_x0_5)
    monkeypatch.setattr(training, "MODELS", ("small",))
    monkeypatch.setattr(training, "WARM_UP", 2)
    monkeypatch.setattr(training, "RUNS", training.RUNS[:2])
    found = run(image_folder, tmp_path, "training")["training"]["small"]
    assert all(each["images/s"] > 0 and 0 <= each["share waiting for data"] <= 1 for each in found.values())


def test_policies_are_measured_beside_the_plain_pipeline(
    image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kernels, "REPEATS", 1)
    found = run(image_folder, tmp_path, "augment")["augment"]
    assert found.keys() == kernels.POLICIES.keys()
    assert found["plain"]["path, times plain"] == found["plain"]["kernels, times plain"] == 1
    assert found["plain"]["launches"] == ["coefficients", "pass3"]
    assert found["RandAugment"]["launches"] == ["coefficients", "pass3", "effects", "effects", "pass3"]
    pixels = 4 * 3 * 224 * 224
    blurred = found["GaussianBlur, 23 x 23"]["bytes"] - found["plain"]["bytes"]
    assert blurred == 4 * pixels  # written by the first pass, read and written by the blur, read by the last pass
    assert found["plain"]["bytes"] > 4 * pixels
    assert "x plain, 5 launches" in capsys.readouterr().out


def test_a_policy_with_wrong_values_is_not_reported(
    image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = kernels.batch
    monkeypatch.setattr(kernels, "batch", lambda *arguments: made(*arguments) + 1)
    assert "not torchvision's" in run(image_folder, tmp_path, "augment", status=1)["augment"]["failed"]


def test_the_loop_is_traced(image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(train.MODELS, "small", models.shufflenet_v2_x0_5)
    monkeypatch.setattr(training, "MODEL", "small")
    monkeypatch.setattr(training, "WARM_UP", 2)
    found = run(image_folder, tmp_path, "overlap")["overlap"]
    assert found["steps"] == 1
    trace = json.loads(gzip.decompress((tmp_path / found["trace"]).read_bytes()))
    assert len(trace["traceEvents"]) > 100
    assert "share of them beside training" not in found, "nothing ran on a device"


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


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_without_a_device_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([]) == 2
    assert "no CUDA device" in capsys.readouterr().err


# -- what is known without a GPU ----------------------------------------------------------------------------


def test_resources_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def build(unit: str, arch: str) -> tuple[bytes, list[compile.Usage]]:
        return b"", [compile.Usage(name, 80 if arch == "sm_80" else 61, 0, 16144) for name in compile.UNITS[unit]]

    monkeypatch.setattr(compile, "build", build)
    assert resources.main(["--out", str(tmp_path / "kernels.json")]) == 0
    found = json.loads((tmp_path / "kernels.json").read_text())
    assert found["kernels"].keys() == {name for names in compile.UNITS.values() for name in names}
    assert found["kernels"]["pass3"]["sm_90"] == {"registers": 61, "spilled": 0, "shared": 16144, "blocks": 4}
    assert "| `pass3` | 80, 61, 61 | 0 | 16,144 | 3, 4, 4 |" in capsys.readouterr().out


def test_what_bounds_the_blocks_of_a_multiprocessor() -> None:
    assert resources.blocks(compile.Usage("registers", 80, 0, 0), "sm_90") == 3
    assert resources.blocks(compile.Usage("shared", 32, 0, 47 << 10), "sm_80") == 3
    assert resources.blocks(compile.Usage("threads", 16, 0, 0), "sm_100") == 8


def test_the_reports_in_the_repository_are_of_these_kernels() -> None:
    reported = json.loads((ROOT / "bench" / "results" / "kernels.json").read_text())
    assert reported["kernels"].keys() == {name for names in compile.UNITS.values() for name in names}


@pytest.mark.sweep
def test_the_fused_pass_is_predicted(image_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("cuda.core", reason="NVRTC is used through cuda.core")
    try:
        sass.nvdisasm()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    assert fused.main(["--data", str(image_folder), "--count", "2"]) == 0
    assert "million warp instructions" in capsys.readouterr().out
    small, large = (
        fused.predicted([Photo(name, data, Draw((0, 0, *size)))])
        for name, data, size in (("small", jpeg(230, 240), (230, 220)), ("large", jpeg(460, 450), (440, 450)))
    )
    assert 0.05 < small.code < small.ptx < large.ptx < 3 * small.ptx
    assert small.moved == 3 * (230 * 220 + 4 * 224 * 224)
