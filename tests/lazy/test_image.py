"""The PIL surface: a LazyImage is, for whatever a script does with it, the image Pillow would have given."""

import copy
from collections.abc import Callable, Iterable
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image
from torchvision.transforms import functional as F

import accel
from tests.support import helpers
from tests.support.helpers import Named, assert_same, is_lazy, opened, outcome
from tests.support.uses import USES

PICTURES = helpers.pictures()
COLOUR, GREY = PICTURES[0], PICTURES[3]
TAGGED = PICTURES[5]
PNG = helpers.picture(83, 61)._repr_png_()


@pytest.fixture(params=PICTURES, ids=lambda picture: picture.name)
def picture(request: pytest.FixtureRequest) -> Named:
    return request.param  # type: ignore[no-any-return]


def some(pictures: Iterable[Named] = (COLOUR, GREY, TAGGED)) -> list[tuple[Any, Any]]:
    """Each picture as accel opens it, and as Pillow does."""
    with accel.image_backend("cpu"):
        lazy = [picture.open() for picture in pictures]
    return [(image, picture.open()) for image, picture in zip(lazy, pictures, strict=True)]


ATTRIBUTES = [
    *("format", "format_description", "mode", "size", "width", "height", "info", "quantization", "layer", "layers"),
    *("bits", "applist", "app", "icclist", "custom_mimetype", "is_animated", "n_frames", "encoderinfo"),
    *("decoderconfig", "palette", "text", "nonsense"),
]


def test_attributes_of_an_opened_image(picture: Named) -> None:
    lazy, plain = opened(picture)
    for name in ATTRIBUTES:
        assert outcome(lambda: getattr(lazy, name)) == outcome(lambda: getattr(plain, name)), name  # noqa: B023
    assert is_lazy(lazy)


DERIVED_ATTRIBUTES = ("format", "format_description", "mode", "size", "info", "palette", "layers")

QUESTIONS: dict[str, Callable[[Any], Any]] = {
    "exif": lambda image: dict(image.getexif()),
    "_getexif": lambda image: image._getexif(),
    "bands": lambda image: image.getbands(),
    "mimetype": lambda image: image.get_format_mimetype(),
    "transparency": lambda image: image.has_transparency_data,
    "tell": lambda image: image.tell(),
    "children": lambda image: image.get_child_images(),
    "seek": lambda image: image.seek(0),
    "with": lambda image: image.__enter__() is image,
}


@pytest.mark.filterwarnings("ignore:.*get_child_images:DeprecationWarning")  # of Pillow 12
@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_questions_need_no_pixels(question: Callable[[Any], Any]) -> None:
    for lazy, plain in some():
        assert question(lazy) == question(plain)
        assert is_lazy(lazy)


def test_a_real_exif_is_there() -> None:
    lazy, _ = opened(TAGGED)
    assert lazy.getexif()[helpers.ORIENTATION] == 6
    assert lazy.info["icc_profile"] == b"profile" * 40


DERIVED: dict[str, Callable[[Any], Any]] = {
    "copy": lambda image: image.copy(),
    "crop": lambda image: image.crop((1, 2, 30, 20)),
    "convert": lambda image: image.convert("RGB"),
    "resize": lambda image: image.resize((31, 17)),
    "transpose": lambda image: image.transpose(Image.Transpose.FLIP_TOP_BOTTOM),
    "all": lambda image: image.convert("RGB").crop((3, 1, 50, 40)).resize((20, 10)).copy(),
}


@pytest.mark.parametrize("derive", DERIVED.values(), ids=DERIVED)
def test_attributes_of_a_derived_image(derive: Callable[[Any], Any]) -> None:
    for pair in some():
        lazy, plain = map(derive, pair)
        assert is_lazy(lazy)
        for name in (*DERIVED_ATTRIBUTES, "readonly", "filename"):
            assert outcome(lambda: getattr(lazy, name)) == outcome(lambda: getattr(plain, name)), name  # noqa: B023
        assert dict(lazy.getexif()) == dict(plain.getexif())
        assert is_lazy(lazy)
        assert_same(lazy, plain)


