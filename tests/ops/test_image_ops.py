"""``PIL.ImageOps`` on lazy images: recorded on every backend, and Pillow's in pixels, mode, size, info and errors."""

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageOps
from torchvision.transforms import functional as F

import accel
from tests.support import helpers
from tests.support.backends import Backend, fallbacks

SIZES = [(61, 47), (47, 61), (40, 40), (2, 90), (130, 3)]
FILES = {(size, mode): helpers.jpeg(*size, mode) for size in SIZES for mode in ("RGB", "L")}
Resampling = Image.Resampling

RECORDED: dict[str, Callable[[Any], Any]] = {
    "solarize": ImageOps.solarize,
    "solarize-0": lambda image: ImageOps.solarize(image, 0),
    "solarize-float": lambda image: ImageOps.solarize(image, threshold=100.5),  # type: ignore[arg-type]
    "posterize": lambda image: ImageOps.posterize(image, 3),
    "posterize-1": lambda image: ImageOps.posterize(image, bits=1),
    "invert": ImageOps.invert,
    "grayscale": ImageOps.grayscale,
    "mirror": ImageOps.mirror,
    "flip": ImageOps.flip,
    "scale": lambda image: ImageOps.scale(image, 0.61),
    "scale-1": lambda image: ImageOps.scale(image, 1),
    "scale-up": lambda image: ImageOps.scale(image, 1.7, resample=Resampling.LANCZOS),
    "cover": lambda image: ImageOps.cover(image, (40, 30)),
    "cover-box": lambda image: ImageOps.cover(image, (30, 40), method=Resampling.BOX),
    "contain": lambda image: ImageOps.contain(image, (40, 30)),
    "contain-nearest": lambda image: ImageOps.contain(image, (30, 40), Resampling.NEAREST),
    "fit": lambda image: ImageOps.fit(image, (40, 30)),
    "fit-bleed": lambda image: ImageOps.fit(image, (24, 31), Resampling.BILINEAR, 0.11),
    "fit-centering": lambda image: ImageOps.fit(image, (19, 30), bleed=0.02, centering=(0.1, 0.9)),
    "fit-corner": lambda image: ImageOps.fit(image, (30, 30), Resampling.LANCZOS, centering=(1.0, 0.0)),
    "fit-nearest": lambda image: ImageOps.fit(image, (30, 24), Resampling.NEAREST, 0.2, (0.3, 0.6)),
    "fit-cropped": lambda image: ImageOps.fit(ImageOps.flip(image), (40, 30), bleed=0.1).crop((22, 15, 39, 29)),
    "fit-outside": lambda image: ImageOps.fit(image, (30, 24), Resampling.HAMMING, 0.7, (-3, 8)),
    "pad": lambda image: ImageOps.pad(image, (40, 30)),
    "pad-name": lambda image: ImageOps.pad(image, (30, 45), color="teal"),
    "pad-number": lambda image: ImageOps.pad(image, (45, 30), Resampling.BILINEAR, 77),
    "pad-colour": lambda image: ImageOps.pad(image, (45, 31), color=(9, 200, 31)[: len(image.getbands())]),
    "pad-centering": lambda image: ImageOps.pad(image, (50, 91), centering=(0.13, 0.77)),
    "pad-outside": lambda image: ImageOps.pad(image, (91, 50), color=3, centering=(-4, 9)),
    "pad-list": lambda image: ImageOps.pad(image, [40, 40]),  # type: ignore[arg-type]
    "pad-same": lambda image: ImageOps.pad(image, image.size),
    "expand": lambda image: ImageOps.expand(image, 5, 9),
    "expand-two": lambda image: ImageOps.expand(image, (3, 0), fill="gray"),
    "expand-four": lambda image: ImageOps.expand(image, (1, 2, 3, 4)),
    "expand-negative": lambda image: ImageOps.expand(image, (4, -1, -1, 2), 50),
    "crop": lambda image: ImageOps.crop(image.resize((50, 50)), 3),
}

