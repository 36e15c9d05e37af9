"""Gradients, function transforms, saving, other processes and threads: torch's further uses of lazy tensors."""

import copy
import io
import multiprocessing
import pickle
from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms as T
from torchvision.transforms import v2
from torchvision.utils import make_grid, save_image

import accel
from tests.support import helpers
from tests.support.helpers import assert_same, is_lazy

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # by torch.func itself

TRANSFORM = T.Compose([T.Resize((20, 24)), T.ToTensor(), T.Normalize([0.5, 0.4, 0.3], [0.25, 0.2, 0.3])])
TV = v2.Compose([v2.ToImage(), v2.Resize((20, 24)), v2.ToDtype(torch.float32, scale=True)])


def opened(seed: int = 0) -> Image.Image:
    return Image.open(BytesIO(helpers.jpeg(60, 50, seed=seed)))


def single() -> Any:
    return TRANSFORM(opened())


def batch(count: int = 4) -> Any:
    return torch.stack([TRANSFORM(opened(number)) for number in range(count)])


def tv_image() -> Any:
    return TV(opened())


def conv() -> torch.nn.Module:
    torch.manual_seed(3)
    return torch.nn.Conv2d(3, 4, 3)


USES: list[Callable[[], Any]] = []


def used(use: Callable[[], Any]) -> Callable[[], Any]:
    USES.append(use)
    return use


@used
def gradient_of_the_input() -> Any:
    images = batch()
    images.requires_grad_(True)
    assert images.is_leaf
    layer = conv()
    layer(images).square().sum().backward()
    return images.grad, [parameter.grad for parameter in layer.parameters()]


@used
def gradient_by_attribute() -> Any:
    image = single()
    image.requires_grad = True
    (image * image).sum().backward()
    return image.grad


@used
def gradient_of_the_weights() -> Any:
    layer = conv()
    layer(batch()).sum().backward()
    return [parameter.grad for parameter in layer.parameters()]


@used
def hooks() -> Any:
    images, seen = batch(), []
    images.requires_grad_()
    images.register_hook(seen.append)
    (images * 3).sum().backward()
    return seen


@used
def checkpoint() -> Any:
    return torch.utils.checkpoint.checkpoint(conv(), batch(), use_reentrant=False).detach()


@used
def autocast() -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        return conv()(batch()).detach()


@used
def inference() -> Any:
    with torch.inference_mode():
        images = batch()
        result = images * 2
    return torch.clone(images).requires_grad_().detach(), torch.clone(result)


@used
def data_parallel() -> Any:
    return torch.nn.parallel.DataParallel(conv())(batch()).detach()


@used
def functional_call() -> Any:
    layer = conv()
    return torch.func.functional_call(layer, dict(layer.named_parameters()), (batch(),)).detach()


@used
def ensemble() -> Any:
    layers = [conv(), conv()]
    parameters, buffers = torch.func.stack_module_state(layers)
    return torch.func.vmap(lambda p, b, x: torch.func.functional_call(layers[0], (p, b), (x,)), in_dims=(0, 0, None))(
        parameters, buffers, batch()
    ).detach()


@used
def saved() -> Any:
    stream = io.BytesIO()
    torch.save({"batch": batch(), "image": single()}, stream)
    stream.seek(0)
    return torch.load(stream, weights_only=True)


@used
def buffer_of_a_module() -> Any:
    module = torch.nn.Module()
    module.register_buffer("images", batch())
    return module.state_dict()["images"], module.images


@used
def written_in_part() -> Any:
    images, other = batch(), torch.zeros(4, 3, 20, 24)
    images[0] = 0
    images[1, :, :5] += 3
    other[0] = single()
    other[1:] = batch(3)
    return images, other


@used
def written_in_place() -> Any:
    image, other = single(), single()
    image.mul_(2).add_(1)
    other += 1
    return image, other


@used
def stacked_into() -> Any:
    result = torch.empty(2, 3, 20, 24)
    torch.stack([single(), single()], out=result)
    return result


@used
def as_png() -> Any:
    stream = io.BytesIO()
    save_image(batch(), stream, "png")
    return stream.getvalue(), make_grid(batch(), normalize=True), make_grid([single(), single()])


