"""torch.compile, TorchScript and export beside lazy images and tensors: as without accel."""

from collections.abc import Callable
from io import BytesIO
from typing import Any

import pytest
import torch
from PIL import Image
from torchvision import transforms as T
from torchvision.transforms import functional as F
from torchvision.transforms import v2

import accel
from tests.support import helpers
from tests.support.helpers import assert_same, is_lazy

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
    pytest.mark.filterwarnings("ignore::UserWarning:torch"),
]
MEAN, STD = [0.5, 0.4, 0.3], [0.25, 0.2, 0.3]


def opened() -> Image.Image:
    return Image.open(BytesIO(helpers.jpeg(60, 50)))


def batch(count: int = 4) -> torch.Tensor:
    transform = T.Compose([T.Resize((20, 24)), T.ToTensor(), T.Normalize(MEAN, STD)])
    return torch.stack([transform(opened()) for _ in range(count)])


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.conv = torch.nn.Conv2d(3, 4, 3)
        for parameter in self.conv.parameters():
            parameter.data = torch.rand(parameter.shape, generator=generator)

    def forward(self, images: Any, scale: Any = None) -> Any:
        if isinstance(images, dict):
            images = images["pixels"][0]
        result = self.conv(images).relu().mean((2, 3))
        return result if scale is None else result * scale.mean()


def layers() -> torch.nn.Sequential:
    """A model of containers in one another, which begins with something that transforms may begin with."""
    inner = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.AvgPool2d(2))
    return torch.nn.Sequential(torch.nn.Identity(), inner, torch.nn.Sequential(torch.nn.Flatten())).eval()


def double(images: torch.Tensor) -> torch.Tensor:
    return images * 2 + 1


def compiled(function: Any, **options: Any) -> Any:
    torch.compiler.reset()
    return torch.compile(function, backend="eager", **options)


TRANSFORMS: list[Callable[[], Any]] = [
    lambda: v2.Compose(
        [v2.Resize((10, 12), antialias=True), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    ),
    lambda: torch.nn.Sequential(
        T.Resize((10, 12), antialias=True), T.CenterCrop(8), T.ConvertImageDtype(torch.float32), T.Normalize(MEAN, STD)
    ),
]
INPUTS: list[Callable[[], torch.Tensor]] = [
    lambda: torch.arange(3 * 30 * 40, dtype=torch.uint8).view(3, 30, 40),
    lambda: F.pil_to_tensor(opened()),
    lambda: torch.stack([F.pil_to_tensor(opened())] * 2),
]


def traced() -> Any:
    module = torch.jit.trace(Model().eval(), batch())
    images, more = module(batch(2) * 0.5), module(batch(4))
    assert images.shape[0] == 2, "the example is remembered"
    return images, more


def exported() -> Any:
    module = torch.export.export(Model().eval(), (batch(),), {"scale": batch(1)}).module()
    return module(batch() * 0.5, scale=batch(1))


def scripted_and_random() -> Any:
    transforms = [T.RandomResizedCrop(8, antialias=True), T.RandomHorizontalFlip(), T.RandomVerticalFlip()]
    scripted = torch.jit.script(torch.nn.Sequential(*transforms))
    return [scripted(F.convert_image_dtype(F.pil_to_tensor(opened()))) for _ in range(5)]


def stacked_inside(images: Any) -> torch.Tensor:
    return double(torch.stack([F.to_tensor(image) for image in images]))


CALLS: list[Callable[[], Any]] = [
    lambda: compiled(Model(), fullgraph=True)(batch()),
    lambda: compiled(Model(), fullgraph=True)(batch(), scale=batch(1)),
    lambda: compiled(Model(), fullgraph=True)({"pixels": [batch()]}),
    lambda: compiled(double, fullgraph=True)(batch()),
    lambda: compiled(double, fullgraph=True)(batch()[0]),
    lambda: compiled(lambda images: double(images).sum(), dynamic=True)(batch(3)),
    lambda: torch.compile(fullgraph=True, backend="eager")(double)(batch()),
    lambda: compiled(double, disable=True)(batch()),
    lambda: compiled(compiled(double))(batch()),
    lambda: compiled(lambda images: compiled(double)(images))(batch()),
    lambda: compiled(stacked_inside)([opened(), opened()]),
    lambda: torch.jit.script(double)(batch()),
    lambda: compiled(layers(), fullgraph=True)(batch()),
    lambda: torch.jit.script(layers())(batch()),
    lambda: torch.jit.trace(layers(), batch())(batch() * 0.5),
    lambda: torch.export.export(layers(), (batch(),)).module()(batch() * 0.5),
    lambda: torch.fx.symbolic_trace(layers())(batch()),
    traced,
    exported,
    scripted_and_random,
    *(lambda pixels=pixels: compiled(TRANSFORMS[0]())(pixels()) for pixels in INPUTS),
    *(lambda pixels=pixels: torch.jit.script(TRANSFORMS[1]())(pixels()) for pixels in INPUTS),
]
OF_TENSORS = [lambda pixels=pixels: compiled(TRANSFORMS[1]())(pixels()) for pixels in INPUTS]


CALLS += [pytest.param(call, marks=pytest.mark.sweep) for call in OF_TENSORS[:2]] + OF_TENSORS[2:]  # type: ignore[list-item]


@pytest.mark.parametrize("call", CALLS)
def test_compiled_functions_and_modules(call: Callable[[], Any]) -> None:
    helpers.assert_equal_runs(call, seed=1)


def test_a_module_compiled_in_place_trains_alike() -> None:
    def train() -> Any:
        torch.compiler.reset()
        model = Model()
        model.compile(backend="aot_eager", fullgraph=True)
        optimiser = torch.optim.SGD(model.parameters(), 0.1)
        losses = []
        for _ in range(3):
            loss = model(batch()).square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.detach())
        return losses, [parameter.detach() for parameter in model.parameters()]

    losses, _ = helpers.assert_equal_runs(train)
    assert losses[0] != losses[2]


