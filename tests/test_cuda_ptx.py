"""The kernels as NVRTC compiles them, run without a GPU (ptx/): what they make equals torchvision's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from cuda_support import host_only, needs_compiler, noise, on_device, stacked
from helpers import assert_same, jpeg, seed_everything
from jpeg_support import SAMPLINGS, Coder, encode, picture, pillow, random_blocks
from kernel_plans import BLURS, DTYPES, EFFECTS, MODES, blurred, plans
from PIL import Image
from torchvision import transforms
from torchvision.transforms import InterpolationMode as Mode
from torchvision.transforms import functional as F
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F2

import accel
from accel.backends.cuda import backend, compile
from accel.backends.cuda.jpeg import Decoding, Wanted

pytest.importorskip("cuda.bindings", reason="NVRTC compiles the kernels")

from ptx.device import PtxDevice, program
from ptx.pieces import told
from ptx.running import installed

pytestmark = host_only

KERNELS = [kernel for names in compile.UNITS.values() for kernel in names]


def assert_equals_torchvision(batch: Callable[[], torch.Tensor], seed: int = 0, decode: str = "host") -> PtxDevice:
    with accel.image_backend("torchvision"):
        seed_everything(seed)
        expected = batch()
    device = PtxDevice(seed, together=(32, 32, 5)[seed % 3])
    seed_everything(seed)
    with installed(device):
        found = on_device(batch, decode=decode)
    assert_same(found, expected)
    return device


@pytest.fixture(autouse=True)
def alone() -> Any:
    """Nothing falls back to the host."""
    before = dict(accel.stats()["fallbacks"])
    yield
    assert accel.stats()["fallbacks"] == before


@pytest.mark.parametrize("name", plans())
def test_batches(name: str) -> None:
    decode = "accel" if name.startswith("decoded") else "host"
    device = assert_equals_torchvision(plans()[name], len(name), decode)
    assert set(device.ran) & {"emit1", "emit3"}


def _grey(mode: Mode, dtype: torch.dtype, interleaved: bool) -> torch.Tensor:
    """Cropped, padded, flipped, resized, equalised, to values of a type."""
    made = []
    for n, (height, width) in enumerate(((1, 9), (9, 2), (70, 33), (34, 5), (5, 100))):
        image: Any = F.pad(noise(height, width, "L", n), [n % 3, 1], 60 * n)
        if n % 2:
            image = F.hflip(F.equalize(image))
        image = F.resize(image, [11 + 22 * (n > 5), 7], mode) if dtype != torch.uint8 else F.center_crop(image, [11, 7])
        made.append(F2.to_dtype(F2.to_image(image), dtype, scale=True))
    stack = torch.stack(made)
    return stack.contiguous(memory_format=torch.channels_last) if interleaved else stack


def _erased(dtype: torch.dtype, interleaved: bool, mode: str) -> torch.Tensor:
    """At the end, with as many values as there are, or repeated ones."""
    made = []
    for n in range(4):
        values = torch.arange(9.0 * 3 * 5).reshape(9, 3, 5)[: 1 if mode == "L" else 3, : (1, 3)[n % 2], : (5, 1)[n % 2]]
        image = F2.to_dtype(F2.to_image(noise(12, 13 + n, mode, n)), dtype, scale=True)
        made.append(F2.erase(F2.center_crop(image, [10, 9]), n, 4 - n, 3, 5, values.to(dtype)))
    stack = torch.stack(made)
    return stack.contiguous(memory_format=torch.channels_last) if interleaved else stack


def _seen(step: Any, mode: str) -> torch.Tensor:
    """An effect that sees its image through levels, and erased pixels."""
    made = []
    for n in range(3):
        image = F.pil_to_tensor(step(F.posterize(noise(9 + 15 * n, 37 - 9 * n, mode, n), 3 + n)).convert(mode))
        image = F.resize(F.erase(image, 1, 2, 5, 4, torch.full((1, 1, 1), 99, dtype=torch.uint8)), [8, 9])
        made.append(image)
    return torch.stack(made)


MORE: dict[str, Callable[[], torch.Tensor]] = {
    **{f"grey {mode.value}": partial(_grey, mode, torch.float32, False) for mode in MODES},
    **{f"grey {dtype} {last}": partial(_grey, MODES[1], dtype, last) for dtype in DTYPES for last in (False, True)},
    **{f"erased {dtype} {last}": partial(_erased, dtype, last, "RGB") for dtype in DTYPES for last in (False, True)},
    **{f"erased {dtype}, grey": partial(_erased, dtype, False, "L") for dtype in DTYPES},
    **{f"seen {name} {mode}": partial(_seen, EFFECTS[name], mode) for name in EFFECTS for mode in ("RGB", "L")},
}


@pytest.mark.parametrize("name", MORE)
def test_more_batches(name: str) -> None:
    assert_equals_torchvision(MORE[name], len(name))


@pytest.mark.parametrize("number", range(len(BLURS)))
@needs_compiler
def test_blurs(number: int) -> None:
    """torchvision's sums are in another order; the host's build of the kernel is the judge."""
    expected = on_device(lambda: blurred(*BLURS[number]))
    with installed(PtxDevice(number)):
        assert_same(on_device(lambda: blurred(*BLURS[number])), expected)


DRAWN = {
    "RandAugment": transforms.RandAugment(3, 12),
    "TrivialAugmentWide": transforms.TrivialAugmentWide(),
    "AutoAugment": transforms.AutoAugment(),
    "ColorJitter": transforms.ColorJitter(0.5, 0.5, 0.5, 0.2),
    "v2": v2.Compose([v2.RandomEqualize(), v2.RandomPerspective(p=0.7), v2.RandomPosterize(3), v2.RandomSolarize(90)]),
    "turned": transforms.Compose(
        [transforms.RandomRotation(40, expand=True, fill=90), transforms.RandomGrayscale(0.3)]
    ),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", DRAWN)
def test_augmentation_as_it_is_drawn(name: str, seed: int) -> None:
    train = transforms.Compose(
        [
            transforms.RandomResizedCrop((30, 37), scale=(0.2, 1)),
            transforms.RandomHorizontalFlip(),
            DRAWN[name],
            transforms.Resize((28, 35)),
            transforms.ToTensor(),
            transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
            transforms.RandomErasing(0.5),
        ]
    )
    assert_equals_torchvision(lambda: stacked([noise(40 + n, 55 - 3 * n, seed=n) for n in range(5)], train), seed)


# -- the JPEG decoder -------------------------------------------------------------------------------------------


def _coded(factors: list[tuple[int, int]]) -> bytes:
    components = [(1 + c, h, v) for c, (h, v) in enumerate(factors)]
    return Coder().file((19, 21), components, random_blocks(30))


FILES = {
    "grey": encode(picture("smooth", 41, 30, 1), quality=95),
    "444": encode(picture("smooth", 33, 47), subsampling=0, quality=95),
    "422": encode(picture("smooth", 50, 37), subsampling=1, optimize=True),
    "420": encode(picture("noise", 35, 46), subsampling=2, quality=97),
    "restart": encode(picture("smooth", 45, 50), subsampling=2, quality=90, restart_marker_blocks=3),
    "every MCU": encode(picture("binary", 40, 24), subsampling=0, quality=60, restart_marker_blocks=1),
    "rgb": encode(picture("noise", 30, 40), keep_rgb=True, quality=90),
    **{f"{factors}": _coded(factors) for factors in SAMPLINGS},
    "odd factors": Coder().file((33, 41), [(1, 4, 1), (2, 2, 1), (3, 4, 1)], random_blocks(97)),
    "long codes": Coder((2, 3, 4, *(16,) * 159)).file((20, 26), [(1, 1, 2), (2, 1, 1), (3, 1, 1)], random_blocks(35)),
    **{f"{size}": jpeg(*size, seed=size[0], subsampling=size[0] % 3) for size in ((1, 1), (2, 7), (9, 3), (17, 16))},
}


def decoded(device: PtxDevice, files: Sequence[Wanted]) -> Decoding:
    decoder = backend.jpeg.Decoder(device, backend.Ring(device.pinned))
    with device.enter(), told(device):
        return decoder.decode(files)


def wanted(data: bytes, box: tuple[int, int, int, int] | None = None) -> Wanted:
    with Image.open(BytesIO(data)) as image:
        return Wanted(data, box or (0, 0, image.height, image.width), len(image.getbands()))


def test_files_are_decoded_as_pillow_does() -> None:
    device = PtxDevice(1)
    files = [
        *map(wanted, FILES.values()),
        wanted(FILES["420"], (9, 7, 20, 31)),
        wanted(FILES["restart"], (31, 40, 1, 2)),
    ]
    decoding = decoded(device, files)
    assert decoding.flagged() == []
    for number, (data, (top, left, height, width), channels) in enumerate(files):
        expected = pillow(bytes(data)).reshape(-1, wanted(bytes(data)).box[3], channels)
        found = decoding.read(number, height * width * channels).reshape(height, width, channels)
        np.testing.assert_array_equal(found, expected[top : top + height, left : left + width])
    assert {kernel for kernel in KERNELS if kernel.startswith("jpeg")} == set(device.ran)


def test_more_than_one_block_of_threads_of_a_stream() -> None:
    data = encode(picture("noise", 150, 200), quality=95, subsampling=0)
    decoding = decoded(PtxDevice(2), [wanted(data)])
    assert decoding.flagged() == []
    np.testing.assert_array_equal(decoding.read(0, 90000).reshape(150, 200, 3), pillow(data))


def test_a_broken_stream_is_flagged() -> None:
    data = FILES["444"]
    scan = data.rindex(b"\xff\xda") + 14
    place = scan + (len(data) - scan) // 6
    broken = [data[:place] + b"\xff\xd3" + data[place + 2 :], data[:place] + data[-2:]]
    decoding = decoded(PtxDevice(3), [wanted(FILES["420"]), wanted(broken[0]), wanted(data), wanted(broken[1])])
    assert decoding.flagged() == [1, 3]


# -- all of it --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS)
def test_contraction_is_where_it_is_asked_for(kernel: str) -> None:
    """Other instructions that are not rounded one by one are refused when they are reached (test_ptx.py)."""
    fused = {each.chain[0][0] for each in program(kernel).kernel.code if each.parts[0] == "fma"}
    assert fused == ({"elastic.h"} if kernel == "effects" else set())
