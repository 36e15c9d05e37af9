"""``PIL.ImageOps`` on lazy images: recorded on every backend, and Pillow's in pixels, mode, size, info and errors."""

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

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