def test_lazy_batches_compile_nothing_anew() -> None:
    from torch._dynamo.testing import CompileCounter

    counter = CompileCounter()
    accel.set_image_backend("cpu")
    torch.compiler.reset()
    function = torch.compile(double, backend=counter, fullgraph=True)
    expected = function(batch() + 0)
    for _ in range(4):
        images = batch()
        assert is_lazy(images)
        assert torch.equal(function(images), expected)
        assert type(images) is torch.Tensor
    assert counter.frame_count == 1


@pytest.mark.parametrize("model", [double, Model()], ids=["function", "module"])
def test_compiled_before_the_switch(model: Any) -> None:
    """torch cannot be told any more: the compiled function is interrupted by lazy tensors, and right."""
    function = compiled(model)
    expected = model(batch())
    assert_same(function(batch()), expected)
    accel.set_image_backend("cpu")
    for _ in range(3):
        images = batch()
        assert is_lazy(images)
        assert_same(function(images), expected)


def test_a_torch_compile_that_others_have_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lightning does so when it is imported, before the switch or after it."""
    original, calls = torch.compile, []

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        return previous(*args, **kwargs)

    previous: Any = original
    monkeypatch.setattr(torch, "compile", wrapper)
    expected = compiled(double)(batch())
    with accel.image_backend("cpu"):
        assert_same(compiled(double, fullgraph=True)(batch()), expected)
    assert torch.compile is wrapper
    monkeypatch.undo()
    with accel.image_backend("cpu"):
        previous = torch.compile
        torch.compile = wrapper
    try:
        assert torch.compile is wrapper, "what others put in place stays"
        assert_same(compiled(double)(batch()), expected)
    finally:
        torch.compile = original
    assert len(calls) == 3


def test_all_of_it_is_taken_back() -> None:
    names = [(torch, "compile"), (torch.jit, "trace"), (torch.export, "export")]
    before = [(getattr(*name), getattr(getattr(*name), "__code__", None)) for name in names]
    with accel.image_backend("cpu"):
        assert [(getattr(*name), getattr(getattr(*name), "__code__", None)) for name in names] != before
    assert [(getattr(*name), getattr(getattr(*name), "__code__", None)) for name in names] == before
