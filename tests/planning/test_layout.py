"""How torchvision's tensor of an image lies in memory, where its float functions, and torch's, round by that."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import functional as F1
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

import accel
from tests.support.helpers import run

Transform = Callable[[Any], Any]


def floats(x: Any) -> Any:
    return F.to_dtype(x, torch.float32, scale=True)


def contrast(x: Any) -> Any:
    return F.adjust_contrast(x, 0.7)


def gamma(x: Any) -> Any:
    return F.adjust_gamma(x, 0.7)


def cropped(x: Any) -> Any:
    return F.crop(x, 1, 1, x.shape[-2] - 2, x.shape[-1] - 2)


def fewer_rows(x: Any) -> Any:
    return F.crop(x, 1, 0, x.shape[-2] - 2, x.shape[-1])


def grey(x: Any) -> Any:
    return F.rgb_to_grayscale(x, 3)


def resized(x: Any) -> Any:
    return F.resize(x, [31, 33])


def batch(x: Any) -> Any:
    return torch.stack([x, x])


def channels_last(x: Any) -> Any:
    return x.contiguous(memory_format=torch.channels_last)


def turned(x: Any) -> Any:
    return F.rotate(x, 90.0, expand=True)


def padded(x: Any) -> Any:
    return F.pad(x, [3, 2])


def blurred(x: Any) -> Any:
    return F.gaussian_blur(x, [3, 3])


def mixed(x: Any) -> Any:
    return v2.MixUp(num_classes=3)(x, torch.tensor([0, 1]))[0]


def mean_of_pixels(x: Any) -> Any:
    size = x.numel()
    return v2.LinearTransformation(torch.eye(size), torch.zeros(size))(x)


def normalized(x: Any) -> Any:
    return F.normalize(x, [0.0] * 3, [0.5] * 3, inplace=True)


def rotated(x: Any) -> Any:
    return F.rotate(x, 13.0, fill=[0.5])


def to_planar(x: Any) -> Any:
    return x.to(x.dtype, memory_format=torch.contiguous_format)


def to_channels_last(x: Any) -> Any:
    return x.float(memory_format=torch.channels_last)


def beyond_and_resized(x: Any) -> Any:
    return F.resized_crop(x, -2, -2, 20, 20, [18, 19])


CONTIGUOUS: Transform = torch.Tensor.contiguous
PIPELINES: dict[str, tuple[Transform, ...]] = {
    "made contiguous": (F.pil_to_tensor, CONTIGUOUS, floats),
    "floats made contiguous": (F.pil_to_tensor, floats, CONTIGUOUS),
    "made contiguous between": (F.pil_to_tensor, floats, contrast, CONTIGUOUS),
    "blurred": (F.pil_to_tensor, blurred, floats),
    "padded": (F.pil_to_tensor, padded, floats),
    "cropped": (F.pil_to_tensor, cropped, floats),
    "a view of some columns": (F.pil_to_tensor, floats, cropped),
    "a view of some rows": (F1.to_tensor, fewer_rows),
    "a view of a view": (F1.to_tensor, fewer_rows, cropped),
    "a view, flipped": (F.pil_to_tensor, floats, cropped, F.horizontal_flip),
    "a view, resized": (F.pil_to_tensor, cropped, resized, floats),
    "grey": (F.pil_to_tensor, floats, cropped, lambda x: F.rgb_to_grayscale(x, 1), cropped),
    "grey in three channels": (F1.to_tensor, grey),
    "grey in three channels, cropped": (F1.to_tensor, grey, cropped),
    "turned": (F1.to_tensor, turned),
    "turned back": (F.to_image, turned, turned, floats),
    "turned, resized": (F.to_image, turned, resized, floats),
    "turned, a view": (F.to_image, floats, turned, cropped),
    "turned, grey": (F1.to_tensor, turned, grey),
    "turned, copied": (F.to_image, floats, turned, cropped, torch.clone),
    "a batch, turned": (F1.to_tensor, batch, turned, resized),
    "an interleaved batch, padded": (F1.to_tensor, batch, channels_last, padded),
    "an interleaved batch, cropped beyond its edges": (
        F1.to_tensor,
        batch,
        channels_last,
        lambda x: F.center_crop(x, [70, 70]),
    ),
    "an interleaved batch, blurred": (F1.to_tensor, batch, channels_last, blurred),
    "interleaved batches, stacked": (F1.to_tensor, batch, channels_last, batch),
    "a batch of one, inverted, blurred": (F.to_image, lambda x: x[None], F.invert, blurred, floats),
    "a batch of one, grey": (F.to_image, floats, lambda x: x[None], grey, lambda x: F.gaussian_noise(x, 0.5, 0.1)),
    "a batch with a step of its own, interleaved": (F1.to_tensor, batch, contrast, channels_last, lambda x: x[0]),
    "a batch of grey, copied": (F1.to_tensor, batch, grey, torch.clone),
    "a view of a batch with a step of its own, copied": (F1.to_tensor, batch, contrast, cropped, torch.clone),
    "a view of a batch with a step of its own, normalized": (F1.to_tensor, batch, contrast, cropped, normalized),
    "a batch, turned, mixed": (F1.to_tensor, batch, turned, mixed),
    "a batch, mixed, a view, copied": (F1.to_tensor, batch, mixed, cropped, torch.clone),
    "a batch, rotated": (F1.to_tensor, batch, rotated),
    "multiplied by a matrix": (F.to_image, lambda x: F.crop(x, 1, 1, 9, 8), floats, mean_of_pixels),
    "a view, copied deeply": (F1.to_tensor, cropped, deepcopy),
    "grey, copied deeply": (F1.to_tensor, grey, deepcopy),
    "a view that is contiguous to torch": (
        F1.to_tensor,
        cropped,
        to_planar,
    ),
    "an image that is contiguous to torch": (
        F.to_image,
        to_planar,
        floats,
    ),
    "a view that is in channels_last to torch": (
        F1.to_tensor,
        batch,
        channels_last,
        cropped,
        to_channels_last,
    ),
    "an interleaved batch, cropped beyond its edges and resized": (
        F.to_image,
        batch,
        channels_last,
        lambda x: F.resized_crop(x, -2, -2, 20, 20, [18, 19]),
        floats,
    ),
    "a batch": (F1.to_tensor, batch),
    "a batch, interleaved": (F1.to_tensor, batch, channels_last),
    "a batch of one, interleaved": (F1.to_tensor, lambda x: x[None], channels_last),
    "a view of a batch": (F1.to_tensor, batch, cropped),
    "a view, copied": (F1.to_tensor, cropped, torch.Tensor.clone),
    "a view, made contiguous": (F1.to_tensor, cropped, CONTIGUOUS),
    "a view, made contiguous between": (F.pil_to_tensor, floats, contrast, cropped, CONTIGUOUS),
    "a view, copied between": (F.pil_to_tensor, floats, contrast, cropped, torch.Tensor.clone),
    "a view, erased in place": (F1.to_tensor, cropped, lambda x: F.erase(x, 1, 1, 2, 3, torch.zeros(1), True)),
    "a view, as a batch": (F1.to_tensor, cropped, lambda x: x[None]),
    "a view of an interleaved batch, fewer rows": (F1.to_tensor, batch, channels_last, fewer_rows),
    "fewer rows, resized": (F.pil_to_tensor, fewer_rows, resized, floats),
    "a view of an interleaved batch, fewer rows, resized": (
        F.to_image,
        batch,
        channels_last,
        fewer_rows,
        resized,
        floats,
    ),
    "a view of an interleaved batch, resized": (F.to_image, batch, channels_last, cropped, resized, floats),
    "a view as a batch, resized": (F.to_image, cropped, lambda x: x[None], resized, floats),
    "a view of a batch of one, resized": (F.to_image, lambda x: x[None], cropped, resized, floats),
    "a view of an interleaved batch of one, resized": (
        F.to_image,
        lambda x: channels_last(x[None]),
        cropped,
        resized,
        floats,
    ),
    "of a view of a batch": (F1.to_tensor, batch, cropped, lambda x: x[1]),
    "of a view of a batch of a view": (F1.to_tensor, fewer_rows, batch, cropped, lambda x: x[1:]),
    "of a batch of views": (F1.to_tensor, cropped, batch, lambda x: x[0]),
    "of a batch that was interleaved": (F.pil_to_tensor, batch, lambda x: x[1], floats),
    "of a batch of floats that were interleaved": (F.pil_to_tensor, floats, contrast, batch, lambda x: [*x][1]),
    "of a batch, interleaved": (F1.to_tensor, batch, channels_last, lambda x: x[0]),
}


def power(x: Any) -> Any:
    return x**0.7


def used(x: Any) -> Any:
    """What torch makes of a tensor that something else was asked of before."""
    x.max()
    return torch.cat([gamma(x).flatten(), power(x).flatten(), x.mean()[None]])


def values(image: Image.Image, *steps: Transform) -> torch.Tensor:
    found: Any = image
    torch.manual_seed(0)
    for step in steps:
        found = step(found)
    assert not isinstance(found, Image.Image)
    return found.clone() + 0  # type: ignore[no-any-return]


def images() -> list[Image.Image]:
    sizes = np.random.default_rng(1).integers(12, 60, (6, 2)).tolist()
    drawn = [np.random.default_rng(n).integers(0, 256, (*size, 3), np.uint8) for n, size in enumerate(sizes)]
    return [Image.fromarray(each) for each in drawn]


LAST = [contrast, gamma, used, lambda x: contrast(x.detach().cpu())]


@pytest.mark.parametrize("last", LAST)
@pytest.mark.parametrize("name", PIPELINES)
def test_floats_are_rounded_where_torchvisions_tensor_lies(name: str, last: Transform) -> None:
    steps = *PIPELINES[name], last
    before = accel.stats()["images"]
    for image in images():
        expected, found = (run(backend, partial(values, image, *steps))[0] for backend in ("torchvision", "cpu"))
        assert torch.equal(found, expected)
    assert accel.stats()["images"] > before


@pytest.mark.parametrize("name", PIPELINES)
def test_strides_are_torchvisions(name: str) -> None:
    """Before and after it has values."""

    def strides(image: Image.Image) -> torch.Tensor:
        tensor: Any = image
        for step in PIPELINES[name]:
            tensor = step(tensor)
        before = tensor.stride()
        tensor.max()
        return torch.tensor(
            [
                [stride for stride, size in zip(each, tensor.shape, strict=True) if size > 1]
                for each in (before, tensor.stride())
            ]
        )

    for image in images()[:4]:
        expected, found = (run(backend, partial(strides, image))[0] for backend in ("torchvision", "cpu"))
        assert torch.equal(found, expected)


def test_between_the_rows_of_a_view_is_nothing_of_the_process() -> None:
    """Files that it is saved to are the same each time."""
    ones = [torch.full((3000,), float("nan")) for _ in range(99)]  # freed memory that would be seen
    for _ in range(20):
        del ones[::2]
        crop = run("cpu", lambda: F.crop(F1.to_tensor(images()[0]), 1, 1, 6, 6).contiguous)[0]
        whole = crop.__self__  # type: ignore[attr-defined]
        whole.max()
        assert whole.stride(-2) > whole.shape[-1]
        values = torch.tensor(whole.untyped_storage().tolist(), dtype=torch.uint8).view(torch.float32)
        assert not values.isnan().any()
        assert values.count_nonzero() <= whole.numel()


def test_grey_channels_are_the_same_memory() -> None:
    """So torch refuses to write in place into them, and so do we."""
    for erase in (
        lambda x: F.erase(x, 1, 1, 2, 3, torch.zeros(1), True),
        lambda x: F.normalize(x, [0.5] * 3, [0.5] * 3, inplace=True),
        lambda x: x.add_(1),
    ):

        def written(image: Image.Image, erase: Transform = erase) -> torch.Tensor:
            with pytest.raises(RuntimeError, match="single memory location"):
                erase(grey(F1.to_tensor(image)))
            return torch.zeros(())

        for backend in ("torchvision", "cpu"):
            run(backend, partial(written, images()[0]))


def test_a_tensor_of_the_users_own() -> None:
    """In either order; one that is no dense memory is torchvision's."""
    for image in images():
        interleaved = torch.from_numpy(np.array(image)).permute(2, 0, 1)
        for tensor in (interleaved, interleaved.contiguous(), interleaved.contiguous()[:, 1:-1, 2:]):
            for last in (contrast, gamma):

                def made(given: torch.Tensor = tensor, last: Transform = last) -> torch.Tensor:
                    return last(floats(F.horizontal_flip(given))).clone()  # type: ignore[no-any-return]

                assert torch.equal(run("cpu", made)[0], run("torchvision", made)[0])


@pytest.mark.parametrize("last", [contrast, gamma])
def test_another_layout_would_be_seen(last: Transform) -> None:
    differ = 0
    for image in images():
        planar = F1.to_tensor(image)
        interleaved = planar.permute(1, 2, 0).contiguous().permute(2, 0, 1)
        differ += not torch.equal(last(planar), last(interleaved))
    assert differ