LEFT_TO_PILLOW: dict[str, Callable[[Any], Any]] = {
    "pad-fraction": lambda image: ImageOps.pad(image, (40, 30), color=1.5),  # type: ignore[arg-type]
    "pad-no-colour": lambda image: ImageOps.pad(image, (40, 30), color="nothing"),
    "pad-float": lambda image: ImageOps.pad(image, (40.5, 30)),  # type: ignore[arg-type]
    "pad-one": lambda image: ImageOps.pad(image, (40,)),  # type: ignore[arg-type]
    "pad-nan": lambda image: ImageOps.pad(image, (90, 33), centering=(float("nan"), float("nan"))),
    "pad-zero": lambda image: ImageOps.pad(image, (0, 5)),
    "expand-one": lambda image: ImageOps.expand(image, (3,)),
    "expand-away": lambda image: ImageOps.expand(image, -200),
    "fit-none": lambda image: ImageOps.fit(image, (0, 5)),
    "posterize-9": lambda image: ImageOps.posterize(image, 9),
    "solarize-word": lambda image: ImageOps.solarize(image, "a"),  # type: ignore[arg-type]
    "scale-0": lambda image: ImageOps.scale(image, 0),
    "autocontrast": lambda image: ImageOps.autocontrast(image, 5),
}


def outcomes(function: Callable[[Any], Any], recorded: bool, computed: Callable[[Any], Any]) -> list[Any]:
    """What a function makes of every picture."""
    found = []
    for (size, mode), file in FILES.items():
        image = Image.open(io.BytesIO(file))
        image.info["note"] = size
        made = helpers.outcome(lambda: function(image))  # noqa: B023
        if recorded:
            assert helpers.is_lazy(made), f"{size} {mode}"
        if isinstance(made, Image.Image):
            of, info, made = type(made).__name__.removeprefix("LazyPlain"), made.info, computed(made)
            found.append((of, info, made))
        else:
            found.append(made)
    return found


@pytest.mark.parametrize("name", RECORDED)
def test_recorded(name: str, backend: Backend) -> None:
    expected = outcomes(RECORDED[name], False, lambda image: image)
    assert any(isinstance(each, tuple) for each in expected)
    with backend.chosen():
        before = fallbacks()
        found = outcomes(RECORDED[name], True, backend.computed)
        assert backend.name == "dali" or fallbacks() == before
        helpers.assert_same(found, expected)


@pytest.mark.parametrize("name", LEFT_TO_PILLOW)
def test_all_else_is_pillows(name: str) -> None:
    def run() -> Any:
        return outcomes(LEFT_TO_PILLOW[name], False, lambda image: image)

    helpers.assert_equal_runs(run)


def test_an_image_that_was_painted_on() -> None:
    def run() -> Any:
        image = Image.open(io.BytesIO(FILES[SIZES[0], "RGB"]))
        image.paste((255, 0, 0), (0, 0, 30, 30))
        return ImageOps.pad(image, (40, 20)), ImageOps.expand(image, 3)

    helpers.assert_equal_runs(run)


@pytest.mark.parametrize("name", ["pad", "expand"])
def test_transparency_is_handed_down_as_pillow_does(name: str) -> None:
    def run() -> Any:
        image = Image.open(io.BytesIO(FILES[SIZES[0], "RGB"]))
        image.info["transparency"] = (1, 2, 3)
        made = RECORDED[name](image)
        return made, made.info

    helpers.assert_equal_runs(run)


def test_another_filter_or_place_would_be_seen() -> None:
    with accel.image_backend("cpu"):
        image = Image.open(io.BytesIO(FILES[SIZES[0], "RGB"]))
        ways = [
            np.asarray(ImageOps.fit(image, (40, 30), method, 0.01, centering))
            for method in (Resampling.BICUBIC, Resampling.BILINEAR, Resampling.LANCZOS)
            for centering in ((0.5, 0.5), (0.5, 0.3))
        ]
        ways += [np.asarray(ImageOps.pad(image, (40, 30), centering=(x, x))) for x in (0.1, 0.9)]
    assert all(not np.array_equal(one, two) for n, one in enumerate(ways) for two in ways[:n])


# -- ImageEnhance ----------------------------------------------------------------------------------------------------


CLASSES = (ImageEnhance.Brightness, ImageEnhance.Color, ImageEnhance.Contrast, ImageEnhance.Sharpness)
SMALL = {mode: helpers.jpeg(61, 47, mode) for mode in ("RGB", "L")}


