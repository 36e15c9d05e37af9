"""The kernels as NVRTC compiles them, run without a GPU (rig/ptx): what they make equals torchvision's."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from io import BytesIO
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms
from torchvision.transforms import v2

import accel
from accel.backends.cuda import CudaBackend, compile
from accel.backends.cuda.decoder import Decoder
from accel.backends.cuda.jpeg import Decoding, Request, index
from accel.planning.plan import Plan
from accel.processes import sent_files
from accel.recipes.arrived import Arrived
from accel.recipes.rows import Form, Rows, Slot, Structure
from accel.runtime import compute
from bench.fuzz.coder import SAMPLINGS, Coder, random_blocks
from bench.fuzz.files import encode, picture, pillow
from rig.batches import batches, more_batches, noise
from tests.rig import sanitized_decoder
from tests.support.cuda import host_only, on_device, stacked
from tests.support.helpers import assert_same, jpeg, seed_everything
from tests.support.jpeg import led_astray, with_room
from tests.support.stream_index import index_size

pytest.importorskip("cuda.bindings", reason="NVRTC compiles the kernels")

from rig.pieces import divided
from rig.ptx.device import PtxDevice, installed, program, ptx_of_unit

pytestmark = [host_only, pytest.mark.usefixtures("small_batches_indexed")]

KERNELS = [kernel for names in compile.UNITS.values() for kernel in names]


def assert_equals_torchvision(
    batch: Callable[[], torch.Tensor], seed: int = 0, decode: str = "host", **options: Any
) -> PtxDevice:
    with accel.image_backend("torchvision"):
        seed_everything(seed)
        expected = batch()
    device = PtxDevice(seed, **{"at_once": (32, 32, 5)[seed % 3], **options})
    seed_everything(seed)
    with installed(device):
        found = on_device(batch, decode=decode)
    assert_same(found, expected)
    return device


_tried: set[str] = set()


@pytest.fixture(autouse=True)
def alone(request: pytest.FixtureRequest) -> Any:
    """Nothing falls back to the host."""
    _tried.add(request.node.name)
    before = dict(accel.stats()["fallbacks"])
    yield
    assert accel.stats()["fallbacks"] == before


@pytest.mark.parametrize(
    "name", [name if name == "mixed" else pytest.param(name, marks=pytest.mark.sweep) for name in batches()]
)
def test_batches(name: str) -> None:
    decode = "accel" if name.startswith("decoded") else "host"
    device = assert_equals_torchvision(batches()[name], len(name), decode)
    assert set(device.ran) & {"pass1", "pass3"}


@pytest.mark.parametrize("name", ["torch.uint8 False 8", "torch.uint8 True 4", "torch.float16 False 40"])
def test_results_at_any_address(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of whole groups of values are written in groups only where the result begins at one."""
    empty = Plan.empty

    def behind_a_value(plan: Plan, allocate: Any) -> torch.Tensor:
        return empty(plan, lambda shape, dtype: allocate((math.prod(shape) + 1,), dtype)[1:].view(shape))

    monkeypatch.setattr(Plan, "empty", behind_a_value)
    assert_equals_torchvision(batches()[name])


def test_finished_work() -> None:
    """What a worker sends of a batch, in which nothing is an address yet."""
    forms = Form("crop", (Slot(0), 2, 20, 22)), Form("resize", (9, 11, 2)), Form("to_tensor", (torch.float32,))
    files, device = [jpeg(40, 36, seed=seed) for seed in range(3)], PtxDevice(1)

    def rows() -> Rows:
        opened = [Image.open(BytesIO(data)) for data in files]
        sources = [transforms.functional.pil_to_tensor(image).lazy.recipes[0].source for image in opened]  # type: ignore[attr-defined]
        return Rows(sources, Structure.of(*forms), np.arange(3)[:, None])

    with accel.image_backend("cpu"):
        expected = compute.tensors(list(rows()))
    with installed(device), accel.image_backend("cuda", device="cpu"):
        packed = sent_files.pack(rows())
        assert packed is not None
        sent = sent_files.unpack(packed)
        assert isinstance(sent, Arrived)
        assert torch.equal(compute.tensors_on(torch.device("cpu"), sent), expected)
    assert {"jpeg_coefficients", "jpeg_pixels", "coefficients", "pass3"} <= set(device.ran)


