"""LazyTensor: answers about itself at once, computes when it is used, and is then a plain tensor."""

import copy
import operator
import pickle
import weakref
from collections.abc import Callable
from io import BytesIO
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms as T
from torchvision.transforms import functional as F
from torchvision.transforms import v2

import accel
from accel.lazy import shell
from tests.support import helpers
from tests.support.helpers import assert_same, is_lazy, outcome
from tests.support.tensors import (
    MAKERS,
    Maker,
    both,
    both_of_each,
    make_batch,
    make_dot,
    make_grey,
    make_single,
    make_uint8,
)

COLOUR, GREY = helpers.pictures()[0], helpers.pictures()[3]


@pytest.fixture(params=MAKERS.values(), ids=MAKERS)
def make(request: pytest.FixtureRequest) -> Maker:
    return request.param  # type: ignore[no-any-return]


ATTRIBUTES = [
    *("shape", "dtype", "device", "layout", "ndim", "is_cuda", "is_cpu", "is_sparse", "is_quantized", "is_meta"),
    *("requires_grad", "is_leaf", "grad", "grad_fn", "itemsize", "nbytes"),
]
METADATA: dict[str, Callable[[torch.Tensor], Any]] = {name: operator.attrgetter(name) for name in ATTRIBUTES} | {
    "size()": lambda tensor: (tensor.size(), tensor.size(-1)),
    "dim()": lambda tensor: tensor.dim(),
    "numel()": lambda tensor: (tensor.numel(), tensor.nelement(), torch.numel(tensor)),
    "len()": len,
    "element_size()": lambda tensor: tensor.element_size(),
    "floating": lambda tensor: (tensor.is_floating_point(), torch.is_floating_point(tensor), tensor.is_complex()),
    "contiguous": lambda tensor: tensor.is_contiguous(),
    "get_device": lambda tensor: tensor.get_device(),
    "storage_offset": lambda tensor: tensor.storage_offset(),
    "is_tensor": torch.is_tensor,
    "isinstance": lambda tensor: isinstance(tensor, torch.Tensor),
    "signed": lambda tensor: tensor.is_signed(),
}


def test_metadata_computes_nothing(make: Maker) -> None:
    lazy, plain = both(make)
    for name, question in METADATA.items():
        assert question(lazy) == question(plain), name
        assert is_lazy(lazy), name
    assert_same(lazy, plain)  # and the strides, before and after


# torch's plain tensors have numpy warn of this as well
_QUIET = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")


def _set_item(tensor: torch.Tensor) -> torch.Tensor:
    tensor[..., 0] = 1
    return tensor


def _iadd(tensor: torch.Tensor) -> torch.Tensor:
    tensor += 1
    return tensor


def _requires_grad(tensor: torch.Tensor) -> Any:
    leaf = tensor.double().requires_grad_()
    (leaf * leaf).sum().backward()
    return leaf.grad


def _requires_grad_in_place(tensor: torch.Tensor) -> Any:
    if not tensor.is_floating_point():
        return outcome(tensor.requires_grad_)
    tensor.requires_grad_()
    (tensor * tensor).sum().backward()
    gradient, tensor.grad = tensor.grad, None
    return gradient, tensor.requires_grad, tensor.is_leaf, tensor.requires_grad_(False).requires_grad


def _weights(tensor: torch.Tensor) -> Any:
    weight = torch.ones(tensor.shape[-1], dtype=torch.float64, requires_grad=True)
    (tensor.double() @ weight).sum().backward()
    return weight.grad


def _written_to(tensor: torch.Tensor) -> Any:
    target = torch.zeros(tensor.shape, dtype=tensor.dtype)
    target.copy_(tensor)
    target[..., 0:1] = tensor[..., 0:1]
    return target


def _saved(tensor: torch.Tensor) -> Any:
    stream = BytesIO()
    torch.save({"images": tensor}, stream)
    stream.seek(0)
    return torch.load(stream)["images"]


