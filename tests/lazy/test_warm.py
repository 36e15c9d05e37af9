"""accel.warm: what is compiled, allocated and measured before the first request; small requests on the host."""

from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms as T

import accel
from accel.lazy import warming
from accel.runtime import compute, small_requests
from tests.support import helpers, inside
from tests.support.cuda import needs_compiler
from tests.support.fake_accelerator import Fake, installed
from tests.support.helpers import assert_same, jpeg
from tests.support.processes import plain

Choose = Callable[..., None]
STEPS = T.Compose([T.Resize(24), T.CenterCrop(20), T.ToTensor()])
NOISE = T.Compose([T.RandomCrop(20), T.ToTensor(), T.Normalize([0.5] * 3, [0.2] * 3)])
SHAPES = [(16, 30, 40)]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Choose]:
    monkeypatch.setattr(small_requests, "learned", {})
    with installed(monkeypatch) as choose:
        yield choose


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """A clock on which a batch takes 3.5 s on the device, and each image a second on the host."""
    seconds = {"now": 0.0, "batch": 3.5, "image": 1.0}

    def on_device(run: Any, *given: Any) -> Any:
        seconds["now"] += seconds["batch"]
        return run(*given)

    def on_host(run: Any, recipes: Any, **options: Any) -> Any:
        seconds["now"] += seconds["image"] * len(recipes)
        return run(recipes, **options)

    inside.wrap(monkeypatch, Fake, "run_on", on_device)
    inside.wrap(monkeypatch, compute, "tensors", on_host)
    monkeypatch.setattr(warming.time, "perf_counter", lambda: seconds["now"])
    return seconds


def images(count: int, steps: Any = STEPS) -> list[Any]:
    return [steps(Image.open(BytesIO(jpeg(30, 40, seed=seed)))) for seed in range(count)]


def runs(count: int, steps: Any = STEPS) -> int:
    """How often the device computes a request of so many images, whose values are torchvision's."""
    Fake.runs.clear()
    helpers.seed_everything(1)
    found = accel.submit(images(count, steps), errors="return").result()
    helpers.seed_everything(1)
    assert_same(found, plain(lambda: images(count, steps)))
    return len(Fake.runs)


@pytest.mark.parametrize(("batch", "most"), [(3.5, 2), (0.5, 0), (4.5, 4), (100.0, 16)])
def test_the_host_computes_what_it_computes_sooner(
    fake: Choose, clock: dict[str, float], batch: float, most: int
) -> None:
    fake(device="cpu")
    clock["batch"] = batch
    assert accel.warm("fake", SHAPES, STEPS) == most
    assert [count for count in (1, 2, 3, 4, 5, 16, 17) if runs(count) == 0] == [
        count for count in (1, 2, 3, 4, 5, 16) if count <= most
    ]


@pytest.mark.parametrize("counts", [(1, 16), (16, 1)])
def test_of_several_shapes_the_least_counts(fake: Choose, clock: dict[str, float], counts: tuple[int, int]) -> None:
    """What is returned is what holds, in whichever order they are given."""
    fake(device="cpu")
    assert accel.warm("fake", [(count, 30, 40) for count in counts], STEPS) == 1
    assert [runs(count) for count in (1, 2)] == [0, 1]


def test_what_is_not_lazy_says_nothing_about_either(fake: Choose, clock: dict[str, float]) -> None:
    fake(device="cpu")
    clock["batch"] = 100.0
    assert accel.warm("fake", SHAPES, np.asarray) == 0
    assert runs(1) == 1


def test_explain_says_so(fake: Choose, clock: dict[str, float]) -> None:
    fake(device="cpu")
    assert "by accel.warm" not in accel.explain(images(1))
    accel.warm("fake", SHAPES, STEPS)
    (image,) = images(1)
    assert "accel.submit for cpu: the host computes up to 2 images, sooner than the device by accel.warm" in (
        accel.explain(image)
    )
    Fake.gated = True
    busy = [accel.submit(images(3)) for _ in range(3)]
    future = accel.submit(image)
    assert "so small that the host computes it for cpu" in accel.explain(image)
    large = images(3)
    busy.append(accel.submit(large))
    assert "launched on cpu" in accel.explain(large)
    Fake.gate.release(100)
    for each in (future, *busy):
        each.result()


