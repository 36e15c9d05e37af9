"""The kernels of the device's JPEG decoder: what they leave of intact and of damaged files, in any order of threads."""

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import functional as F

import accel
from accel.backends.cuda import compile, host
from accel.backends.cuda import jpeg as cuda_jpeg
from accel.backends.cuda.declarations import constant
from accel.backends.cuda.jpeg import layout
from accel.backends.cuda.jpeg.batch_fields import FEW
from bench.fuzz.coder import SAMPLINGS, Coder, random_blocks
from bench.fuzz.files import encode, picture, pillow
from rig.races import ORDERS, built_with
from tests.support import inside
from tests.support.cuda import DEVICE, host_only, needs_compiler, on_device
from tests.support.jpeg import drifting, lies, shape
from tests.support.processes import ROOT

pytestmark = needs_compiler

Box = tuple[int, int, int, int]


class Found(NamedTuple):
    """The memory that the kernels left behind of one picture."""

    told: Any
    memory: dict[str, np.ndarray]
    pixels: np.ndarray

    @property
    def state(self) -> Any:
        return self.memory["state"].view(layout.STATE)[0]


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function: files -> what was found of each, in one batch."""
    seen = inside.executions(monkeypatch)

    def run(files: Sequence[bytes], *, all_flagged: bool = False, box: Box | None = None) -> list[Found]:
        engine = inside.engine(DEVICE)
        sizes = [shape(data) for data in files]
        if box is not None:
            sizes = [(*box[2:], channels) for *_, channels in sizes]
        boxes = [box or (0, 0, height, width) for height, width, _ in sizes]
        wanted = [cuda_jpeg.Request(data, box, c) for data, box, (*_, c) in zip(files, boxes, sizes, strict=True)]
        with engine.device.enter():
            decoding = engine.jpeg.decode(wanted)
        assert decoding.flagged() == (list(range(len(files))) if all_flagged else [])
        execution = seen.pop()
        memory, batch = (
            execution.work.memory.cpu().numpy()[execution.finished.summary.working :],
            execution.finished.batch,
        )
        assert batch is not None
        found: dict[int, Found] = {}
        for place, number in enumerate(decoding.numbers().tolist()):
            own = {
                name: memory[offsets[place] : offsets[place] + lengths[place]]
                for name, (offsets, lengths) in batch.pieces.items()
            }
            pixels = decoding.read(number, int(np.prod(sizes[number]))).reshape(sizes[number])
            found[number] = Found(batch.pictures[place], own, pixels)
        return [found[number] for number in range(len(files))]

    return run


FILES = {
    "444": encode(picture("smooth", 61, 83), subsampling=0, quality=95),
    "422": encode(picture("smooth", 50, 47), subsampling=1, optimize=True),
    "420": encode(picture("noise", 75, 66), subsampling=2, quality=97),
    "grey": encode(picture("smooth", 90, 81, 1), quality=99),
    "intervals": encode(picture("smooth", 75, 90), subsampling=2, quality=90, restart_marker_blocks=3),
    "mcus": encode(picture("binary", 40, 44), subsampling=0, quality=60, restart_marker_blocks=1),
    "rgb": encode(picture("noise", 70, 90), keep_rgb=True, quality=90),
    "odd": Coder().file((33, 71), [(1, 4, 1), (2, 2, 1), (3, 4, 1)], random_blocks(97)),
    "long codes": Coder((2, 3, 4, *(16,) * 159)).file((40, 56), [(1, 1, 2), (2, 1, 1), (3, 1, 1)], random_blocks(35)),
}


def test_every_file_is_pillows_and_nothing_is_flagged(kernels: Any) -> None:
    components = [[(1 + c, h, v) for c, (h, v) in enumerate(factors)] for factors in SAMPLINGS]
    sizes = ((20, 37), (33, 4), (1, 1), (17, 66))
    files = [*FILES.values(), *(Coder().file(size, each, random_blocks(50)) for size in sizes for each in components)]
    for found, data in zip(kernels(files), files, strict=True):
        np.testing.assert_array_equal(found.pixels, pillow(data))


@pytest.mark.parametrize(("count", "piece"), [(FEW, "SHORT_PIECE"), (FEW + 1, "PIECE")])
def test_blocks_of_threads_are_joined(count: int, piece: str, kernels: Any) -> None:
    """More subsequences than one block of threads synchronises."""
    data = encode(picture("noise", 150, 200), quality=95, subsampling=0)
    bits = constant("jpeg/picture.h", "PIECES") * constant("jpeg/picture.h", piece)
    for found in kernels([data] * count):
        assert found.told["piece"] * constant("jpeg/picture.h", "PIECES") == bits
        assert found.state["bits"] > 1.5 * 256 * bits
        np.testing.assert_array_equal(found.pixels, pillow(data))


def test_a_stream_may_be_long(kernels: Any) -> None:
    """Its end is too far from its beginning for a place that is held in 32 bits."""
    data = encode(picture("noise", 1100, 1100), quality=100, subsampling=0)
    assert 8 * len(data) > 1 << 24
    (found,) = kernels([data], box=(1090, 3, 10, 1000))
    np.testing.assert_array_equal(found.pixels, pillow(data)[1090:, 3:1003])


def test_every_guard_speaks(kernels: Any) -> None:
    files = lies()
    found = kernels([data for data, _ in files.values()], all_flagged=True)
    reasons = {name: int(each.state["reason"]) for name, each in zip(files, found, strict=True)}
    assert reasons == {name: reason for name, (_, reason) in files.items()}
    (beyond,) = kernels([drifting()], all_flagged=True, box=(8, 0, 8, 8))  # where no block beyond is transformed
    assert beyond.state["reason"] == 6


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*lies(), "DC range"])
def test_what_a_guard_stops_is_what_pillow_says(name: str) -> None:
    """The same picture, or the same words, where the kernels would not be sure."""
    data = drifting() if name == "DC range" else lies()[name][0]

    def use(data: bytes) -> torch.Tensor:
        with Image.open(BytesIO(data)) as image:
            return F.pil_to_tensor(image.crop((0, 0, image.width, image.height - 3)))

    good = FILES["grey"]
    with accel.image_backend("torchvision"):
        try:
            expected = use(data)
        except OSError as error:
            with pytest.raises(OSError, match=re.escape(str(error))):
                on_device(lambda: use(data))
            return
    before = dict(accel.stats()["fallbacks"])
    assert torch.equal(on_device(lambda: use(data)), expected)
    assert accel.stats()["fallbacks"] != before
    assert torch.equal(on_device(lambda: use(good)), torch.from_numpy(pillow(good)[:-3]).permute(2, 0, 1))


@host_only
def test_only_what_a_region_needs_is_transformed(kernels: Any, launched: list[tuple[str, int]]) -> None:
    box = (64, 64, 32, 32)
    for subsampling, chroma in ((0, 4 * 4), (2, 4 * 4)):  # half as many samples, and one more on every side
        data = encode(picture("smooth", 256, 240), subsampling=subsampling)
        (found,) = kernels([data], box=box)
        np.testing.assert_array_equal(found.pixels, pillow(data)[64:96, 64:96])
        assert [len(found.memory[f"plane{c}"]) // 64 for c in range(3)] == [4 * 4, chroma, chroma]
        assert len(found.memory["coefficients"]) == 2 * 64 * 4 * 4 * int(found.told["slots"])  # of 4 x 4 MCUs
        assert dict(launched)["jpeg_transform"] == 3 * 1  # 32 blocks each
        assert dict(launched)["jpeg_pixels"] == 1
        kernels([data])
        assert dict(launched)["jpeg_transform"] >= 32 * 30 // 32
        assert dict(launched)["jpeg_pixels"] == 256 * 240 // 1024


@pytest.mark.sweep
@host_only
@pytest.mark.parametrize("order", ORDERS)
def test_the_order_of_threads_makes_no_difference(order: str, kernels: Any) -> None:
    """A phase that reads what another thread of the same phase writes would show: a barrier is missing there."""
    expected = kernels(list(FILES.values()))
    with built_with(*ORDERS[order]):
        made = kernels(list(FILES.values()))
    for found, other in zip(made, expected, strict=True):
        np.testing.assert_array_equal(found.pixels, other.pixels)
        for name in ("edges", "coefficients", "dc", "state", "plane0"):
            np.testing.assert_array_equal(found.memory[name], other.memory[name])


@pytest.mark.sweep
@host_only
def test_a_missing_barrier_would_show(kernels: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two phases made one: in the usual order nothing happens, in the other one the stream's end is lost."""
    sources = tmp_path / "cuda"
    shutil.copytree(compile.SOURCES, sources)
    stream = sources / "jpeg" / "stream.cu"
    text = stream.read_text()
    both = "PHASE(t) {\n        if (t == 0) lost = 0, stop = NONE;\n    }\n    PHASE(t) {"
    assert both in text
    stream.write_text(text.replace(both, "PHASE(t) {\n        if (t == 0) lost = 0, stop = NONE;"))
    for module in (compile, host):
        monkeypatch.setattr(module, "SOURCES", sources)
    inside.load_libraries_again(monkeypatch)
    files = [encode(picture("smooth", 40, 40, 1), quality=quality) for quality in range(50, 100)]
    for found, data in zip(kernels(files), files, strict=True):
        np.testing.assert_array_equal(found.pixels, pillow(data))
    with (
        built_with(*ORDERS["another in every phase"]),
        pytest.raises(AssertionError),
    ):  # the thread that found it came before the first
        kernels(files)


@pytest.mark.sweep
@host_only
@pytest.mark.parametrize(("count", "options"), [("5000", ()), ("12", ("--large",))])
def test_nothing_is_touched_that_is_not_theirs(count: str, options: tuple[str, ...]) -> None:
    """Damaged files under AddressSanitizer and UBSan, all memory between the pieces forbidden."""
    command = [sys.executable, "-m", "tests.rig.sanitized_decoder", "--count", count, *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode == 77:
        pytest.skip(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{count} files" in done.stdout
