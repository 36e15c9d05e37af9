"""Launches that a GPU refuses or faults on: the stand-in refuses them as well, and no plan has any."""

from collections.abc import Callable
from functools import partial
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import functional as F
from torchvision.transforms.v2 import functional as F2

import accel
from accel.backends.cuda import device, host
from accel.backends.cuda.descriptors import PASS
from rig.batches import noise
from tests.support.cuda import DEVICE, assert_equals_torchvision, host_only, needs_compiler, stacked
from tests.support.helpers import jpeg, undecodable

pytestmark = needs_compiler


@host_only
@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"blocks": 0}, "pass1: a launch has 1 to 2147483647 blocks, got 0"),
        ({"blocks": -1}, "blocks, got -1"),
        ({"blocks": 1 << 31}, "blocks, got 2147483648"),
        ({"blocks": np.int64(1)}, r"plain ints, got \((np.int64\()?1"),
        ({"blocks": True}, "plain ints"),
        ({"items": np.uint64(64)}, "plain ints"),
        ({"items": 0}, "items at 0x0"),
        ({"items": 68}, "items at 0x44, which is not a multiple of 8"),
        ({"owners": 66}, "owners at 0x42, which is not a multiple of 4"),
    ],
    ids=str,
)
def test_what_a_gpu_refuses(changed: dict[str, Any], reason: str) -> None:
    items, owners = np.zeros(1, PASS), np.zeros(1, np.int32)  # an output without rows: nothing is written
    items["across"] = 1
    sound: Any = {"kernel": "pass1", "blocks": 1, "items": items.ctypes.data, "owners": owners.ctypes.data}
    host.HostDevice().launch(**sound)
    with pytest.raises(RuntimeError, match=reason):
        host.HostDevice().launch(**{**sound, **changed})


@host_only
def test_the_alignments_are_those_of_the_structures() -> None:
    for names in host.UNITS.values():
        for name in names:
            library = host._library(host.unit_of(name))
            assert getattr(library, f"{name}_item_alignment")() == host._ITEM_ALIGNED


@host_only
def test_deterministic_mode_fills_no_memory() -> None:
    """A batch's would be written for nothing: gigabytes."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        assert bool((torch.empty(64 << 20, dtype=torch.uint8) == 255).all()), "this shows nothing"
        assert not (host.HostDevice().scratch(64 << 20) == 255).all()
        made = host.HostDevice().empty((3, 0, 5), torch.float16), host.HostDevice().empty((3, 5), torch.float32)
    finally:
        torch.use_deterministic_algorithms(before)
    assert [(each.shape, each.dtype, each.stride()) for each in made] == [
        ((3, 0, 5), torch.float16, (5, 5, 1)), ((3, 5), torch.float32, (5, 1)),
    ]  # fmt: skip


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the kernels that are launched."""
    found: list[str] = []
    kind = host.HostDevice if DEVICE == "cpu" else device.CudaDevice
    launch = kind.launch
    monkeypatch.setattr(
        kind, "launch", lambda self, kernel, *rest: (found.append(kernel), launch(self, kernel, *rest))[1]
    )
    return found


i64, f64 = np.int64, np.float64
Step = Callable[[Any], Any]

SMALLEST: dict[str, Step] = {
    "as it is": lambda image: image,
    "one pixel": lambda image: F.crop(image, 1, 0, 1, 1),
    "nothing of it": lambda image: F.crop(image, 100, 100, 4, 4),
    "nothing of a resized one": lambda image: F.crop(F.resize(image, [8, 8]), 20, 20, 5, 5),
    "nothing of it, resized": lambda image: F.resize(F.crop(F.equalize(image), 100, 100, 4, 4), [5, 5]),
    "to one pixel": lambda image: F.resize(image, [1, 1]),
    "to one column": lambda image: F.resize(image, [40, 1]),
    "one pixel, blurred": lambda image: F.gaussian_blur(F.crop(image, 0, 0, 1, 1), [1, 1]),
    "one pixel, counted": lambda image: F.equalize(F.autocontrast(F.crop(image, 0, 0, 1, 1))),
    "negative padding": lambda image: F.pad(image, [-1, -1, 0, 0]),
    "no rows": lambda image: F.crop(image, 0, 0, 0, 5),
    "no columns": lambda image: F.crop(F.to_grayscale(image), 0, 0, 5, 0),
    "no rows, counted": lambda image: F.equalize(F.crop(image, 0, 0, 0, 5)),
    "no rows, padded": lambda image: F.pad(F.crop(F.equalize(image), 0, 0, 0, 5), [2]),
    "NumPy's numbers, cropped": lambda image: F.crop(image, i64(1), i64(1), i64(3), i64(2)),
    "NumPy's numbers, resized": lambda image: F.resized_crop(image, *map(i64, (1, 1, 3, 2)), [i64(4), i64(5)]),
    "NumPy's numbers, padded": lambda image: F.pad(image, [i64(1), i64(2)]),
    "NumPy's numbers, rotated": lambda image: F.rotate(image, f64(10), expand=True),
    "NumPy's numbers, blurred": lambda image: F.gaussian_blur(image, [i64(3), i64(1)], [f64(1), f64(2)]),
    "NumPy's numbers, colours": lambda image: F.adjust_hue(F.adjust_contrast(image, np.float32(0.5)), f64(0.2)),
}