def test_info_is_handed_down_as_it_was() -> None:
    lazy, plain = opened(TAGGED)
    for image in (lazy, plain):
        image.info["mine"] = 1
    derived = [image.crop((0, 0, 9, 9)) for image in (lazy, plain)]
    for image in (lazy, plain):
        image.info["later"] = 2
    assert derived[0].info == derived[1].info
    assert "mine" in derived[0].info
    assert "later" not in derived[0].info


def test_repr_is_like_pillows() -> None:
    lazy, plain = opened(COLOUR)
    assert repr(lazy).split(" at 0x")[0].split(".")[-1] == "LazyJpegFile image mode=RGB size=200x150"
    assert repr(plain).split(" at 0x")[0].endswith("mode=RGB size=200x150")
    assert is_lazy(lazy)


FILTERS = [code for code in Image.Resampling if not code.name.startswith("MKS")]

RECORDED: dict[str, Callable[[Any], Any]] = {
    "copy": lambda image: image.copy(),
    "copy.copy": copy.copy,
    "convert()": lambda image: image.convert(),
    "convert(same)": lambda image: image.convert(image.mode),
    "convert(RGB)": lambda image: image.convert("RGB"),
    "crop()": lambda image: image.crop(),
    "crop-inside": lambda image: image.crop((5, 3, 29, 31)),
    "crop-outside": lambda image: image.crop((-7, -3, image.width + 9, image.height + 1)),
    "crop-beyond": lambda image: image.crop((1000, 1000, 1010, 1020)),
    "crop-float": lambda image: image.crop((0.5, 1.5, 20.5, 33.49)),
    "crop-list": lambda image: image.crop([2, 3, 20, 30]),
    "hflip": lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
    "hflip-int": lambda image: image.transpose(0),
    "vflip": lambda image: image.transpose(Image.Transpose.FLIP_TOP_BOTTOM),
    "resize": lambda image: image.resize((33, 44)),
    "resize-same": lambda image: image.resize(image.size),
    "resize-list": lambda image: image.resize([12, 13]),
    "resize-numpy": lambda image: image.resize(tuple(np.array([12, 13]))),
    "resize-whole-box": lambda image: image.resize((12, 13), box=(0, 0, *image.size)),
    "chain": lambda image: image.convert("RGB").crop((2, 2, 60, 50)).resize((30, 31), 3).transpose(0),
} | {f"resize-{code.name}": lambda image, code=code: image.resize((37, 29), code) for code in FILTERS}


@pytest.mark.parametrize("record", RECORDED.values(), ids=RECORDED)
def test_recorded_methods_stay_lazy_and_equal_pillows(record: Callable[[Any], Any]) -> None:
    for lazy, plain in some(PICTURES):
        result, expected = record(lazy), record(plain)
        assert is_lazy(result) or record is copy.copy
        assert is_lazy(lazy) or record is copy.copy
        assert result is not lazy
        assert_same(result, expected)
        assert_same(lazy, plain)


def test_wrong_variants_would_be_seen() -> None:
    lazy, plain = opened(COLOUR)
    result = lazy.crop((5, 3, 60, 50)).resize((37, 29), Image.Resampling.BILINEAR)
    for other in (
        plain.crop((6, 3, 61, 50)).resize((37, 29), Image.Resampling.BILINEAR),
        plain.crop((5, 3, 60, 50)).resize((37, 29), Image.Resampling.HAMMING),
        plain.resize((37, 29), Image.Resampling.BILINEAR, box=(5, 3, 60, 50)).transpose(0),
    ):
        assert result.tobytes() != other.tobytes()


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_any_use_gives_what_pillow_gives(use: Callable[[Any], Any]) -> None:
    """Of an image that was opened, of one with recorded steps, and of one that was made of pixels."""
    for pair in some():
        lazy, plain = (image.crop((2, 3, 71, 75)).transpose(0) for image in pair)
        assert is_lazy(lazy)
        assert_same(*map(use, pair))
        assert_same(outcome(use, lazy), outcome(use, plain))
    for eager in (Image.open(BytesIO(PNG)), Image.fromarray(np.asarray(helpers.picture(32, 29, "L")))):
        expected = outcome(use, F.vflip(eager))
        with accel.image_backend("cpu"):
            lazy = F.vflip(eager)
        assert is_lazy(lazy)
        assert_same(outcome(use, lazy), expected)