USES: dict[str, Callable[[torch.Tensor], Any]] = {
    "add": lambda tensor: tensor + 1,
    "radd": lambda tensor: 1 - tensor,
    "mul-plain": lambda tensor: torch.full(tensor.shape[-1:], 2) * tensor,
    "matmul": lambda tensor: tensor.float() @ tensor.float().transpose(-1, -2),
    "sum": lambda tensor: tensor.sum(dtype=torch.float64),
    "mean": lambda tensor: tensor.double().mean(dim=-1),
    "comparison": lambda tensor: tensor > 0.5,
    "equal": lambda tensor: torch.equal(tensor, tensor.clone()),
    "allclose": lambda tensor: torch.allclose(tensor, tensor),
    "index": lambda tensor: tensor[0],
    "index-all": lambda tensor: tensor[..., 0, -1],
    "slice": lambda tensor: tensor[..., ::2],
    "mask": lambda tensor: tensor[tensor > 0],
    "set-item": _set_item,
    "iterate": list,
    "unpack": lambda tensor: (lambda first, *others: others)(*tensor),
    "unbind": lambda tensor: tensor.unbind(0),
    "numpy": lambda tensor: tensor.numpy(),
    "asarray": np.asarray,
    "asarray-dtype": lambda tensor: np.asarray(tensor, np.float64),
    "np.array": lambda tensor: np.array(tensor),
    "np.sum": lambda tensor: float(np.sum(tensor.numpy(), dtype=np.float64)),
    "np.stack": lambda tensor: np.stack([tensor, tensor]),
    "tolist": lambda tensor: tensor.tolist(),
    "item": lambda tensor: outcome(tensor.item),
    "bool": lambda tensor: outcome(lambda: bool(tensor)),
    "float": lambda tensor: outcome(lambda: float(tensor)),
    "int": lambda tensor: outcome(lambda: int(tensor)),
    "repr": repr,
    "str": str,
    "format": lambda tensor: outcome(lambda: f"{tensor:.2f}"),
    "contains": lambda tensor: 7 in tensor,
    "clone": lambda tensor: tensor.clone(),
    "detach": lambda tensor: tensor.detach(),
    "data": lambda tensor: tensor.data,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "deepcopy-list": lambda tensor: copy.deepcopy([tensor, {"a": tensor}]),
    "pickle": lambda tensor: pickle.loads(pickle.dumps(tensor)) + 0,
    "save": _saved,
    "dlpack": lambda tensor: torch.from_dlpack(tensor),
    "as_tensor": torch.as_tensor,
    "tensor": lambda tensor: tensor.new_tensor([1.0]) if tensor.is_floating_point() else tensor,
    "zeros_like": torch.zeros_like,
    "new_zeros": lambda tensor: tensor.new_zeros(3),
    "empty_like": lambda tensor: torch.empty_like(tensor).shape,
    "permute": lambda tensor: tensor.permute(*reversed(range(tensor.ndim))),
    "T": lambda tensor: tensor.mT,
    "view": lambda tensor: outcome(lambda: tensor.view(-1)),
    "flatten": lambda tensor: tensor.flatten(),
    "unsqueeze": lambda tensor: tensor.unsqueeze(0),
    "cat": lambda tensor: torch.cat([tensor, tensor]),
    "stack-1": lambda tensor: torch.stack([tensor, tensor], 1),
    "stack-dim": lambda tensor: torch.stack([tensor, tensor], dim=-1),
    "stack-out": lambda tensor: torch.stack([tensor, tensor], out=torch.empty(0, dtype=tensor.dtype)),
    "stack-keyword": lambda tensor: torch.stack(tensors=[tensor, tensor]),
    "stack-tuple": lambda tensor: torch.stack((tensor, tensor)),
    "stack-plain": lambda tensor: torch.stack([tensor, torch.zeros(tensor.shape, dtype=tensor.dtype)]),
    "stack-plain-first": lambda tensor: torch.stack([torch.zeros(tensor.shape, dtype=tensor.dtype), tensor]),
    "stack-touched": lambda tensor: torch.stack([tensor.clone().add_(1), tensor]),
    "collate": lambda tensor: torch.utils.data.default_collate([tensor, tensor]),
    "collate-plain": lambda tensor: torch.utils.data.default_collate([tensor, tensor.clone().add_(1)]),
    "convert": torch.utils.data.default_convert,
    "add_": lambda tensor: tensor.add_(1),
    "iadd": _iadd,
    "zero_": lambda tensor: (tensor.zero_(), tensor)[1],
    "clamp_": lambda tensor: (tensor.clamp_(0, 0.5) if tensor.is_floating_point() else tensor.clamp_(0, 9), tensor)[1],
    "copy_": lambda tensor: (tensor.copy_(torch.ones(tensor.shape)), tensor)[1],
    "copied": _written_to,
    "requires_grad": _requires_grad,
    "requires_grad_": _requires_grad_in_place,
    "weights": _weights,
    "to-cpu": lambda tensor: tensor.to("cpu"),
    "to-device": lambda tensor: tensor.to(torch.device("cpu"), non_blocking=True),
    "to-device-dtype": lambda tensor: tensor.to("cpu", torch.float64),
    "to-keyword": lambda tensor: tensor.to(device="cpu", dtype=torch.float16),
    "to-other": lambda tensor: tensor.to(torch.zeros(2, dtype=torch.float64)),
    "to-meta": lambda tensor: tensor.to("meta").shape,
    "to-copy": lambda tensor: tensor.to(tensor.dtype, copy=True),
    "to-nothing": lambda tensor: tensor.to(),
    "to-bad": lambda tensor: outcome(lambda: tensor.to("nonsense")),
    "cpu": lambda tensor: tensor.cpu(),
    "type": lambda tensor: tensor.type(),
    "type-as": lambda tensor: tensor.type_as(torch.zeros(1, dtype=torch.float64)),
    "half": lambda tensor: tensor.half() + 0,
    "half-method-format": lambda tensor: outcome(lambda: tensor.half(memory_format=torch.channels_last)),
    "channels-last": lambda tensor: outcome(lambda: tensor.contiguous(memory_format=torch.channels_last)),
    "is-channels-last": lambda tensor: tensor.is_contiguous(memory_format=torch.channels_last),
    "storage": lambda tensor: tensor.untyped_storage().nbytes() >= tensor.nbytes,
    "data_ptr": lambda tensor: tensor.data_ptr() != 0,
    "share": lambda tensor: (tensor.share_memory_().is_shared(), tensor),
    "resize_": lambda tensor: tensor.resize_(1),
    "where": lambda tensor: torch.where(tensor > 0.1, tensor, 0),
    "interpolate": lambda tensor: torch.nn.functional.interpolate(tensor.float().reshape(1, 1, -1), size=5),
    "expand": lambda tensor: tensor.expand(2, *tensor.shape),
    "nonzero": lambda tensor: tensor.nonzero().shape[1],
    "apply": lambda tensor: tensor.max(),
    "equality": lambda tensor: (tensor == tensor.clone()).all(),
    "divmod": lambda tensor: outcome(lambda: divmod(tensor, 2)),
    "memory": lambda tensor: bytes(memoryview(tensor.numpy()).cast("B")) if tensor.is_contiguous() else b"",
    "bad-attribute": lambda tensor: outcome(lambda: tensor.no_such_attribute),
    "bad-call": lambda tensor: outcome(lambda: tensor.sum(99)),
    "bad-normalize": lambda tensor: outcome(lambda: F.normalize(tensor, [0.5] * 7, [1.0] * 7)),
    "func": lambda tensor: torch.vmap(lambda row: row * 2)(tensor),
    "linear": lambda tensor: torch.nn.functional.linear(tensor.double(), torch.ones(2, tensor.shape[-1]).double()),
}


