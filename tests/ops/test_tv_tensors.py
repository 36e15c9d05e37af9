"""Torch functions of a lazy ``tv_tensors.Image``: torchvision's class and values, with either return type."""

import copy
import pickle
from collections.abc import Callable
from io import BytesIO
from typing import Any

import pytest
import torch
from PIL import Image
from torch.utils.data import default_collate
from torchvision import tv_tensors
from torchvision.transforms import functional as v1
from torchvision.transforms.v2 import functional as F

import accel
from accel.hooks.tv_tensors import LazyTVImage
from accel.lazy.tensor import LazyTensor
from accel.lazy.tensor_base import LazyTensorBase, is_lazy
from tests.support.helpers import assert_equal_runs, jpeg, known

FILE = jpeg(40, 30)


def saved(image: torch.Tensor) -> Any:
    stream = BytesIO()
    torch.save(image, stream)
    stream.seek(0)
    return torch.load(stream, weights_only=False)


def filled(image: torch.Tensor) -> torch.Tensor:
    image[0] = 3
    return image


USES: dict[str, Callable[[Any], Any]] = {
    "cpu": lambda x: x.cpu(),
    "to": lambda x: [x.to("cpu"), x.to(torch.float32), x.to(torch.zeros(1)), x.to("cpu", copy=True)],
    "casts": lambda x: [x.float(), x.half(), x.byte(), x.type(torch.float64)],
    "clone": lambda x: [x.clone(), torch.clone(x), x.detach(), torch.detach(x), x.data],
    "contiguous": lambda x: x.contiguous(),
    "gradient": lambda x: x.to(torch.float32).requires_grad_(True),
    "stack": lambda x: [torch.stack([x, x]), torch.stack([x, x], 1), torch.cat([x, x])],
    "collate": lambda x: default_collate([x, x]),
    "arithmetic": lambda x: [x + 1, x == x, x.float().mean(), x.add_(1)],
    "index": lambda x: [x[0], list(x), x.unbind(), x.chunk(3), filled(x)],
    "views": lambda x: [x.mT, x.unsqueeze(0), x.permute(1, 2, 0)],
    "made-like": lambda x: [x.new_zeros(2), torch.zeros_like(x)],
    "copies": lambda x: [copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x)), saved(x)],
    "wrapped": lambda x: [tv_tensors.Image(x), tv_tensors.wrap(x + 1, like=x), tv_tensors.Mask(x[:1])],
    "wrapped-like-itself": lambda x: tv_tensors.wrap(x, like=x),
    "of-its-class": lambda x: (x + 1).as_subclass(type(x)) * 2,
    "pure": lambda x: x.as_subclass(torch.Tensor),
    "questions": lambda x: [repr(x), len(x), x.type(), x.is_shared(), x.is_pinned(), x.requires_grad],
    "sizes": lambda x: [F.get_size(x), F.get_dimensions(x), F.get_num_channels(x)],
    "v2": lambda x: [F.crop(x, 1, 2, 10, 12), F.resize(x, [20, 21]), F.to_dtype(x, torch.float32, True), F.invert(x)],
    "v1-geometry": lambda x: [v1.crop(x, 1, 2, 10, 12), v1.hflip(x), v1.resize(x, [20, 21]), v1.pad(x, [1])],
    "v1-values": lambda x: [v1.convert_image_dtype(x), v1.normalize(v1.convert_image_dtype(x), [0.5], [0.2])],
    "v1-erase": lambda x: v1.erase(x, 1, 1, 3, 3, torch.tensor([[[7]]])),
    "v1-image": lambda x: [v1.to_pil_image(x), v1.adjust_brightness(x, 0.5)],
}


@pytest.mark.parametrize("name", USES)
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_uses(name: str) -> None:
    def uses() -> Any:
        found = {}
        for returned in ("Tensor", "TVTensor"):
            with tv_tensors.set_return_type(returned):
                for make in (F.to_image, F.pil_to_tensor):
                    found[returned, make.__name__] = known(USES[name](make(Image.open(BytesIO(FILE)))))
        return found

    assert_equal_runs(uses)


ALIASES: dict[str, Callable[[Any, Any], Any]] = {
    "tensor": lambda x, y: x.add_(1),
    "image": lambda x, y: y.add_(1),
    "tensor, a row": lambda x, y: x[0].zero_(),
    "tensor, after a step": lambda x, y: [F.resize(y, [20, 21]), x.add_(1)],
    "image, used before": lambda x, y: [y.sum(), x.add_(1)],
    "tensor, used before": lambda x, y: [x.sum(), y.mul_(2)],
    "tensor, stacked before": lambda x, y: [torch.stack([y, y]), x.add_(1)],
    "nothing": lambda x, y: [x.data_ptr() == y.data_ptr(), x is y],
}


@pytest.mark.parametrize("make", [F.to_image, tv_tensors.Image], ids=["to_image", "Image"])
@pytest.mark.parametrize("name", ALIASES)
def test_an_image_of_a_tensor_shares_its_memory(name: str, make: Callable[[Any], Any]) -> None:
    def changed() -> Any:
        tensor = v1.pil_to_tensor(Image.open(BytesIO(FILE)))
        image = make(tensor)
        return known([ALIASES[name](tensor, image), tensor, image])

    assert_equal_runs(changed)


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK", "1", "I;16"])
def test_an_image_of_a_pillow_image(mode: str) -> None:
    def made() -> Any:
        whole = Image.open(BytesIO(FILE))
        image = whole.convert(mode) if mode != "I;16" else Image.new(mode, (4, 3))
        every = [tv_tensors.Image(image), tv_tensors.Image(image, dtype=torch.float32), tv_tensors.Image(data=image)]
        return known([(each, each.stride()[-2:]) for each in every])

    assert_equal_runs(made)
    with accel.image_backend("cpu"):
        assert is_lazy(tv_tensors.Image(Image.open(BytesIO(FILE))))
        with pytest.raises(TypeError, match=r"unexpected keyword argument 'other'"):
            tv_tensors.Image(Image.open(BytesIO(FILE)), other=None)


class Own(tv_tensors.Image):  # type: ignore[misc]
    pass


def test_a_class_of_ones_own() -> None:
    assert_equal_runs(lambda: known(Own(Image.open(BytesIO(FILE)))))


def test_the_return_types_differ() -> None:
    """So that the wrong one would be noticed above."""
    with accel.image_backend("cpu"):
        image = F.to_image(Image.open(BytesIO(FILE)))
        assert type(torch.stack([image, image])) is LazyTensor
        with tv_tensors.set_return_type("TVTensor"):
            assert type(torch.stack([image, image])) is tv_tensors.Image


@pytest.mark.parametrize("kind", [LazyTensor, LazyTVImage])
def test_a_plain_tensor_told_to_be_of_a_lazy_class(kind: type[LazyTensorBase]) -> None:
    """As code does that takes the class from another tensor."""
    plain = torch.arange(12.0).view(3, 2, 2)
    told = plain.as_subclass(kind)
    assert not is_lazy(told)
    assert told.shape == (3, 2, 2)
    assert torch.equal(told + 1, plain + 1)
    told.add_(1)
    assert plain[0, 0, 0] == 1
    assert repr(told)