BAD: dict[str, Callable[[Any], Any]] = {
    "resize-zero": lambda image: image.resize((0, 10)),
    "resize-negative": lambda image: image.resize((10, -1)),
    "resize-float": lambda image: image.resize((10.5, 3)),
    "resize-one": lambda image: image.resize((10,)),
    "resize-none": lambda image: image.resize(None),
    "resize-filter": lambda image: image.resize((10, 10), 9),
    "resize-filter-name": lambda image: image.resize((10, 10), "bilinear"),
    "resize-box-outside": lambda image: image.resize((10, 10), box=(0, 0, 1000, 1000)),
    "resize-gap": lambda image: image.resize((10, 10), reducing_gap=0.5),
    "crop-right": lambda image: image.crop((10, 0, 5, 5)),
    "crop-lower": lambda image: image.crop((0, 10, 5, 5)),
    "crop-three": lambda image: image.crop((0, 1, 2)),
    "crop-text": lambda image: image.crop("box"),
    "transpose-text": lambda image: image.transpose("left"),
    "thumbnail-zero": lambda image: image.thumbnail((0, 0)),
    "seek-beyond": lambda image: image.seek(3),
    "getpixel-text": lambda image: image.getpixel("ab"),
    "putpixel-bad": lambda image: image.putpixel((0, 0), "no colour"),
    "attribute": lambda image: image.no_such_attribute,
    "save-unknown": lambda image: image.save(BytesIO()),
    "hash": hash,
    "convert-matrix": lambda image: image.convert("HSV", (1,)),
}


@pytest.mark.parametrize("use", BAD.values(), ids=BAD)
def test_wrong_arguments_raise_what_pillow_raises(use: Callable[[Any], Any]) -> None:
    for lazy, plain in some():
        expected, actual = outcome(use, plain), outcome(use, lazy)
        assert isinstance(expected, type)
        assert issubclass(expected, Exception)
        assert actual is expected


def test_bad_sizes_raise_pillows_text_and_decode_nothing() -> None:
    lazy, plain = opened(COLOUR)
    for size in ((0, 10), (10, -1)):
        with pytest.raises(ValueError) as expected:
            plain.resize(size)
        with pytest.raises(ValueError) as actual:
            lazy.resize(size)
        assert str(actual.value) == str(expected.value)
    assert is_lazy(lazy)


@pytest.mark.parametrize("box", [(5, 5, 5, 9), (3, 4, 9, 4), (7, 7, 7, 7)])
def test_empty_crops(box: tuple[int, int, int, int]) -> None:
    lazy, plain = opened(COLOUR)
    assert lazy.crop(box).size == plain.crop(box).size
    assert outcome(lambda: lazy.crop(box).resize((3, 3)).tobytes()) == outcome(
        lambda: plain.crop(box).resize((3, 3)).tobytes()
    )


def test_a_change_is_of_one_image_alone() -> None:
    """What others see of changes, and what follows them: test_in_place.py."""
    lazy, plain = opened(COLOUR)
    earlier = lazy.crop((0, 0, 30, 30)), plain.crop((0, 0, 30, 30))
    for image in (lazy, plain):
        image.copy().paste("red", (0, 0, 9, 9))
    assert_same(lazy, plain)
    for image in (lazy, plain):
        image.paste("red", (0, 0, 9, 9))
    assert_same(lazy, plain)
    assert_same(*earlier)


def test_equality_is_of_pixels() -> None:
    lazy, plain = opened(COLOUR)
    other, _ = opened(COLOUR)
    assert lazy == other
    assert lazy == plain
    assert plain == lazy
    assert lazy != plain.copy()
    assert lazy.copy() == plain.copy()
    assert plain.copy() == lazy.copy()
    other.putpixel((0, 0), (1, 2, 3))
    assert lazy != other
    assert lazy != lazy.crop((0, 0, 5, 5))
    assert lazy != "an image"
    assert lazy.resize((9, 9)) != lazy.resize((9, 9), 2)


def test_load_alone_decodes_nothing() -> None:
    lazy, _ = opened(COLOUR)
    before = accel.stats()["computed early"]
    access = lazy.load()
    assert is_lazy(lazy)
    assert accel.stats()["computed early"] == before
    assert access[3, 3] == COLOUR.open().getpixel((3, 3))
    assert not is_lazy(lazy)
    assert accel.stats()["computed early"] == before + 1
