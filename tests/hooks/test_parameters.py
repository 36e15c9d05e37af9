"""Parameters drawn with less work: the same numbers, in the same order, and the same state afterwards."""

import concurrent.futures
import math
from io import BytesIO
from types import FunctionType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms as T
from torchvision.transforms import v2

import accel
from accel.hooks import tv_transforms
from accel.hooks.compiled.random_numbers import live
from tests.support import helpers, inside
from tests.support.processes import in_threads

FLIPS = (T.RandomHorizontalFlip, T.RandomVerticalFlip)


def _file() -> BytesIO:
    pixels = np.random.default_rng(5).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    file = BytesIO()
    Image.fromarray(pixels).save(file, "JPEG")
    return file


def _flips(transform: Any) -> list[torch.Tensor]:
    image = Image.open(_file())
    return [T.functional.pil_to_tensor(transform(image)) for _ in range(150)]


@pytest.mark.parametrize("cls", FLIPS)
@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.8, 1.0, 1, torch.tensor(0.3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_flips_draw_what_torchvision_draws(cls: Any, p: Any, dtype: torch.dtype) -> None:
    torch.set_default_dtype(dtype)
    found = helpers.assert_equal_runs(lambda: _flips(cls(p)), 3)
    flipped = sum(not torch.equal(each, found[0]) for each in found)
    assert bool(flipped) == (0 < float(p) < 1), "both outcomes are seen where both can happen"


SMALL_CROPS = {
    "inside": T.RandomCrop(20),
    "padded": T.RandomCrop(44, padding=4),
    "reflected": T.RandomCrop((30, 60), padding=(4, 9), padding_mode="reflect"),
    "needed": T.RandomCrop((60, 50), pad_if_needed=True, fill=(1, 2, 3)),
    "whole": T.RandomCrop((40, 60)),
}


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("name", SMALL_CROPS)
def test_small_crops_draw_what_torchvision_draws(name: str, eager: bool) -> None:
    def crops() -> list[torch.Tensor]:
        image = Image.open(_file())
        image = Image.fromarray(np.array(image)) if eager else image
        return [T.functional.pil_to_tensor(SMALL_CROPS[name](image)) for _ in range(30)]

    found = helpers.assert_equal_runs(crops, 3)
    assert any(not torch.equal(each, found[0]) for each in found) == (name != "whole")
    code = T.RandomCrop.forward.__code__, T.RandomCrop.get_params.__code__
    with accel.image_backend("cpu"):
        transform = T.RandomCrop(300)
        with pytest.raises(ValueError, match="larger than input image size"):
            transform(Image.open(_file()))
    assert (T.RandomCrop.forward.__code__, T.RandomCrop.get_params.__code__) == code


CROPS = (
    v2.RandomResizedCrop(20, antialias=True),
    v2.RandomResizedCrop((9, 30), scale=(0.9, 1.0), ratio=(1.9, 2.0)),
    v2.RandomResizedCrop(20, ratio=(8.0, 9.0)),  # mostly the last resort
)


def _crops(transform: Any, first: Any) -> Any:
    drawn = []
    for _ in range(25):
        image = first(Image.open(_file()))
        drawn.append([transform.make_params([image]), torch.as_tensor(v2.functional.to_image(transform(image)))])
    return drawn


@pytest.mark.parametrize(
    "first", [v2.Identity(), v2.ToImage(), v2.PILToTensor()], ids=lambda first: type(first).__name__
)
@pytest.mark.parametrize("transform", CROPS, ids=["square", "wide", "flat"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_crops_of_v2_draw_what_torchvision_draws(transform: Any, first: Any, dtype: torch.dtype) -> None:
    torch.set_default_dtype(dtype)
    helpers.assert_equal_runs(lambda: _crops(transform, first), 3)
    with accel.image_backend("cpu"):
        in_use = v2.RandomResizedCrop.make_params is not _MAKE_PARAMS
        assert in_use == (dtype == torch.float32), "the cheaper one draws float32"
    assert v2.RandomResizedCrop.make_params is _MAKE_PARAMS


_MAKE_PARAMS = v2.RandomResizedCrop.make_params


@pytest.mark.parametrize("flip", [T.RandomHorizontalFlip, v2.RandomHorizontalFlip])
def test_a_probability_is_compared_in_the_dtype_of_the_draw(flip: Any) -> None:
    """A draw that equals the probability in float32 and is less in float64."""
    torch.manual_seed(5)
    drawn = torch.rand(1).item()
    probability = math.nextafter(drawn, 1.0)
    assert drawn < probability
    assert drawn == torch.tensor(probability).item()
    with accel.image_backend("cpu"):
        image = Image.open(_file())
        for p, flips in ((probability, False), (drawn + 1e-6, True)):
            torch.manual_seed(5)
            assert (flip(p)(image) is not image) == flips


def test_none_is_refused_by_its_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is refused is torchvision's own: as exact, so that nothing else tells."""
    tried = inside.try_draws_again(monkeypatch)
    with accel.image_backend("cpu"):
        assert set(tried.values()) == {True}


def test_what_draws_otherwise_is_not_used() -> None:
    def one() -> Any:
        return torch.rand(1).item(), torch.rand(1).item()

    def swapped() -> Any:
        return tuple(reversed(one()))

    def greedy() -> Any:
        return *one(), torch.rand(1) * 0

    def failing() -> Any:
        raise AttributeError("gone")

    def alike(other: FunctionType) -> bool:
        return tv_transforms._draw_alike(one, other, lambda generator: ())

    assert alike(one)
    assert not alike(swapped)
    assert not alike(failing)
    assert not alike(lambda: greedy()[:2])


def test_threads_draw_apart() -> None:
    """What numbers are drawn into belongs to one thread."""
    (other,) = in_threads([lambda: live.of_thread.live])
    assert other is not live.of_thread.live
    assert other is not live.of_thread.rewindable


@pytest.mark.parametrize(
    "transform",
    [T.RandomHorizontalFlip(), T.RandomResizedCrop(20), v2.RandomHorizontalFlip(), v2.RandomResizedCrop(20)],
    ids=["v1-flip", "v1-crop", "v2-flip", "v2-crop"],
)
def test_a_thread_that_begins_in_inference_mode(transform: Any) -> None:
    """The memory it draws into later, outside, is no inference tensor."""

    def draws() -> list[Any]:
        torch.manual_seed(1)
        made = []
        for inference in (True, False, True, False):
            with torch.inference_mode(inference):
                made.append(T.functional.pil_to_tensor(transform(Image.open(_file()))) + 0)
        return made

    def in_a_thread() -> list[Any]:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            return pool.submit(draws).result()

    expected, _ = helpers.run("torchvision", draws)
    accel.set_image_backend("cpu")
    assert all(map(torch.equal, in_a_thread(), expected))