@_QUIET
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_any_use_gives_what_torch_gives(use: Callable[[torch.Tensor], Any]) -> None:
    """A weak reference keeps ``swap_tensors`` from working; the values are then handed out beside the shell."""
    for kept in (False, True):
        for lazy, plain in both_of_each():
            reference = weakref.ref(lazy) if kept else None
            assert_same(use(lazy), use(plain))
            assert reference is None or reference() is lazy
            assert_same(lazy, plain)


@pytest.mark.parametrize("use", [lambda x: x.to("cpu"), lambda x: x.mul_(2), lambda x: x.requires_grad_(False)])
def test_values_that_were_handed_out_stay_values(use: Callable[[torch.Tensor], Any]) -> None:
    """Though nothing keeps the shell from becoming its values any more."""
    for lazy, plain in both_of_each():
        reference = weakref.ref(lazy)
        found, expected = use(lazy), use(plain)
        del reference
        for value in (found, expected):
            value.add_(1)
        assert_same(lazy.sum(), plain.sum())
        assert_same(found, expected)
        assert_same(lazy, plain)


def test_who_came_by_the_shell_just_before_has_the_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread may be in C++ with the shell when it is exchanged, and get that object from there."""
    swap, shells = shell.swap, []

    def swapped(tensor: torch.Tensor, value: torch.Tensor) -> bool:
        shells.append(value)
        return swap(tensor, value)

    monkeypatch.setattr(shell, "swap", swapped)
    for lazy, plain in both_of_each():
        for tensor in (lazy, plain):
            tensor.mul_(2)
        assert_same(shells.pop(), plain)
        assert_same(lazy, plain)


@pytest.mark.parametrize("use", ["add", "numpy", "to-cpu", "sum", "add_", "repr"])
def test_a_used_tensor_is_plain(make: Maker, use: str) -> None:
    lazy, _ = both(make)
    address = id(lazy)
    USES[use](lazy)
    assert type(lazy) is torch.Tensor
    assert id(lazy) == address
    assert lazy.__dict__ == {}


def test_to_a_device_gives_a_plain_tensor(make: Maker) -> None:
    lazy, _ = both(make)
    assert type(lazy.to("cpu")) is torch.Tensor
    lazy, _ = both(make)
    reference = weakref.ref(lazy)
    assert type(lazy.to("cpu", torch.float64)) is torch.Tensor
    assert type(lazy.to(device="cpu")) is torch.Tensor
    assert reference() is lazy


@pytest.mark.parametrize(
    "keep",
    [
        lambda tensor: tensor.half(),
        lambda tensor: tensor.contiguous(),
        lambda tensor: tensor.clone(),
        lambda tensor: tensor.to(torch.float64),
        lambda tensor: torch.stack([tensor, tensor]),
        lambda tensor: torch.utils.data.default_collate([tensor, tensor]),
    ],
)
def test_what_loaders_do_stays_lazy(make: Maker, keep: Callable[[torch.Tensor], Any]) -> None:
    lazy, plain = both(make)
    with accel.image_backend("cpu"):
        result = keep(lazy)
    assert is_lazy(result)
    assert is_lazy(lazy)
    assert_same(result, keep(plain))


def test_a_message_to_another_process_is_a_recipe(make: Maker) -> None:
    """And nothing else is: what is pickled or saved can be read without accel."""
    lazy, plain = both(make)
    message = ForkingPickler.dumps(lazy)
    assert is_lazy(lazy)
    arrived = pickle.loads(message)
    assert is_lazy(arrived)
    assert_same(arrived, plain)
    assert b"accel" in bytes(message)
    assert b"accel" not in pickle.dumps(lazy)


def test_casts_that_change_nothing_return_the_tensor_itself() -> None:
    lazy, _ = both(make_batch)
    assert lazy.float() is lazy
    assert lazy.to(torch.float32) is lazy
    assert lazy.contiguous() is lazy
    assert lazy.clone() is not lazy


def test_a_changed_tensor_is_not_recorded_from_its_source() -> None:
    for kept in (False, True):
        lazy, plain = both(make_batch)
        reference = weakref.ref(lazy) if kept else None
        for tensor in (lazy, plain):
            tensor.mul_(2)
        assert_same(torch.stack([lazy, lazy]), torch.stack([plain, plain]))
        assert_same(lazy.half(), plain.half())
        assert_same(F.convert_image_dtype(lazy, torch.float64), F.convert_image_dtype(plain, torch.float64))
        assert_same(F.normalize(lazy, [0.5], [0.1]), F.normalize(plain, [0.5], [0.1]))
        assert_same(pickle.loads(pickle.dumps(lazy)), plain)
        assert_same(copy.deepcopy(lazy), plain)
        assert_same(lazy.clone(), plain)
        assert_same(lazy.to("cpu"), plain)
        assert reference is None or reference() is lazy


def test_a_clone_is_its_own() -> None:
    lazy, plain = both(make_single)
    with accel.image_backend("cpu"):
        clone = lazy.clone()
        stacked = torch.stack([lazy, lazy])
    lazy.zero_()
    assert_same(clone, plain)
    assert_same(stacked, torch.stack([plain, plain]))


@pytest.mark.parametrize("others", [[make_grey], [make_batch], [make_single, make_dot]])
def test_stacking_what_does_not_fit_raises_torchs_error(others: list[Maker]) -> None:
    with accel.image_backend("cpu"):
        states = [make_single(), *(other() for other in others)]
    plains = [make_single(), *(other() for other in others)]
    for stack in (torch.stack, torch.utils.data.default_collate):
        with pytest.raises(RuntimeError) as expected:
            stack(plains)
        with pytest.raises(RuntimeError) as actual:
            stack(states)
        if stack is torch.stack:
            assert str(actual.value) == str(expected.value)


def test_stacking_other_dtypes_as_torch_does() -> None:
    with accel.image_backend("cpu"):
        states = [make_single(), make_single().double(), make_uint8()]
    plains = [make_single(), make_single().double(), make_uint8()]
    assert_same(torch.stack(states), torch.stack(plains))


def test_stacking_images_of_different_backends_realises() -> None:
    with accel.image_backend("cpu", threads=1):
        first = make_single()
    with accel.image_backend("cpu", threads=2):
        second = make_single()
    stacked = torch.stack([first, second])
    assert not is_lazy(stacked)
    assert_same(stacked, torch.stack([make_single(), make_single()]))


def test_inference_mode_does_not_leak_into_the_values() -> None:
    """torchvision's values are made where ToTensor runs, not where they are first used."""
    lazy, plain = both(make_batch)
    with torch.inference_mode():
        assert_same(lazy + 1, plain + 1)
    assert lazy.is_inference() is plain.is_inference() is False
    weight = torch.ones(1, requires_grad=True)
    (lazy * weight).sum().backward()
    assert weight.grad is not None


