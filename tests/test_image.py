"""The PIL surface: a LazyImage is, for whatever a script does with it, the image Pillow would have given."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from io import BytesIO
from typing import Any

import helpers
import numpy as np
import pytest
from helpers import Named, assert_same, is_late, opened, outcome
from PIL import Image, ImageChops, ImageDraw, ImageEnhance, ImageFilter, ImageOps, ImageStat

import accel

PICTURES = helpers.pictures()
COLOUR, GREY = PICTURES[0], PICTURES[3]
TAGGED = PICTURES[5]


@pytest.fixture(params=PICTURES, ids=lambda picture: picture.name)
def picture(request: pytest.FixtureRequest) -> Named:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(params=[COLOUR, GREY, TAGGED], ids=lambda picture: picture.name)
def some(request: pytest.FixtureRequest) -> Named:
    return request.param  # type: ignore[no-any-return]


# -- what an image says about itself ------------------------------------------------------------------------


ATTRIBUTES = [
    "format",
    "format_description",
    "mode",
    "size",
    "width",
    "height",
    "info",
    "quantization",
    "layer",
    "layers",
    "bits",
    "applist",
    "app",
    "icclist",
    "custom_mimetype",
    "is_animated",
    "n_frames",
    "encoderinfo",
    "decoderconfig",
    "palette",
    "text",
    "nonsense",
]


def test_attributes_of_an_opened_image(picture: Named) -> None:
    late, plain = opened(picture)
    for name in ATTRIBUTES:
        assert outcome(lambda: getattr(late, name)) == outcome(lambda: getattr(plain, name)), name  # noqa: B023
    assert is_late(late)


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
def test_questions_need_no_pixels(some: Named, question: Callable[[Any], Any]) -> None:
    late, plain = opened(some)
    assert question(late) == question(plain)
    assert is_late(late)


def test_a_real_exif_is_there() -> None:
    late, _ = opened(TAGGED)
    assert late.getexif()[helpers.ORIENTATION] == 6
    assert late.info["icc_profile"] == b"profile" * 40


DERIVED: dict[str, Callable[[Any], Any]] = {
    "copy": lambda image: image.copy(),
    "crop": lambda image: image.crop((1, 2, 30, 20)),
    "convert": lambda image: image.convert("RGB"),
    "resize": lambda image: image.resize((31, 17)),
    "transpose": lambda image: image.transpose(Image.Transpose.FLIP_TOP_BOTTOM),
    "all": lambda image: image.convert("RGB").crop((3, 1, 50, 40)).resize((20, 10)).copy(),
}


@pytest.mark.parametrize("derive", DERIVED.values(), ids=DERIVED)
def test_attributes_of_a_derived_image(some: Named, derive: Callable[[Any], Any]) -> None:
    late, plain = (derive(image) for image in opened(some))
    assert is_late(late)
    for name in ("format", "format_description", "mode", "size", "info", "palette", "readonly", "filename", "layers"):
        assert outcome(lambda: getattr(late, name)) == outcome(lambda: getattr(plain, name)), name  # noqa: B023
    assert dict(late.getexif()) == dict(plain.getexif())
    assert is_late(late)
    assert_same(late, plain)


def test_info_is_handed_down_as_it_was() -> None:
    late, plain = opened(TAGGED)
    for image in (late, plain):
        image.info["mine"] = 1
    derived = [image.crop((0, 0, 9, 9)) for image in (late, plain)]
    for image in (late, plain):
        image.info["later"] = 2
    assert derived[0].info == derived[1].info
    assert "mine" in derived[0].info
    assert "later" not in derived[0].info


def test_repr_is_like_pillows() -> None:
    late, plain = opened(COLOUR)
    assert repr(late).split(" at 0x")[0].split(".")[-1] == "LazyJpegFile image mode=RGB size=200x150"
    assert repr(plain).split(" at 0x")[0].endswith("mode=RGB size=200x150")
    assert is_late(late)


# -- what is recorded ---------------------------------------------------------------------------------------

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
def test_recorded_methods_stay_late_and_equal_pillows(picture: Named, record: Callable[[Any], Any]) -> None:
    late, plain = opened(picture)
    result, expected = record(late), record(plain)
    assert is_late(result) or record is copy.copy
    assert is_late(late) or record is copy.copy
    assert result is not late
    assert_same(result, expected)
    assert_same(late, plain)


def test_wrong_variants_would_be_seen() -> None:
    late, plain = opened(COLOUR)
    result = late.crop((5, 3, 60, 50)).resize((37, 29), Image.Resampling.BILINEAR)
    for other in (
        plain.crop((6, 3, 61, 50)).resize((37, 29), Image.Resampling.BILINEAR),
        plain.crop((5, 3, 60, 50)).resize((37, 29), Image.Resampling.HAMMING),
        plain.resize((37, 29), Image.Resampling.BILINEAR, box=(5, 3, 60, 50)).transpose(0),
    ):
        assert result.tobytes() != other.tobytes()


# -- what has the pixels computed ---------------------------------------------------------------------------


def _access(image: Any) -> Any:
    pixels = image.load()
    return pixels[0, 0], pixels[image.width - 1, image.height - 1], pixels[-1, -1]


def _written(image: Any) -> Any:
    pixels = image.load()
    pixels[3, 4] = (1, 2, 3) if image.mode == "RGB" else 7
    return image, pixels[3, 4], image.getpixel((3, 4))


def _pasted(image: Any) -> Any:
    image.paste((9, 8, 7) if image.mode == "RGB" else 9, (3, 4, 20, 21))
    return image


def _drawn(image: Any) -> Any:
    ImageDraw.Draw(image).ellipse((5, 5, 40, 30), fill=128, outline=1)
    return image


def _saved(image: Any, **options: Any) -> bytes:
    stream = BytesIO()
    image.save(stream, **options)
    return stream.getvalue()


def _thumbnail(image: Any, *args: Any, **options: Any) -> Any:
    image.thumbnail(*args, **options)
    return image, image.size


def _drafted(image: Any) -> Any:
    result = image.draft("RGB", (image.width // 3, image.height // 3))
    return result, image.size, image.mode, image


def _grey_drafted(image: Any) -> Any:
    return image.draft("L", (image.width // 2, image.height // 2)), image.size, image.mode, image


def _loaded(image: Any) -> Any:
    image.load()
    return image


def _put(image: Any) -> Any:
    image.putpixel((2, 2), 5)
    image.putalpha(77)
    return image


USES: dict[str, Callable[[Any], Any]] = {
    "np.asarray": np.asarray,
    "np.array": lambda image: np.array(image, copy=True),
    "np.asarray-dtype": lambda image: np.asarray(image, np.float32),
    "array-interface": lambda image: np.array(image.__array_interface__["shape"]),
    "getpixel": lambda image: [image.getpixel((x, 3)) for x in (0, 9, -1)],
    "getpixel-outside": lambda image: outcome(lambda: image.getpixel((10**6, 0))),
    "load-read": _access,
    "load-write": _written,
    "paste": _pasted,
    "paste-image": lambda image: (image.paste(image.resize((20, 20)), (2, 2)), image)[1],
    "pasted-elsewhere": lambda image: (canvas := Image.new("RGB", (300, 300), "red")).paste(image, (9, 9)) or canvas,
    "draw": _drawn,
    "put": _put,
    "putdata": lambda image: (image.putdata([3] * 10), image)[1] if image.mode == "L" else image,
    "point": lambda image: image.point(lambda level: 255 - level),
    "tobytes": lambda image: image.tobytes(),
    "histogram": lambda image: image.histogram(),
    "entropy": lambda image: image.entropy(),
    "getbbox": lambda image: image.getbbox(),
    "getcolors": lambda image: image.getcolors(10**6),
    "getextrema": lambda image: image.getextrema(),
    "getprojection": lambda image: image.getprojection(),
    "getchannel": lambda image: image.getchannel(0),
    "stat": lambda image: ImageStat.Stat(image).mean,
    "split": lambda image: image.split(),
    "merge": lambda image: Image.merge("RGB", [image.getchannel(0)] * 3),
    "blend": lambda image: Image.blend(image, image.transpose(0), 0.3),
    "chops": lambda image: ImageChops.difference(image, image.transpose(1)),
    "convert(L)": lambda image: image.convert("L"),
    "convert(RGBA)": lambda image: image.convert("RGBA"),
    "convert(P)": lambda image: image.convert("P", palette=Image.Palette.ADAPTIVE, colors=9).convert("RGB"),
    "convert(matrix)": lambda image: image.convert("RGB").convert("L", (0.5, 0.3, 0.2, 9)),
    "convert(bad)": lambda image: outcome(lambda: image.convert("nonsense")),
    "quantize": lambda image: image.quantize(7).convert("RGB"),
    "reduce": lambda image: image.reduce(2),
    "rotate": lambda image: image.rotate(33, expand=True, fillcolor=9),
    "rotate-90": lambda image: image.rotate(90, expand=True),
    "transpose-rotate": lambda image: image.transpose(Image.Transpose.ROTATE_90),
    "transpose-bad": lambda image: outcome(lambda: image.transpose(99)),
    "transform": lambda image: image.transform((30, 40), Image.Transform.AFFINE, (1, 0.2, 3, 0.1, 1, 2), 2),
    "filter": lambda image: image.filter(ImageFilter.GaussianBlur(2)),
    "median": lambda image: image.filter(ImageFilter.MedianFilter(3)),
    "enhance": lambda image: ImageEnhance.Color(image).enhance(0.3),
    "sharpness": lambda image: ImageEnhance.Sharpness(image).enhance(1.7),
    "ops.equalize": ImageOps.equalize,
    "ops.autocontrast": ImageOps.autocontrast,
    "ops.posterize": lambda image: ImageOps.posterize(image, 3),
    "ops.solarize": ImageOps.solarize,
    "ops.invert": ImageOps.invert,
    "ops.grayscale": ImageOps.grayscale,
    "ops.expand": lambda image: ImageOps.expand(image, 5, 9),
    "ops.fit": lambda image: ImageOps.fit(image, (40, 30)),
    "ops.pad": lambda image: ImageOps.pad(image, (40, 30), color=7),
    "ops.contain": lambda image: ImageOps.contain(image, (40, 30)),
    "ops.mirror": ImageOps.mirror,
    "ops.exif_transpose": lambda image: (fixed := ImageOps.exif_transpose(image), dict(fixed.getexif())),
    "save-png": lambda image: _saved(image, format="PNG"),
    "save-jpeg": lambda image: _saved(image, format="JPEG", quality=70),
    "save-keep": lambda image: _saved(image, format="JPEG", quality="keep"),
    "save-keep-copy": lambda image: outcome(lambda: _saved(image.copy(), format="JPEG", quality="keep")),
    "resize-box": lambda image: image.resize((20, 21), 2, box=(3.3, 4.1, 30.7, 29.9)),
    "resize-reducing-gap": lambda image: image.resize((20, 11), 3, reducing_gap=1.1),
    "resize-mks": lambda image: [outcome(lambda: image.resize((31, 29), code)) for code in (6, 7)],  # noqa: B023
    "resize-box-empty": lambda image: image.resize((10, 10), box=(5, 5, 5, 5)),
    "getpalette": lambda image: image.getpalette(),
    "thumbnail": lambda image: _thumbnail(image, (40, 40)),
    "thumbnail-large": lambda image: _thumbnail(image, (400, 400)),
    "thumbnail-no-draft": lambda image: _thumbnail(image, (40, 40), reducing_gap=None),
    "thumbnail-filter": lambda image: _thumbnail(image, (31, 53), Image.Resampling.BILINEAR, reducing_gap=1.5),
    "thumbnail-copy": lambda image: _thumbnail(image.copy(), (20, 20)),
    "thumbnail-converted": lambda image: _thumbnail(image.convert("RGB"), (20, 20)),
    "thumbnail-after-load": lambda image: _thumbnail(_loaded(image), (20, 20)),
    "thumbnail-after-getpixel": lambda image: (image.getpixel((0, 0)), _thumbnail(image, (20, 20))),
    "thumbnail-after-copy": lambda image: (image.copy(), _thumbnail(image, (20, 20))),
    "thumbnail-after-crop": lambda image: (image.crop((0, 0, 9, 9)), _thumbnail(image, (20, 20))),
    "thumbnail-after-convert": lambda image: (image.convert("RGB"), _thumbnail(image, (20, 20))),
    "thumbnail-after-resize": lambda image: (image.resize((50, 50)), _thumbnail(image, (20, 20))),
    "thumbnail-after-flip": lambda image: (image.transpose(0), _thumbnail(image, (20, 20))),
    "thumbnail-twice": lambda image: (_thumbnail(image, (60, 60)), _thumbnail(image, (20, 20))),
    "draft": _drafted,
    "draft-grey": _grey_drafted,
    "draft-none": lambda image: (image.draft(None, None), image),
    "draft-after-load": lambda image: _drafted(_loaded(image)),
    "draft-attributes": lambda image: (_drafted(image), image.format, image.info, image.quantization, image.filename),
    "draft-save-keep": lambda image: (_drafted(image), _saved(image, format="JPEG", quality="keep")),
    "draft-crop": lambda image: (_drafted(image), image.crop((1, 1, 9, 9)), image.copy(), image.resize((5, 5))),
    "draft-pickle": lambda image: (_drafted(image), pickle.loads(pickle.dumps(image)).tobytes()),
    "verify": lambda image: image.verify(),
    "seek": lambda image: (image.seek(0), image.tell(), outcome(lambda: image.seek(1)), image),
    "deepcopy": copy.deepcopy,
    "deepcopy-derived": lambda image: copy.deepcopy(image.resize((20, 10))),
    "pickle": lambda image: pickle.loads(pickle.dumps(image)),
    "pickle-derived": lambda image: pickle.loads(pickle.dumps(image.resize((20, 10)))),
    "pickle-derived-info": lambda image: pickle.loads(pickle.dumps(image.resize((20, 10)))).info,
    "pickle-touched": lambda image: (image.getpixel((0, 0)), pickle.loads(pickle.dumps(image))),
    "png": lambda image: image._repr_png_(),
    "iterate-frames": lambda image: [
        frame.copy() for frame in __import__("PIL.ImageSequence").ImageSequence.Iterator(image)
    ],
    "remap": lambda image: outcome(lambda: image.remap_palette([0, 1])),
    "frombytes": lambda image: (image.frombytes(bytes(len(image.tobytes()))), image)[1],
    "effect": lambda image: image.effect_spread(0),
    "apply_transparency": lambda image: (image.apply_transparency(), image)[1],
    "eval": lambda image: Image.eval(image, lambda level: level // 2),
    "closed": lambda image: (image.close(), outcome(lambda: image.getpixel((0, 0))))[1],
    "composite": lambda image: Image.composite(
        image, image.transpose(1), Image.linear_gradient("L").resize(image.size)
    ),
    "alpha": lambda image: Image.alpha_composite(image.convert("RGBA"), Image.new("RGBA", image.size, (9, 9, 9, 99))),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_any_use_gives_what_pillow_gives(some: Named, use: Callable[[Any], Any]) -> None:
    late, plain = opened(some)
    assert_same(use(late), use(plain))


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_any_use_of_a_recorded_image_gives_what_pillow_gives(some: Named, use: Callable[[Any], Any]) -> None:
    def derived(image: Any) -> Any:
        return image.crop((2, 3, 71, 75)).transpose(0)

    late, plain = (derived(image) for image in opened(some))
    assert is_late(late)
    assert_same(outcome(lambda: use(late)), outcome(lambda: use(plain)))


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
def test_wrong_arguments_raise_what_pillow_raises(some: Named, use: Callable[[Any], Any]) -> None:
    late, plain = opened(some)
    expected, actual = outcome(lambda: use(plain)), outcome(lambda: use(late))
    assert isinstance(expected, type)
    assert issubclass(expected, Exception)
    assert actual is expected


def test_bad_sizes_raise_pillows_text_and_decode_nothing() -> None:
    late, plain = opened(COLOUR)
    for size in ((0, 10), (10, -1)):
        with pytest.raises(ValueError) as expected:
            plain.resize(size)
        with pytest.raises(ValueError) as actual:
            late.resize(size)
        assert str(actual.value) == str(expected.value)
    assert is_late(late)


@pytest.mark.parametrize("box", [(5, 5, 5, 9), (3, 4, 9, 4), (7, 7, 7, 7)])
def test_empty_crops(box: tuple[int, int, int, int]) -> None:
    late, plain = opened(COLOUR)
    assert late.crop(box).size == plain.crop(box).size
    assert outcome(lambda: late.crop(box).resize((3, 3)).tobytes()) == outcome(
        lambda: plain.crop(box).resize((3, 3)).tobytes()
    )


# -- changes in place ---------------------------------------------------------------------------------------

CHANGES: dict[str, Callable[[Any], Any]] = {
    "paste": _pasted,
    "draw": _drawn,
    "pixel": _written,
    "putpixel": lambda image: image.putpixel((6, 6), 255),
    "thumbnail": lambda image: image.thumbnail((50, 50)),
    "putalpha": lambda image: image.putalpha(9),
    "frombytes": lambda image: image.frombytes(bytes(image.width * image.height * len(image.getbands()))),
    "exif": lambda image: ImageOps.exif_transpose(image, in_place=True),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_follows_a_change_sees_it(some: Named, change: Callable[[Any], Any]) -> None:
    late, plain = opened(some)
    earlier = late.crop((0, 0, 30, 30)), plain.crop((0, 0, 30, 30))
    for image in (late, plain):
        change(image)
    for follow in (
        lambda image: image.crop((0, 0, 20, 20)),
        lambda image: image.resize((15, 14)),
        lambda image: image.transpose(0),
        lambda image: image.copy(),
        lambda image: image.convert("RGB"),
        lambda image: pickle.loads(pickle.dumps(image)).tobytes(),
        lambda image: image,
    ):
        assert_same(follow(late), follow(plain))
    assert_same(*earlier)  # made before the change, they do not see it


def test_a_change_of_a_copy_leaves_the_original() -> None:
    late, plain = opened(COLOUR)
    for image in (late, plain):
        image.copy().paste("red", (0, 0, 9, 9))
    assert_same(late, plain)


# -- equality -----------------------------------------------------------------------------------------------


def test_equality_is_of_pixels() -> None:
    late, plain = opened(COLOUR)
    other, _ = opened(COLOUR)
    assert late == other
    assert late.copy() == plain.copy()
    assert plain.copy() == late.copy()
    other.putpixel((0, 0), (1, 2, 3))
    assert late != other
    assert late != late.crop((0, 0, 5, 5))
    assert late != "an image"
    assert late.resize((9, 9)) != late.resize((9, 9), 2)


# -- who asked ----------------------------------------------------------------------------------------------


def test_load_alone_decodes_nothing() -> None:
    late, _ = opened(COLOUR)
    before = accel.stats()["computed early"]
    access = late.load()
    assert is_late(late)
    assert accel.stats()["computed early"] == before
    assert access[3, 3] == COLOUR.open().getpixel((3, 3))
    assert not is_late(late)
    assert accel.stats()["computed early"] == before + 1
    assert accel.stats()["realised early"] == before + 1, "its name until 0.1, for one more release"
