"""Predictions for a GPU: counts, what they are made into, and what the kernels take. Needs no GPU."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from accel.backends.cuda import compile
from accel.backends.cuda.jpeg.batch_fields import LAUNCHES
from bench.gpu import counts, decode, fused, gpus, predict, resources, sass
from bench.gpu.setting import Photo
from bench.machine import ROOT
from bench.pipelines import Draw
from tests.support.cuda import needs_compiler
from tests.support.helpers import jpeg

pytestmark = needs_compiler


def needs_toolkit(*files: str) -> None:
    for file in files:
        try:
            gpus.toolkit_file(file)
        except FileNotFoundError as error:
            pytest.skip(str(error))


_BY_AN_INDEX = {"jpeg_tables", "jpeg_segments", "jpeg_transform", "jpeg_pixels", "all"}


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
        assert [row[0].strip("`") for row in rows if row[0] != "all"] == [*LAUNCHES, "pass3"]
    for _, total, *pipes, _, warps in of_kernel[0]:
        assert float(total) == pytest.approx(sum(map(float, pipes)), abs=0.5)
        assert 4 <= int(warps) <= 16
    for name, whole, crop, made, later, *_ in of_kernel[1][:-1]:
        assert float(whole) >= float(crop) >= 0, name
        assert float(made) >= float(crop), name
        assert float(later) <= float(crop) or name.strip("`") in _BY_AN_INDEX  # small files have none
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
        ("FADD.FTZ R1, R2, R3 ;", "FMA"),
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


@pytest.mark.parametrize(("mnemonic", "rate"), gpus.RATES.items())
def test_rates_are_those_of_the_guide(mnemonic: str, rate: int) -> None:
    assert gpus.KINDS[gpus.kind_of(mnemonic)].busy[0] == 32 * gpus.SCHEDULERS / rate


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
