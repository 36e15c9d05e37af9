"""C++ code that asks a lazy tensor for its memory, past Python: it gets the values or an exception, never null."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils import dlpack
from torchvision.transforms import functional as F

import accel
from tests.support import helpers
from tests.support.tensors import both, make_batch, make_single

EXPORTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "torch.utils.dlpack": lambda tensor: dlpack.to_dlpack(tensor),
    "torch": lambda tensor: torch.to_dlpack(tensor),  # type: ignore[attr-defined]
    "method": lambda tensor: tensor.__dlpack__(),
}


@pytest.mark.parametrize("export", EXPORTS.values(), ids=EXPORTS)
def test_dlpack_has_the_values(export: Callable[[torch.Tensor], Any]) -> None:
    with accel.image_backend("cpu"):
        for make in (make_single, make_batch):
            lazy, expected = both(make)
            assert torch.from_dlpack(export(lazy)).equal(expected)


ASKING = """
import sys
import torch
from io import BytesIO
from PIL import Image
from torchvision.transforms import functional as F

keep, missing = sys.argv[1], sys.argv[2:]
for name in missing:
    delattr(torch._C, name)
import accel

picture = BytesIO()
Image.new("RGB", (20, 20)).save(picture, "JPEG")
early = torch._C._to_dlpack, torch._C._to_dlpack_versioned
accel.set_image_backend("cpu")

def share(tensor):
    other = torch.empty(0)
    other.data = tensor
    other.sum()

for ask in (*early, share) if keep == "some" else early:
    tensor = F.to_tensor(Image.open(picture))
    try:
        ask(tensor)
    except RuntimeError as error:
        print("raised")
    assert float(tensor.sum()) == 0
"""
GUARDS = [
    name
    for name in ("_set_storage_access_error_msg", "_set_storage_data_ptr_access_error_msg")
    if hasattr(torch._C, name)
]


@pytest.mark.parametrize("missing", range(len(GUARDS) + 1))
def test_c_functions_bound_early_raise(missing: int) -> None:
    """In a process of its own, which would otherwise end with these tests; and as in builds of torch that lack some."""
    some = missing < len(GUARDS)
    raised = helpers.python(ASKING, "some" if some else "none", *GUARDS[:missing]).split()
    assert raised == ["raised"] * (3 if some else 2)


def test_what_is_raised_says_what_to_do() -> None:
    lazy = both(make_single)[0]
    if GUARDS:
        with pytest.raises(RuntimeError, match=r"lazy tensor of accel's.*images\.detach\(\)"):
            torch._C._to_dlpack(lazy)


def test_the_c_interface_of_dlpack_is_found_on_plain_tensors_alone() -> None:
    lazy = both(make_single)[0]
    assert not hasattr(type(lazy), "__dlpack_c_exchange_api__")
    lazy.sum()
    assert hasattr(type(lazy), "__dlpack_c_exchange_api__") == hasattr(torch.Tensor, "__dlpack_c_exchange_api__")


def test_writes_into_crops() -> None:
    """A known difference: a crop of a lazy tensor has memory of its own; one of a tensor that was used is a view."""
    for used in (False, True):
        with accel.image_backend("cpu"):
            tensor = make_single()
            before = tensor.clone().sum()
            if used:
                tensor.sum()
            crop = F.crop(tensor, 1, 2, 5, 4)
            crop.zero_()
            assert float(crop.sum()) == 0
            assert tensor.sum().equal(before) is not used
    plain = both(make_single)[1]
    F.crop(plain, 1, 2, 5, 4).zero_()
    assert not plain.sum().equal(before)


def test_values_made_under_inference_mode_are_ordinary() -> None:
    """A known difference."""
    with accel.image_backend("cpu"), torch.inference_mode():
        lazy = make_single()
        expected = lazy.clone() + 0
    assert not lazy.is_inference()
    assert expected.is_inference()
    assert lazy.equal(expected)
    (lazy * torch.ones((), requires_grad=True)).sum().backward()