@pytest.mark.parametrize("context", [torch.no_grad, torch.enable_grad, torch.inference_mode])
def test_grad_modes(context: Callable[[], Any]) -> None:
    with context():
        lazy, plain = both(make_batch)
        assert_same(lazy * 2, plain * 2)
        assert lazy.requires_grad is plain.requires_grad is False


def test_a_model_trains_on_it() -> None:
    def losses(images: torch.Tensor) -> list[float]:
        torch.manual_seed(0)
        layers = [torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(140, 2)]
        model = torch.nn.Sequential(*layers)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        result = []
        for _ in range(3):
            loss = torch.nn.functional.cross_entropy(model(images), torch.zeros(len(images), dtype=torch.long))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            result.append(loss.item())
        return result

    lazy, plain = both(make_batch)
    expected = losses(plain)
    assert losses(lazy) == expected
    assert len(set(expected)) == 3


@pytest.mark.parametrize("fill", [(1, 2, 3), [4]])
def test_a_fill_for_each_channel_is_v2s_alone(fill: Any) -> None:
    with accel.image_backend("cpu"):
        tensor = T.PILToTensor()(Image.open(BytesIO(helpers.jpeg(30, 20))))
        assert is_lazy(v2.functional.pad(tensor, [2], fill=fill))
        assert is_lazy(T.Pad(2, fill=4)(tensor))
        with pytest.raises(TypeError, match="inappropriate fill"):
            T.Pad(2, fill=fill)(tensor)