@pytest.mark.sweep
@pytest.mark.parametrize("name", more_batches())
def test_more_batches(name: str) -> None:
    assert_equals_torchvision(more_batches()[name], len(name))


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["mixed", "shrunk bicubic", "typed", "tensors bilinear True", "decoded"])
@pytest.mark.parametrize("arch", ["compute_100"])
def test_other_architectures(arch: str, name: str) -> None:
    """Others have other code."""
    names = [each for each in batches() if each.startswith(("torch.", "patches") if name == "typed" else name)]
    for each in names[::7] if name == "typed" else names[:1]:
        assert_equals_torchvision(batches()[each], decode="accel" if name == "decoded" else "host", arch=arch)
    assert ptx_of_unit("passes", arch) != ptx_of_unit("passes")


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["mixed", "counted by many blocks", "shrunk bicubic", "decoded"])
def test_warps_in_shifts(name: str) -> None:
    decode = "accel" if name == "decoded" else "host"
    assert_equals_torchvision(batches()[name], 1, decode, shifts=True)


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


@pytest.mark.sweep
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


def _coded(factors: list[tuple[int, int]]) -> bytes:
    components = [(1 + c, h, v) for c, (h, v) in enumerate(factors)]
    return Coder().file((19, 21), components, random_blocks(30))


_LUMA_BELOW = [[(1, 1), factors, (1, 1)] for factors in ((2, 1), (1, 2), (2, 2), (1, 3))]

FILES = {
    "grey": encode(picture("smooth", 41, 30, 1), quality=95),
    "444": encode(picture("smooth", 33, 47), subsampling=0, quality=95),
    "422": encode(picture("smooth", 50, 37), subsampling=1, optimize=True),
    "420": encode(picture("noise", 35, 46), subsampling=2, quality=97),
    "restart": encode(picture("smooth", 45, 50), subsampling=2, quality=90, restart_marker_blocks=3),
    "every MCU": encode(picture("binary", 40, 24), subsampling=0, quality=60, restart_marker_blocks=1),
    "rgb": encode(picture("noise", 30, 40), keep_rgb=True, quality=90),
    **{f"{factors}": _coded(factors) for factors in (*SAMPLINGS, *_LUMA_BELOW)},
    "odd factors": Coder().file((33, 41), [(1, 4, 1), (2, 2, 1), (3, 4, 1)], random_blocks(97)),
    "long codes": Coder((2, 3, 4, *(16,) * 159)).file((20, 26), [(1, 1, 2), (2, 1, 1), (3, 1, 1)], random_blocks(35)),
    **{f"{size}": jpeg(*size, seed=size[0], subsampling=size[0] % 3) for size in ((1, 1), (2, 7), (9, 3), (17, 16))},
}


def decoded(device: PtxDevice, files: Sequence[Request]) -> Decoding:
    decoder = Decoder(device)
    with device.enter(), divided(device.divide):
        return decoder.decode(files)


def wanted(data: bytes, box: tuple[int, int, int, int] | None = None) -> Request:
    with Image.open(BytesIO(data)) as image:
        return Request(data, box or (0, 0, image.height, image.width), len(image.getbands()), np.zeros(0, np.uint8))


@pytest.mark.sweep
def test_files_are_decoded_as_pillow_does() -> None:
    device = PtxDevice(1)
    files = [
        *map(wanted, map(with_room, FILES.values())),
        wanted(with_room(FILES["420"]), (9, 7, 20, 31)),
        wanted(with_room(FILES["restart"]), (31, 40, 1, 2)),
        wanted(FILES["rgb"]),
    ]
    made = _check(files, decoded(device, files))
    assert sorted(made) == [number for number, each in enumerate(files) if index_size(bytes(each.data))]
    assert len(made) > 30
    known = [files[number]._replace(known=index) for number, index in made.items()]
    assert _check(known, decoded(device, known)) == {}
    assert {kernel for kernel in KERNELS if kernel.startswith("jpeg")} == set(device.ran)