def opened(mode: str = "RGB") -> Any:
    return Image.open(io.BytesIO(SMALL[mode]))


@pytest.mark.parametrize("factor", [0, 0.0, 0.3, 1.0, 1.9, -0.4])
@pytest.mark.parametrize("enhancer", CLASSES, ids=lambda cls: cls.__name__)
def test_enhancers(enhancer: Any, factor: float) -> None:
    def enhanced() -> Any:
        images = [opened(mode) for mode in SMALL]
        made = [enhancer(image).enhance(factor) for image in images]
        return images, made, [image.info for image in made]

    helpers.assert_equal_runs(enhanced, lazy=True)


@pytest.mark.parametrize("enhancer", CLASSES, ids=lambda cls: cls.__name__)
def test_what_an_enhancer_holds(enhancer: Any) -> None:
    expected = enhancer(opened())
    with accel.image_backend("cpu"):
        image = opened()
        found = enhancer(image)
        assert found.image is image
        assert np.array_equal(np.asarray(found.degenerate), np.asarray(expected.degenerate))
        assert getattr(found, "intermediate_mode", None) == getattr(expected, "intermediate_mode", None)
        # its pixels were asked for, and may have been painted on
        found.degenerate.paste((255, 0, 0), (0, 0, 20, 20))
        expected.degenerate.paste((255, 0, 0), (0, 0, 20, 20))
        assert np.array_equal(np.asarray(found.enhance(0.5)), np.asarray(expected.enhance(0.5)))


def test_an_enhancer_whose_images_are_exchanged() -> None:
    def exchanged() -> Image.Image:
        enhancer = ImageEnhance.Color(opened())
        enhancer.image = ImageOps.mirror(enhancer.image)
        return enhancer.enhance(0.4)

    helpers.assert_equal_runs(exchanged)


def test_painting_after_the_enhancer_was_made() -> None:
    def painted() -> Image.Image:
        image = opened()
        enhancer = ImageEnhance.Contrast(image)
        image.paste((255, 0, 0), (0, 0, 30, 30))
        return enhancer.enhance(0.4)

    helpers.assert_equal_runs(painted)


class Custom(ImageEnhance.Brightness):
    def enhance(self, factor: float) -> Image.Image:
        return super().enhance(factor / 2)


OTHERS: dict[str, Callable[[Any], Image.Image]] = {
    "equalize": ImageOps.equalize,
    "autocontrast": ImageOps.autocontrast,
    "equalize-mask": lambda image: ImageOps.equalize(image, Image.new("L", image.size, 1)),
    "autocontrast-cutoff": lambda image: ImageOps.autocontrast(image, 5),
    "autocontrast-tone": lambda image: ImageOps.autocontrast(image, preserve_tone=True),
    "custom-class": lambda image: Custom(image).enhance(1.4),
    "nan": lambda image: ImageEnhance.Color(image).enhance(float("inf")),
    "converted": lambda image: ImageEnhance.Color(image.convert("L").convert("RGB")).enhance(0.5),
}


LATE = {"equalize", "autocontrast", "converted", "autocontrast-tone"}  # the last asks a grey copy for its pixels


@pytest.mark.parametrize("name", OTHERS)
def test_other_functions(name: str) -> None:
    expected = OTHERS[name](opened())
    with accel.image_backend("cpu"):
        found = OTHERS[name](opened())
        assert helpers.is_lazy(found) == (name in LATE)
        assert np.array_equal(np.asarray(found), np.asarray(expected))


def test_eager_images_stay_pillows() -> None:
    with accel.image_backend("cpu"):
        image = helpers.picture(30, 20)
        assert type(ImageEnhance.Contrast(image).enhance(0.5)) is Image.Image
        assert type(ImageOps.equalize(image)) is Image.Image


def test_everything_is_given_back() -> None:
    before = [cls.__init__.__code__ for cls in CLASSES]
    with accel.image_backend("cpu"):
        assert [cls.__init__.__code__ for cls in CLASSES] != before
    assert [cls.__init__.__code__ for cls in CLASSES] == before
    lazy = ImageEnhance.Contrast(opened()).enhance(0.5)
    assert type(lazy) is Image.Image
    assert F.get_image_size(lazy) == [61, 47]