def test_a_refused_size_leaves_nothing_behind() -> None:
    """Where torchvision refuses sizes that are no integers, equal integers are recorded all the same afterwards."""

    def run() -> Any:
        first, second = (v2.functional.to_image(Image.open(BytesIO(COLOUR.data))) for _ in range(2))
        return outcome(v2.functional.resize, first, [23.0, 29.0]), v2.functional.resize(second, [23, 29])

    helpers.assert_equal_runs(run, lazy=True)


ONE_CHANNEL: dict[str, Callable[[Any], Any]] = {
    "pil_to_tensor": F.pil_to_tensor,
    "to_image": v2.functional.to_image,
    "flipped": lambda image: v2.functional.horizontal_flip(F.pil_to_tensor(image)),
    "resized": lambda image: v2.functional.resize(F.pil_to_tensor(image), [20, 30]),
    "floats": lambda image: v2.functional.to_dtype(F.pil_to_tensor(image), torch.float32, scale=True),
}


@pytest.mark.parametrize("name", ONE_CHANNEL)
def test_the_stride_of_a_single_channel(name: str) -> None:
    """It is torchvision's before the values are computed, and stays so."""
    file = helpers.jpeg(60, 40, "L")
    expected = ONE_CHANNEL[name](Image.open(BytesIO(file)))
    with accel.image_backend("cpu"):
        found = ONE_CHANNEL[name](Image.open(BytesIO(file)))
        for _ in range(2):
            assert found.stride() == expected.stride()
            assert found.equal(expected)