def _check(files: Sequence[Request], decoding: Decoding) -> dict[int, np.ndarray]:
    """The indexes that were made."""
    assert decoding.flagged() == []
    for number, (data, (top, left, height, width), channels, _) in enumerate(files):
        expected = pillow(bytes(data)).reshape(-1, wanted(bytes(data)).box[3], channels)
        found = decoding.read(number, height * width * channels).reshape(height, width, channels)
        np.testing.assert_array_equal(found, expected[top : top + height, left : left + width])
    return decoding.made.each()


@pytest.mark.sweep
def test_more_than_one_block_of_threads_of_a_stream() -> None:
    data = encode(picture("noise", 150, 200), quality=95, subsampling=0)
    decoding = decoded(PtxDevice(2), [wanted(data)])
    assert decoding.flagged() == []
    np.testing.assert_array_equal(decoding.read(0, 90000).reshape(150, 200, 3), pillow(data))


def test_segments_that_lead_astray_are_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever an index says, what is touched is the picture's own."""
    files = [wanted(with_room(FILES[name])) for name in ("420", "restart", "every MCU", "444", "grey")]
    made = decoded(PtxDevice(5), files)
    assert made.flagged() == []
    known = [files[number]._replace(known=found) for number, found in sorted(made.made.each().items())]
    read = index.read
    monkeypatch.setattr(index, "read", partial(led_astray, read))
    assert decoded(PtxDevice(6), known).flagged() == list(range(len(files)))

    def beyond(*arguments: Any) -> index.Known:
        found = read(*arguments)
        found.segments["from"]["dc"] += 32767
        return found

    monkeypatch.setattr(index, "read", beyond)
    assert decoded(PtxDevice(7), known).flagged() == list(range(len(files)))


def test_a_broken_stream_is_flagged() -> None:
    data = FILES["444"]
    scan = data.rindex(b"\xff\xda") + 14
    place = scan + (len(data) - scan) // 6
    broken = [data[:place] + b"\xff\xd3" + data[place + 2 :], data[:place] + data[-2:]]
    decoding = decoded(PtxDevice(3), [wanted(FILES["420"]), wanted(broken[0]), wanted(data), wanted(broken[1])])
    assert decoding.flagged() == [1, 3]


@pytest.mark.sweep
def test_damaged_files() -> None:
    """Wherever a damaged stream leads, all memory that is touched is the picture's own."""
    device = PtxDevice(4)
    with (
        installed(device),
        mock.patch("tests.support.inside.engine", return_value=CudaBackend._engine(torch.device("cpu"))),
        device.enter(),
    ):
        taken, wrong = sanitized_decoder.check(range(60))
    assert (taken > 5, wrong) == (True, [])


@pytest.mark.sweep
@pytest.mark.parametrize("kernel", KERNELS)
def test_contraction_is_where_it_is_asked_for(kernel: str) -> None:
    """Other instructions that are not rounded one by one are refused when they are reached (test_ptx.py)."""
    fused = {each.chain[0][0] for each in program(kernel).kernel.code if each.parts[0] == "fma"}
    assert fused == ({"filter.h"} if kernel == "effects" else set())  # where torch's own code has them


_ASTRAY = "test_segments_that_lead_astray_are_flagged"


@pytest.mark.sweep
def test_every_line_ran() -> None:
    """Every line of the sources that became code."""
    missing = [name for name in (*batches(), *more_batches()) if not any(f"[{name}]" in each for each in _tried)]
    if missing or not {"test_files_are_decoded_as_pillow_does", "test_a_broken_stream_is_flagged", _ASTRAY} <= _tried:
        pytest.skip("only with all the others")
    ran: Counter[tuple[str, int]] = Counter()
    for kernel in KERNELS:
        ran.update(program(kernel).by_line())
    assert len(ran) > 500
    assert [line for line, times in ran.items() if not times] == []
