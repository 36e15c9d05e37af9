"""The conformance suite: every op of the table, as any backend must run it.

With pytest:

    import pytest
    from accel import testing

    @pytest.mark.parametrize("case", list(testing.cases()), ids=str)
    def test_conformance(case):
        testing.check(case, "mine", some_option=1)
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from PIL import Image

from accel.backend import backend_of
from accel.errors import attempt
from accel.lazy.image import LazyImage
from accel.lazy.tensor_base import LazyTensorBase
from accel.ops import OPS, Op, Params
from accel.ops.row import KernelOp
from accel.processes.switch import current, image_backend
from accel.recipes.options import AcceleratorOptions, Selection
from accel.recipes.recipe import selection_of
from accel.runtime import compute

__all__ = ["SIZES", "Case", "Within", "cases", "check", "computed", "picture"]

SIZES = ((1, 1), (7, 5), (64, 48), (83, 131))
"""The (height, width) of the images tried."""


class Case(NamedTuple):
    """An op with one of its sample parameters, on an image of one size and mode.

    Attributes:
        op: the op's name in the table.
        params: its parameters, in the row's order.
        size: (height, width) of the image.
        mode: "RGB" or "L".
    """

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
    """Yield every case of the table of ops, except those that torchvision itself refuses."""
    for op in OPS.values():
        for given in product(op.samples, SIZES, ("RGB", "L")):
            if not _refused(case := Case(op.name, *given)):
                yield case


class Within(NamedTuple):
    """Bounds on how far uint8 results may be from torchvision's, in levels.

    Float results are compared by ``torch.testing.assert_close``, whatever the bounds.

    Attributes:
        largest: the bound on the largest difference.
        mean: the bound on the mean difference.
    """

    largest: float
    mean: float


def check(case: Case, backend: str, within: Within | None = None, **options: Any) -> None:
    """Run a case lazily on a backend and by plain torchvision, and compare the results.

    An accelerator backend computes on the device that the option ``device`` names, or else on the first of its kind.
    There, torchvision's kernels for tensors may also give what torchvision itself gives on that device.

    Args:
        case: one of ``cases()``.
        backend: a backend's name.
        within: how far results may differ under ``exact=False``; None: not at all.
        **options: the backend's options.

    Raises:
        AssertionError: values, shape, dtype, mode or strides differ, or nothing was recorded.
    """
    stream = picture(case.size, case.mode)
    op = OPS[case.op]
    with image_backend("torchvision"):
        expected = run_op(op, case.params, Image.open(io.BytesIO(stream)))
    with image_backend(backend, **options):
        lazy = run_op(op, case.params, Image.open(io.BytesIO(stream)))
        found = computed(lazy)
        device = _device(current()) if isinstance(op, KernelOp) and backend_of(current()).devices else _HOST
    try:
        _compare(case, found, expected, within)
    except AssertionError:
        if device.type == "cpu":
            raise
        with image_backend("torchvision"):
            _compare(case, found, run_op(op, case.params, Image.open(io.BytesIO(stream)), device).cpu(), within)


def computed(lazy: Any) -> Any:
    """Compute a lazy tensor or image by its own backend; an accelerator would otherwise leave one image to the host.

    Returns:
        A tensor on the host, or a Pillow image.

    Raises:
        AssertionError: it is not lazy.
    """
    assert isinstance(lazy, (LazyTensorBase, LazyImage)), f"not recorded: {lazy!r}"
    if isinstance(lazy, LazyTensorBase):
        parts = lazy.lazy
        recipes, interleaved = parts.recipes, parts.layout.interleaved
    else:
        assert lazy.recipe is not None, "its pixels were computed"
        recipes, interleaved = (lazy.recipe,), True
    selection = selection_of(recipes)
    if not backend_of(selection).devices:
        return lazy
    values = compute.tensors_on(_device(selection), recipes, interleaved=interleaved).cpu()
    if isinstance(lazy, LazyTensorBase):
        return parts.shaped(values)
    pixels = values[0].permute(1, 2, 0).contiguous().numpy()
    return Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)


def picture(size: tuple[int, int], mode: str, quality: int = 90) -> bytes:
    """Encode a JPEG file of structured noise, always the same for the same arguments.

    Args:
        size: (height, width).
        mode: "RGB" or "L".
        quality: as Pillow takes it, 1 to 100.

    Returns:
        The file's bytes.
    """
    height, width = size
    noise = np.random.default_rng((height, width)).normal(0, 24, (height, width, 3))
    waves = 127 + 90 * np.sin(np.add.outer(np.arange(height) / 9, np.arange(width) / 7))
    pixels = np.clip(waves[:, :, None] + noise, 0, 255).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(stream, "JPEG", quality=quality)
    return stream.getvalue()


_HOST = torch.device("cpu")


def run_op(op: Op, params: Params, image: Any, device: torch.device = _HOST) -> Any:
    """Run an op's reference on a Pillow image, or on a tensor made of it, on a device, if the op takes tensors."""
    if op.takes == "pixels":
        image = OPS["pil_to_tensor"].reference(image, ())
    elif op.takes == "floats":
        image = OPS["to_tensor"].reference(image, (torch.float32,))
    image = image if device.type == "cpu" else image.to(device)
    return op.reference(image, params)


def _device(selection: Selection) -> torch.device:
    options = cast(AcceleratorOptions, selection.options)
    return torch.empty(0, device=options.device or backend_of(selection).devices[0]).device  # with its index


def _refused(case: Case) -> bool:
    with image_backend("torchvision"):
        image = Image.new(case.mode, case.size[::-1])
        return isinstance(attempt(run_op, OPS[case.op], case.params, image), Exception)


def _compare(case: Case, found: Any, expected: Any, within: Within | None) -> None:
    is_tensor = isinstance(found, torch.Tensor)
    if is_tensor:
        assert found.shape == expected.shape, f"{case}: shape {tuple(found.shape)}, not {tuple(expected.shape)}"
        assert found.dtype == expected.dtype, f"{case}: dtype {found.dtype}, not {expected.dtype}"
        if not isinstance(OPS[case.op], KernelOp):  # some kernels return views
            assert _strides(found) == _strides(expected), f"{case}: strides {found.stride()}, not {expected.stride()}"
    else:
        assert found.mode == expected.mode, f"{case}: mode {found.mode}, not {expected.mode}"
        assert found.size == expected.size, f"{case}: size {found.size}, not {expected.size}"
    if is_tensor and within is None:
        assert torch.equal(found, expected), f"{case}: {int((found != expected).sum())} values differ"
    elif is_tensor and found.is_floating_point():
        torch.testing.assert_close(found, expected, msg=lambda text: f"{case}: {text}")
    else:
        apart = np.abs(np.subtract(np.asarray(found), np.asarray(expected), dtype=np.float64))
        largest, mean, most = float(apart.max()), float(apart.mean()), within or Within(0, 0)
        assert largest <= most.largest, f"{case}: off by {largest:g} levels, more than {most.largest:g}"
        assert mean <= most.mean, f"{case}: off by {mean:.3g} levels on average, more than {most.mean:g}"


def _strides(tensor: torch.Tensor) -> list[int]:
    """The strides that matter: those of axes longer than one."""
    return [stride for stride, length in zip(tensor.stride(), tensor.shape, strict=True) if length > 1]
