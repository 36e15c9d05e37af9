"""Uses of a lazy tensor by code that takes it for an ordinary one: attributes, its memory, tracers, fake tensors."""

import copy
import io
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from PIL import Image
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torchvision.transforms import functional as F
from torchvision.transforms import v2

import accel
from tests.support import helpers
from tests.support.helpers import is_lazy

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")


def single() -> Any:
    return F.to_tensor(Image.open(io.BytesIO(helpers.jpeg(60, 50))))


def batch() -> Any:
    return torch.stack([single(), F.hflip(single())])


def large() -> Any:
    """A batch large enough that accel uses its memory again."""
    return torch.stack([F.to_tensor(Image.open(io.BytesIO(helpers.jpeg(700, 500))))])


def tv() -> Any:
    return v2.functional.to_image(Image.open(io.BytesIO(helpers.jpeg(60, 50))))


MADE = {"single": single, "batch": batch, "large": large, "tv": tv}


USES: dict[str, Callable[[Any], Any]] = {
    "used": lambda x: (x.sum(), x)[1],
    "used, and looked at": lambda x: (weakref.ref(x), x.sum(), x)[2],
    "changed": lambda x: x.mul_(2),
    "moved": lambda x: x.to("cpu"),
    "cast to the same": lambda x: x.to(x.dtype),
    "made": lambda x: x + 1,
    "cast": lambda x: x.double(),
    "clone": lambda x: x.clone(),
    "deepcopy": lambda x: copy.deepcopy([x, x])[1],
    "deepcopy, used": lambda x: (x.sum(), copy.deepcopy(x))[1],
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "pickle, looked at": lambda x: (weakref.ref(x), pickle.loads(pickle.dumps(x)))[1],
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("kind", MADE)
def test_attributes_last_as_long_as_on_torchs(kind: str, use: str) -> None:
    def attributes() -> Any:
        tensor = MADE[kind]()
        tensor.image_ids, tensor.path = [17], "a.jpg"
        result = USES[use](tensor)
        result.sum()
        own = {name: getattr(result, name, "gone") for name in ("image_ids", "path")}
        return own, own["image_ids"] is tensor.image_ids, tensor.image_ids, sorted(vars(result)), result + 0

    helpers.assert_equal_runs(attributes)


def test_a_deep_copy_stays_lazy() -> None:
    with accel.image_backend("cpu"):
        tensor = batch()
        tensor.ids = [1]
        copied = copy.deepcopy([tensor, tensor])
        assert is_lazy(tensor)
        assert is_lazy(copied[0])
        assert copied[0] is copied[1]
        assert copied[0].ids == [1]
        assert copied[0].ids is not tensor.ids


RESIZED: dict[str, Callable[[Any], Any]] = {
    "resize_": lambda x: x.resize_(4, 3, 1000, 1000).flatten()[: 3 * 50 * 60].clone(),
    "resize_as_": lambda x: x.resize_as_(torch.zeros(2, 3, 900, 900)).shape,
    "storage": lambda x: (x.untyped_storage().resize_(0), x.untyped_storage().nbytes())[1],
    "out": lambda x: (torch.cat([torch.ones(3, 3, 900, 900)], out=x), x)[1],
    "out of the same size": lambda x: (torch.add(torch.ones(x.shape), 1, out=x), x)[1],
    "several out": lambda x: (torch.max(torch.ones(5, 5), 0, out=(x, torch.empty(0, dtype=torch.long))), x)[1],
}


@pytest.mark.parametrize("way", RESIZED)
@pytest.mark.parametrize("kind", ["single", "batch", "large"])
def test_its_memory_can_be_resized(kind: str, way: str) -> None:
    def resized() -> Any:
        tensor = MADE[kind]()
        result = RESIZED[way](tensor)
        return list(result) if isinstance(result, torch.Size) else result

    helpers.assert_equal_runs(resized)


def double(images: torch.Tensor) -> torch.Tensor:
    return images * 2 + images.mean()


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
@pytest.mark.parametrize("kind", ["single", "batch", "large"])
def test_make_fx(kind: str, mode: str) -> None:
    def traced() -> Any:
        graph = make_fx(double, tracing_mode=mode)(MADE[kind]())
        made = graph(torch.ones(MADE[kind]().shape))
        return [(node.op, str(node.target)) for node in graph.graph.nodes], made, graph(MADE[kind]())

    helpers.assert_equal_runs(traced)


@pytest.mark.parametrize("pre_dispatch", [False, True])
def test_make_fx_of_several_uses(pre_dispatch: bool) -> None:
    def traced() -> Any:
        one, other = batch(), batch()
        for _ in range(2):  # what was computed in one trace is an argument of the next
            graph = make_fx(lambda a, b: (a - b.flip(0)) * a, pre_dispatch=pre_dispatch)(one, other)
        return [node.op for node in graph.graph.nodes], graph(one, other), graph(other * 2, one)

    helpers.assert_equal_runs(traced)


def test_a_lazy_tensor_that_is_no_argument() -> None:
    def traced() -> Any:
        constant = batch()
        graph = make_fx(lambda a: a + constant)(torch.ones(()))
        return [node.op for node in graph.graph.nodes], graph(torch.zeros(()))

    helpers.assert_equal_runs(traced)


def test_aot_function() -> None:
    from functorch.compile import aot_function, nop

    def traced() -> Any:
        function = aot_function(double, nop)
        return [function(batch()), function(batch() * 3)]

    helpers.assert_equal_runs(traced)


def test_fake_tensors() -> None:
    def facts() -> Any:
        fake = FakeTensorMode().from_tensor(batch())
        with FakeTensorMode(allow_non_fake_inputs=True):
            tensor = batch() if accel.get_image_backend() != "torchvision" else None
            made = tensor + 0 if tensor is not None else torch.zeros(2, 3, 50, 60)
        return [type(fake), list(fake.shape), fake.stride(), str(fake.dtype), type(made), list(made.shape)]

    lazy = helpers.assert_equal_runs(facts)
    assert lazy[0] is lazy[4] is FakeTensor


def test_refused_where_torchs_is() -> None:
    def refused() -> str:
        tensor = batch()
        with FakeTensorMode(), pytest.raises(Exception, match="allow_non_fake_inputs") as raised:
            tensor.sum()
        assert tensor.sum() > 0
        return type(raised.value).__name__

    helpers.assert_equal_runs(refused)


def test_a_mode_of_a_users_own_sees_the_use_alone() -> None:
    class Seen(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.names: list[str] = []

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.names.append(str(func))
            return func(*args, **(kwargs or {}))

    def seen() -> Any:
        tensor = batch()
        with Seen() as mode:
            result = tensor * 2
        return mode.names, result, tensor

    helpers.assert_equal_runs(seen)