def source(kind: str) -> Image.Image:
    return Image.open(BytesIO(jpeg(7, 9))) if kind == "file" else noise(9, 7, kind)


def values(made: Any) -> torch.Tensor:
    return made if isinstance(made, torch.Tensor) else F.to_tensor(made)


def same_on_device(made: Callable[[], torch.Tensor]) -> None:
    with accel.image_backend("torchvision"):
        expected = made()
    with accel.image_backend("cuda", device=DEVICE):
        assert torch.equal(made().to(DEVICE).cpu(), expected)


@pytest.mark.parametrize("kind", ["RGB", "L", "file"])
def test_the_smallest_batches(kind: str) -> None:
    """Images without pixels are not lazy; all others are launched with what a GPU takes."""
    for step in SMALLEST.values():
        same_on_device(lambda step=step: torch.stack([values(step(source(kind)))]))


ERASED: dict[str, Step] = {
    "nothing": lambda image: F.erase(image, 1, 1, 0, 0, torch.zeros(1, 1, 1)),
    "no columns": lambda image: F.erase(image, 1, 1, 2, 0, torch.zeros(3, 2, 0)),
    "one pixel": lambda image: F.erase(image, 0, 1, 1, 1, torch.ones(1, 1, 1)),
    "NumPy's numbers": lambda image: F.erase(image, i64(1), i64(1), i64(2), i64(2), torch.ones(1, 1, 1)),
    "one column": lambda image: image[..., :1],
    "no column": lambda image: image[..., :0],
    "NumPy's numbers, cropped": lambda image: F.crop(image, 1, i64(1), i64(1), i64(2)),
    "NumPy's numbers, centred": lambda image: F2.center_crop(image, [i64(4), i64(9)]),
    "no rows": lambda image: F.crop(image, 1, 1, 0, 2),
}


TENSORS: dict[str, Step] = {
    "padded": lambda image: F2.pad(image, [i64(1), i64(2)]),
    "resized": lambda image: F2.resize(image, [i64(4), i64(5)]),
    "resized crop": lambda image: F2.resized_crop(image, *map(i64, (1, 1, 3, 2)), [i64(4), i64(5)]),
    "crop": lambda image: F2.crop(image, *map(i64, (-1, 1, 3, 2))),
}


@pytest.mark.parametrize(
    ("first", "step"),
    [*((F.to_tensor, step) for step in ERASED.values()), *((F.pil_to_tensor, step) for step in TENSORS.values())],
    ids=[*ERASED, *TENSORS],
)
def test_the_smallest_tensors(first: Step, step: Step) -> None:
    same_on_device(lambda: torch.stack([step(first(source(kind))) for kind in ("RGB", "file")]))


def test_what_is_no_whole_number_is_refused_at_once() -> None:
    for name in ("torchvision", "cuda"):
        with accel.image_backend(name, **({"device": DEVICE} if name == "cuda" else {})):
            image = F.pil_to_tensor(source("RGB"))
            with pytest.raises(TypeError, match="slice indices must be integers"):
                F2.resized_crop(image, 1.0, 1, 3, 3, [4, 4])  # type: ignore[arg-type]


def test_batches_of_which_nothing_is_left_for_a_stage(launched: list[str]) -> None:
    """No file is for the device's decoder; no file can be decoded."""
    resize: Step = lambda image: F.to_tensor(F.resize(image.convert("RGB"), [5, 6]))  # noqa: E731
    assert_equals_torchvision(lambda: stacked([Image.open(BytesIO(jpeg(30, 20)))], resize))
    assert "jpeg_pixels" in launched
    launched.clear()
    progressive = [jpeg(20 + n, 30, progressive=True) for n in range(3)]
    assert_equals_torchvision(lambda: stacked([Image.open(BytesIO(each)) for each in progressive], resize))
    assert launched == ["coefficients", "pass3"]
    broken = [undecodable(seed=n) for n in range(3)]
    with accel.image_backend("cuda", device=DEVICE, on_error="replace"):
        found = stacked([Image.open(BytesIO(each)) for each in broken], resize)
        assert not found.to(DEVICE).cpu().any()


def test_a_batch_of_all_of_them() -> None:
    """The smallest images beside ordinary ones, each with steps of its own."""
    steps = [step for name, step in SMALLEST.items() if not name.startswith("no ")]
    each = [(kind, step) for kind in ("RGB", "file") for step in steps]

    def made(last: Step) -> torch.Tensor:
        return torch.stack(
            [F.to_tensor(last(F.resize(step(source(kind)).convert("RGB"), [3, 4]))) for kind, step in each]
        )

    for last in (lambda image: image, F.equalize, partial(F.adjust_sharpness, sharpness_factor=2.0)):
        assert_equals_torchvision(partial(made, last))