USES += [
    lambda: torch.func.vmap(lambda image: image.mean() + image)(batch()),
    lambda: torch.func.vmap(torch.stack)((batch(), batch())),
    lambda: torch.func.grad(lambda images: (images**2).sum())(batch()),
    lambda: torch.func.jacrev(lambda image: image.sum(0))(single()[:1, :2, :2]),
    lambda: torch.func.jvp(torch.sin, (batch(),), (batch(),)),
    lambda: [copy.deepcopy(value) for value in (single(), batch(), tv_image(), opened())],
    lambda: [copy.copy(value) for value in (single(), batch(), tv_image(), opened())],
    lambda: [pickle.loads(pickle.dumps(value)) for value in (single(), batch(), tv_image(), opened())],
    lambda: [torch.from_dlpack(single()), np.from_dlpack(single()), np.asarray(batch()), np.stack([single()] * 2)],
    lambda: batch().share_memory_(),
    lambda: torch.utils.data.TensorDataset(batch(), torch.arange(4))[1],
    lambda: torch.fx.symbolic_trace(conv())(batch()).detach(),
    lambda: [batch().chunk(2), batch().split(3), batch().unbind(), torch.cat([single(), single()])],
    lambda: [*batch(), batch()[0], batch()[:, :, 1:3], batch()[torch.tensor([1, 2])], batch()[batch() > 0]],
    lambda: [batch() == batch(), torch.equal(batch(), batch()), str(single()), f"{single().mean():.3f}"],
    lambda: [batch().new_zeros(2), torch.zeros_like(batch()), batch().type(), batch().type(torch.float64)],
    lambda: [batch().untyped_storage().nbytes(), batch().data_ptr() != 0, batch().tolist(), batch().is_pinned()],
]


@pytest.mark.parametrize("use", USES)
def test_uses(use: Callable[[], Any]) -> None:
    helpers.assert_equal_runs(use)


def send_some(queue: Any, done: Any) -> None:
    """A child's work: lazy things, through torch's queue."""
    accel.set_image_backend("cpu")
    torch.set_num_threads(1)
    queue.put([single(), batch(), tv_image(), opened().resize((10, 12))])
    done.wait(60)  # torch's shared memory is the sender's


def send_back(incoming: Any, outgoing: Any, done: Any) -> None:
    torch.set_num_threads(1)
    values = incoming.get(timeout=60)
    outgoing.put([torch.as_tensor(value).clone() if isinstance(value, torch.Tensor) else value for value in values])
    done.wait(60)


def expected_values() -> Any:
    return helpers.run("torchvision", lambda: [single(), batch(), tv_image(), opened().resize((10, 12))])[0]


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.sweep)])
def test_queues_between_processes(method: str) -> None:
    context = torch.multiprocessing.get_context(method)
    queue, done = context.Queue(), context.Event()
    child = context.Process(target=send_some, args=(queue, done))
    child.start()
    try:
        values = queue.get(timeout=100)
        assert_same(values, expected_values())
    finally:
        done.set()
        child.join(60)
    assert child.exitcode == 0


def test_lazy_tensors_go_to_another_process_as_recipes() -> None:
    context = torch.multiprocessing.get_context("fork")
    incoming, outgoing, done = context.Queue(), context.Queue(), context.Event()
    accel.set_image_backend("cpu")
    child = context.Process(target=send_back, args=(incoming, outgoing, done))
    child.start()
    try:
        values = [single(), batch(), tv_image(), opened().resize((10, 12))]
        incoming.put(values)
        returned = outgoing.get(timeout=100)
    finally:
        done.set()
        child.join(60)
    assert all(is_lazy(value) for value in values[:2]), "sending computes nothing"
    expected = expected_values()
    expected[2] = torch.as_tensor(expected[2]).clone()
    assert_same(returned[:2], expected[:2])
    assert torch.equal(returned[2], expected[2])
    assert_same(returned[3], expected[3])


def mean_of(value: Any) -> float:
    return float(torch.as_tensor(np.asarray(value, dtype=np.float64)).mean())


def test_process_pools() -> None:
    accel.set_image_backend("cpu")
    with multiprocessing.get_context("fork").Pool(2) as pool:
        means = pool.map(mean_of, [single(), batch(), opened()])
    assert means == [mean_of(value) for value in (single(), batch(), opened())]


def test_values_in_lists_and_beside_numbers_are_found_without_torchs_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    """That walk through the arguments takes longer than many a function."""

    def walk(*given: Any) -> Any:
        raise AssertionError

    with accel.image_backend("cpu"):
        made = [batch(), batch()]
        monkeypatch.setattr("accel.lazy.tensor_base.pytree.tree_map", walk)
        whole = torch.cat([made[0], made[1]], dim=0)
        part = torch.narrow(batch(), 0, start=1, length=2)
        monkeypatch.undo()
    with accel.image_backend("torchvision"):
        assert_same([whole, part], [torch.cat([batch(), batch()]), batch()[1:3]])