def test_without_it_the_device_computes_all(fake: Choose) -> None:
    fake(device="cpu")
    assert runs(1) == 1


def test_only_what_has_the_same_bits_on_both(fake: Choose, clock: dict[str, float]) -> None:
    """Not under ``exact=False``, and not what torchvision's kernels finish on the device."""
    fake(device="cpu")
    blurred = T.Compose([*STEPS.transforms, T.GaussianBlur(3, 1.0)])
    assert accel.warm("fake", SHAPES, STEPS) == 2
    assert runs(1, blurred) == 1
    assert "but not these, which torchvision's kernels finish" in accel.explain(images(1, blurred)[0])
    assert runs(1) == 0
    fake(device="cpu", exact=False)
    assert accel.warm("fake", SHAPES, STEPS) == 0
    assert runs(1) == 1


def test_a_loader_is_not_hurried(fake: Choose, clock: dict[str, float]) -> None:
    """Its batches are ahead, so that their number counts and not the time that one takes."""
    fake(device="cpu")
    accel.warm("fake", SHAPES, STEPS)
    Fake.runs.clear()
    torch.stack(images(1)).pin_memory().to("cpu")
    assert len(Fake.runs) == 1


@pytest.mark.parametrize("backend", ["cpu", pytest.param("cuda", marks=needs_compiler)])
def test_what_is_left_as_it_was(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The backend in force, and the random states, of a transform that draws."""
    monkeypatch.setattr(small_requests, "learned", {})
    options = {"device": "cpu"} if backend == "cuda" else {}
    states = helpers.seed_everything(3) or helpers.random_states()
    accel.warm("cpu", [(2, 30, 40)], NOISE)
    assert accel.get_image_backend() == "torchvision"
    with accel.image_backend(backend, **options):
        found = accel.warm(backend, [(4, 30, 40), (2, 25, 60)], NOISE)
        assert accel.get_image_backend() == backend
        helpers.seed_everything(1)
        values = accel.submit(images(2, NOISE)).result()
    assert found in ((0,) if backend == "cpu" else (0, 1, 2))
    helpers.seed_everything(1)
    assert_same(values, images(2, NOISE))
    helpers.seed_everything(3)
    assert helpers.known(helpers.random_states()) == helpers.known(states)
    accel.warm("cpu", [(2, 30, 40)], NOISE)
    assert helpers.known(helpers.random_states()) == helpers.known(states)


def test_wrong_arguments(fake: Choose) -> None:
    for shape in [(1, 2), (0, 20, 20), (1, 20, 20.0), (1, 2, 3, 4)]:
        with pytest.raises(ValueError, match=r"a shape is \(images, height, width\), each at least 1, got"):
            accel.warm("cpu", [shape])  # type: ignore[list-item]
    for shapes in [(32, 375, 500), [32], "abc", [("2", "30", "40")]]:
        with pytest.raises(ValueError, match=r"a shape is \(images, height, width\), each at least 1, got"):
            accel.warm("cpu", shapes)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a JPEG file's height and width are at most 65500, got"):
        accel.warm("cpu", [(1, 70_000, 3)])
    with pytest.raises(TypeError, match=r"shapes must be a list of \(images, height, width\), got 32"):
        accel.warm("cpu", 32)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="transform must be a function of an image, got 'steps'"):
        accel.warm("cpu", SHAPES, "steps")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="each image must be one lazy image or tensor, got a tuple of 2"):
        accel.warm("cpu", SHAPES, lambda image: (STEPS(image), 1))
    assert accel.warm("cpu", np.array(SHAPES), STEPS) == 0
    with pytest.raises(ValueError, match="unknown image backend 'gone'"):
        accel.warm("gone", SHAPES)
    with pytest.raises(ValueError, match="backend 'torchvision' has nothing to warm"):
        accel.warm("torchvision", SHAPES)
    fake()
    with pytest.raises(ValueError, match="does not know its device yet"):
        accel.warm("fake", SHAPES, STEPS)
    assert accel.warm("fake", SHAPES, STEPS, device="cpu") >= 0
    assert accel.warm("cpu", []) == 0
