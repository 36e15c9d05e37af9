"""Pillow's own blurs on lazy images: recorded on every backend, and Pillow's in every bit."""

import io
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter, ImageOps
from torch.utils.data import DataLoader
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

import accel
from accel.backends.cpu import effects
from accel.backends.shared import box_blur
from accel.planning.stages import Effect
from tests.support import helpers
from tests.support.backends import Backend, fallbacks
from tests.support.helpers import MEAN, STD

SIZES = ((1, 1), (1, 90), (70, 1), (2, 3), (15, 17), (64, 48), (301, 33))
RADII = (0, 0.1, 0.5, 1, 2.0, 7.3, 400, True, (1, 2), (0, 3.5), (0.7, 0), (0.0, 0.0), [1.5, 2])
BLURS = (ImageFilter.BoxBlur, ImageFilter.GaussianBlur)


def noise(width: int, height: int, mode: str = "RGB", seed: int = 0) -> Image.Image:
    """Noise with flat and clipped parts."""
    rng = np.random.default_rng((width, height, seed))
    pixels = rng.integers(0, 256, (height, width, 3), np.uint8)
    pixels[: height // 3, : width // 2] = rng.integers(0, 2) * 255
    return Image.fromarray(pixels).convert(mode)


def lazy(image: Image.Image) -> Image.Image:
    """A lossless lazy image."""
    found = T.functional.hflip(T.functional.hflip(image))
    assert helpers.is_lazy(found)
    return found  # type: ignore[no-any-return]


def check(image: Image.Image, blur: Callable[[Any], Image.Image], backend: Backend) -> None:
    expected = blur(image)
    before = fallbacks()
    found = blur(lazy(image))
    assert helpers.is_lazy(found)
    helpers.assert_same(backend.computed(found), expected)
    assert backend.name == "dali" or fallbacks() == before


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("radius", RADII, ids=str)
@pytest.mark.parametrize("kind", BLURS, ids=lambda kind: kind.__name__)
def test_radii(kind: Any, radius: Any, mode: str, backend: Backend) -> None:
    with backend.chosen():
        for size in SIZES:
            check(noise(*size, mode), lambda image: image.filter(kind(radius)), backend)


@pytest.mark.parametrize("seed", range(2))
def test_anything(seed: int, thorough: bool, backend: Backend) -> None:
    draw = random.Random(seed)

    def radius() -> float:
        return draw.choice([0.0, draw.random(), 4 * draw.random(), float(draw.randrange(9)), 99 * draw.random()])

    with backend.chosen():
        for number in range(1000 if thorough else 60):
            image = noise(draw.randrange(1, 80), draw.randrange(1, 80), draw.choice(["RGB", "L"]), number)
            kind, radii = draw.choice(BLURS), (radius(), radius())
            check(image, lambda image: image.filter(kind(radii)), backend)  # noqa: B023


def test_among_other_steps(backend: Backend) -> None:
    def steps(image: Image.Image) -> Any:
        image = ImageOps.invert(image.resize((50, 40), Image.Resampling.BICUBIC, (1.5, 2, 60.25, 47.5)))
        image = ImageOps.solarize(image.filter(ImageFilter.GaussianBlur(1.3)).filter(ImageFilter.BoxBlur(1)), 99)
        return ImageOps.expand(image, 3, 7).crop((1, 2, 53, 41)).filter(ImageFilter.GaussianBlur((0, 2)))

    with backend.chosen():
        check(noise(64, 48), steps, backend)
        check(noise(64, 48, "L"), steps, backend)


def test_every_radius_has_pillows_weights(thorough: bool) -> None:
    """Along one line, whose pixels show a weight that is off by one in 24 bits."""
    pixels = np.random.default_rng(0).integers(0, 256, (1, 4096, 1), np.uint8)
    line = Image.fromarray(pixels[:, :, 0])
    assert effects.agrees("box_blur")  # else Pillow runs them
    assert effects.agrees("pillow_gaussian_blur")
    step = 0.003 if thorough else 0.1
    for radius in (*np.arange(0, 40, step).tolist(), *np.geomspace(40, 30000, round(20 / step)).tolist()):
        for name, kind in (("box_blur", ImageFilter.BoxBlur), ("pillow_gaussian_blur", ImageFilter.GaussianBlur)):
            found, _ = effects.run(pixels, Effect(name, (radius, 0.0), (0, 0, 1, 4096), 1))
            assert np.array_equal(found[:, :, 0], np.asarray(line.filter(kind((radius, 0))))), f"{name} {radius}"


def test_the_class_stands_for_the_default_radius() -> None:
    with accel.image_backend("cpu"):
        found = lazy(noise(33, 44)).filter(ImageFilter.GaussianBlur)
        assert helpers.is_lazy(found)
        helpers.assert_same(found, noise(33, 44).filter(ImageFilter.GaussianBlur))


class Doubled(ImageFilter.GaussianBlur):
    def filter(self, image: Any) -> Any:
        return super().filter(super().filter(image))


def changed(blur: Any, radius: Any) -> Any:
    blur.radius = radius
    return blur


LEFT_TO_PILLOW: dict[str, Callable[[], Any]] = {
    "other filter": lambda: ImageFilter.UnsharpMask(2),
    "other class": lambda: ImageFilter.SMOOTH,
    "own class": lambda: Doubled(1),
    "a function": lambda: lambda: ImageFilter.GaussianBlur(1),
    "no filter": lambda: 3,
    "no radius": lambda: ImageFilter.BoxBlur,
    "negative": lambda: changed(ImageFilter.BoxBlur(1), -1.0),
    "word": lambda: ImageFilter.GaussianBlur("2"),  # type: ignore[arg-type]
    "array": lambda: ImageFilter.GaussianBlur(np.float32(2)),  # type: ignore[arg-type]
    "number of NumPy's": lambda: ImageFilter.GaussianBlur(np.float64(2)),
    "three": lambda: ImageFilter.GaussianBlur((1, 2, 3)),
    "large": lambda: ImageFilter.BoxBlur(70000),
}


@pytest.mark.parametrize("name", LEFT_TO_PILLOW)
def test_all_else_is_pillows(name: str) -> None:
    def run() -> Any:
        image = Image.open(io.BytesIO(helpers.jpeg(40, 30)))
        made = helpers.outcome(lambda: image.filter(LEFT_TO_PILLOW[name]()))
        return made, getattr(made, "info", None)

    assert not helpers.is_lazy(helpers.assert_equal_runs(run)[0])


@pytest.mark.parametrize("blur", [ImageFilter.GaussianBlur(-2.0), ImageFilter.BoxBlur(1)])
def test_what_an_image_hands_down(blur: Any) -> None:
    def run() -> Any:
        image = Image.open(io.BytesIO(helpers.jpeg(40, 30, dpi=(72, 72))))
        made = image.filter(blur)
        image.paste((9, 9, 9), (0, 0, 20, 20))
        return made, made.info, type(made) is Image.Image, getattr(made, "format", 0), image.filter(blur)

    def seen() -> Any:
        made, info, plain, format, painted = run()
        return made, info, plain or helpers.is_lazy(made), format, painted

    helpers.assert_equal_runs(seen)


def test_another_radius_would_be_seen() -> None:
    radii = (0, 0.1, 0.5, 0.51, 1, 1.02, 2, (2, 1), (1, 2), 7.3, 7.4)
    with accel.image_backend("cpu"):
        found = [np.asarray(lazy(noise(64, 48)).filter(kind(radius))) for kind in BLURS for radius in radii]
    alike = [(n, m) for n, one in enumerate(found) for m, two in enumerate(found[:n]) if np.array_equal(one, two)]
    assert alike == [(len(radii), 0)], "radius 0 alone"


@pytest.fixture
def compared_anew() -> Iterator[None]:
    effects.agrees.cache_clear()
    yield
    effects.agrees.cache_clear()


@pytest.mark.usefixtures("compared_anew")
@pytest.mark.parametrize("weight", [1, 2])
@pytest.mark.parametrize("kind", BLURS, ids=lambda kind: kind.__name__)
def test_a_wrong_kernel_is_noticed_and_not_used(kind: Any, weight: int, monkeypatch: pytest.MonkeyPatch) -> None:
    right = box_blur.weights

    def wrong(radius: float) -> tuple[int, ...]:
        found = list(right(radius))
        found[weight] += 1 << 12
        return tuple(found)

    monkeypatch.setattr(box_blur, "weights", wrong)
    image = noise(200, 90)
    with accel.image_backend("cpu"):
        before = sum(fallbacks().values())
        helpers.assert_same(lazy(image).filter(kind(3.3)), image.filter(kind(3.3)))
        assert sum(fallbacks().values()) == before + 1
        monkeypatch.setattr(effects, "agrees", lambda name: True)
        with pytest.raises(AssertionError):
            helpers.assert_same(lazy(image).filter(kind(3.3)), image.filter(kind(3.3)))


class Blurred:
    """moco/loader.py; with ``p``, utils.py of DINO."""

    def __init__(self, least: float, most: float, p: float = 1.0) -> None:
        self.sigma, self.p = (least, most), p

    def __call__(self, image: Image.Image) -> Image.Image:
        if random.random() > self.p:
            return image
        return image.filter(ImageFilter.GaussianBlur(radius=random.uniform(*self.sigma)))


class Solarized:
    def __call__(self, image: Image.Image) -> Image.Image:
        return ImageOps.solarize(image) if random.random() < 0.5 else image


def recipe(size: int, least: float, most: float, saturation: float, *blurred: Any, **options: Any) -> Any:
    jitter = T.RandomApply([T.ColorJitter(0.4, 0.4, saturation, 0.1)], p=0.8)
    colours = [jitter, T.RandomGrayscale(p=0.2), *blurred, T.RandomHorizontalFlip()]
    crop = T.RandomResizedCrop(size, scale=(least, most), **options)
    return T.Compose([crop, *colours, T.ToTensor(), T.Normalize(MEAN, STD)])


MOCO = recipe(56, 0.2, 1.0, 0.4, T.RandomApply([Blurred(0.1, 2.0)], p=0.5))
DINO = recipe(48, 0.05, 0.4, 0.2, Blurred(0.1, 2.0, 0.7), Solarized(), interpolation=T.InterpolationMode.BICUBIC)


class TwoCrops:
    def __init__(self, transform: Callable[[Any], Any]) -> None:
        self.transform = transform

    def __call__(self, image: Image.Image) -> list[Any]:
        return [self.transform(image), self.transform(image)]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("transform", [MOCO, DINO], ids=["MoCo", "DINO"])
def test_two_crops_of_a_loader(transform: Any, workers: int, image_folder: Any, backend: Backend) -> None:
    def batches() -> list[torch.Tensor]:
        loader = DataLoader(ImageFolder(str(image_folder), TwoCrops(transform)), 4, num_workers=workers)
        return [backend.computed(image) for images, _ in loader for image in images]

    before = fallbacks()
    backend.equals_torchvision(batches)
    assert backend.name == "dali" or fallbacks() == before
