"""The conformance suite: every op of the table, as any backend must run it.

import pytest
from accel.backend import backend_of
from accel import testing

@pytest.mark.parametrize("case", testing.cases(), ids=str)
def test_conformance(case):
    testing.check(case, "mine", some_option=1)
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from accel.backend import backend_of
from accel.lazy.base import LateTensor
from accel.lazy.image import LazyImage
from accel.ops import OPS, Op, Params
from accel.options import AcceleratorOptions, Selection
from accel.runtime import materialize
from accel.switch import image_backend

SIZES = ((1, 1), (7, 5), (64, 48), (83, 131))
"""(height, width) of the images tried."""


class Case(NamedTuple):
    """One op with one of its samples, on an image of one size and mode."""

    op: str
    params: Params
    size: tuple[int, int]
    mode: str

    def __str__(self) -> str:
        params = "-".join(map(_short, self.params))
        return f"{self.op}-{params}-{self.size[0]}x{self.size[1]}-{self.mode}"


def _short(value: Any) -> str:
    """A parameter in a case's name."""
    if isinstance(value, torch.Tensor):
        return f"tensor{list(value.shape)}"
    return f"{len(value)} bytes" if isinstance(value, bytes) else str(value)


def cases() -> Iterator[Case]:
    """All cases of the table; those that the reference refuses are left out."""
    for op in OPS.values():
        for params in op.samples:
            for size in SIZES:
                for mode in ("RGB", "L"):
                    case = Case(op.name, params, size, mode)
                    if not _refused(case):
                        yield case


class Within(NamedTuple):
    """How far results may be from the reference's, in levels of uint8: the farthest value, and all on average.

    Of floats, which are made of levels, only as much as another order of float operations gives is allowed for.
    """

    largest: float
    mean: float


def check(case: Case, backend: str, within: Within | None = None, **options: Any) -> None:
    """Run a case on a backend, late, and on plain torchvision, and compare.

    An accelerator backend computes on the device that the option ``device`` names, or else on the first of its kind.

    Args:
        within: how far results may differ under ``exact=False``; None: not at all.

    Raises:
        AssertionError: values, shape, dtype, mode or strides differ, or nothing was recorded.
    """
    stream = picture(case.size, case.mode)
    op = OPS[case.op]
    with image_backend("torchvision"):
        expected = _run(op, case.params, Image.open(io.BytesIO(stream)))
    with image_backend(backend, **options):
        late = _run(op, case.params, Image.open(io.BytesIO(stream)))
        found = computed(late)
        if isinstance(found, torch.Tensor):
            _compare_tensors(case, found, expected, within)
        else:
            _compare_images(case, found, expected, within)


def computed(late: Any) -> Any:
    """Compute a lazy tensor or image by the backend itself: an accelerator leaves single images to its host backend.

    Returns:
        A tensor on the host, or a Pillow image.
    """
    assert isinstance(late, (LateTensor, LazyImage)), f"not recorded: {late!r}"
    if isinstance(late, LateTensor):
        parts = late.late
        recipes, interleaved = parts.recipes, parts.interleaved
    else:
        assert late.recipe is not None, "its pixels were computed"
        recipes, interleaved = (late.recipe,), True
    selection = materialize.selection_of(recipes)
    if not backend_of(selection).devices:
        return late
    values = materialize.tensors_on(_device(selection), recipes, interleaved=interleaved).cpu()
    if isinstance(late, LateTensor):
        return parts.shaped(values)
    pixels = values[0].permute(1, 2, 0).contiguous().numpy()
    return Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)


def picture(size: tuple[int, int], mode: str, quality: int = 90) -> bytes:
    """A JPEG of structured noise, always the same for the same arguments."""
    height, width = size
    noise = np.random.default_rng((height, width)).normal(0, 24, (height, width, 3))
    waves = 127 + 90 * np.sin(np.add.outer(np.arange(height) / 9, np.arange(width) / 7))
    pixels = np.clip(waves[:, :, None] + noise, 0, 255).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(stream, "JPEG", quality=quality)
    return stream.getvalue()


def _run(op: Op, params: Params, image: Any) -> Any:
    if op.takes == "pixels":
        image = OPS["pil_to_tensor"].reference(image, ())
    elif op.takes == "floats":
        image = OPS["to_tensor"].reference(image, (torch.float32,))
    return op.reference(image, params)


def _device(selection: Selection) -> torch.device:
    options = cast(AcceleratorOptions, selection.options)
    return torch.empty(0, device=options.device or backend_of(selection).devices[0]).device  # with its index


def _refused(case: Case) -> bool:
    try:
        with image_backend("torchvision"):
            _run(OPS[case.op], case.params, Image.new(case.mode, case.size[::-1]))
    except Exception:
        return True
    return False


def _compare_tensors(case: Case, late: torch.Tensor, expected: torch.Tensor, within: Within | None) -> None:
    assert late.shape == expected.shape, f"{case}: shape {tuple(late.shape)}, not {tuple(expected.shape)}"
    assert late.dtype == expected.dtype, f"{case}: dtype {late.dtype}, not {expected.dtype}"
    if OPS[case.op].kind != "kernel":  # of which some give views
        assert _strides(late) == _strides(expected), f"{case}: strides {late.stride()}, not {expected.stride()}"
    if within is None:
        assert torch.equal(late, expected), f"{case}: {int((late != expected).sum())} values differ"
    elif late.is_floating_point():
        torch.testing.assert_close(late, expected, msg=lambda text: f"{case}: {text}")
    else:
        _check_within(case, (late.double() - expected.double()).abs().numpy(), within)


def _strides(tensor: torch.Tensor) -> list[int]:
    """The strides that mean something: those of axes longer than one."""
    return [stride for stride, length in zip(tensor.stride(), tensor.shape, strict=True) if length > 1]


def _check_within(case: Case, apart: npt.NDArray[Any], within: Within) -> None:
    largest, mean = float(apart.max()), float(apart.mean())
    assert largest <= within.largest, f"{case}: off by {largest:g} levels, more than {within.largest:g}"
    assert mean <= within.mean, f"{case}: off by {mean:.3g} levels on average, more than {within.mean:g}"


def _compare_images(case: Case, late: Image.Image, expected: Image.Image, within: Within | None) -> None:
    assert late.mode == expected.mode, f"{case}: mode {late.mode}, not {expected.mode}"
    assert late.size == expected.size, f"{case}: size {late.size}, not {expected.size}"
    found, wanted = np.asarray(late, np.int16), np.asarray(expected, np.int16)
    _check_within(case, np.abs(found - wanted), within or Within(0, 0))
