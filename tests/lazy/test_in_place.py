"""Everything of Pillow's that changes an image in place, on lazy images: the result is Pillow's in every field.

``CHANGES`` is the table of it: what a change touches, and whether the image is still lazy after it. Pillow's source is
searched for methods that change images and for fields, and each must have a row, so a new one is noticed.
"""

import copy
import pickle
from collections.abc import Callable, Iterable
from functools import partial
from io import BytesIO
from itertools import cycle, product
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import GifImagePlugin, Image, ImageCms, ImageDraw, ImageFile, ImageFilter, ImageOps, ImagePalette
from PIL.JpegImagePlugin import JpegImageFile
from PIL.MpoImagePlugin import MpoImageFile
from torchvision.transforms import functional as F

import accel
from accel.lazy import jpeg_file
from tests.support import helpers, inside, pillow_source

MODES = "L", "RGB"
COLOURS = [value for level in range(256) for value in (level * 37 % 256, level * 91 % 256, level * 13 % 256)]


def data(mode: str) -> bytes:
    return helpers.jpeg(26, 22, mode, exif=helpers.exif(), icc_profile=b"profile" * 9)


def opened(mode: str) -> Any:
    return Image.open(BytesIO(data(mode)))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder for files, all of which accel reads at first as it does large ones: only their beginning."""
    monkeypatch.chdir(tmp_path)
    inside.small_files_opened_as_large(monkeypatch)
    monkeypatch.setattr(jpeg_file, "_HEADS", range(500, 1000, 10))
    for mode in MODES:
        Path(f"{mode}.jpg").write_bytes(data(mode))


def _changed(change: Callable[[Any], Any], image: Any) -> Any:
    change(image)
    return image


# -- images that changes are tried on -----------------------------------------------------------------------

STARTS: dict[str, Callable[[Any], Any]] = {
    "opened": lambda image: image,
    "file": lambda image: Image.open(f"{image.mode}.jpg"),
    "accessed": lambda image: image.transpose(0),  # and what load() returned is used in the end
    "loaded": partial(_changed, lambda image: image.load()),
    "drafted": partial(_changed, lambda image: image.draft(None, (13, 11))),
    "thumbnail": partial(_changed, lambda image: image.thumbnail((13, 11), reducing_gap=None)),
    "deep copy": copy.deepcopy,
    "sent": lambda image: pickle.loads(ForkingPickler.dumps(image)),
    "copy": lambda image: image.copy(),
    "convert": lambda image: image.convert("RGB" if image.mode == "L" else "L"),
    "crop": lambda image: image.crop((-1, 2, 20, 21)),
    "resize": lambda image: image.resize((17, 13)),
    "resize nearest": lambda image: image.resize((17, 13), Image.Resampling.NEAREST),
    "reduce": lambda image: image.reduce(2),
    "transpose": lambda image: image.transpose(Image.Transpose.ROTATE_90),
    "rotate": lambda image: image.rotate(20),
    "point": lambda image: image.point(lambda level: 255 - level),
    "filter": lambda image: image.filter(ImageFilter.BoxBlur(1)),
    "pad": lambda image: F.pad(image, [2]),
    "exif_transpose": ImageOps.exif_transpose,
    "array": lambda image: F.hflip(Image.fromarray(np.asarray(image))),
    "tensor": lambda image: F.vflip(F.to_pil_image(F.to_tensor(image))),
    "several": lambda image: F.resize(F.crop(image.convert("RGB").convert("L"), 1, 1, 20, 20), [9, 8]),
}
"""Ways from an image that was opened to a lazy one."""


# -- the table ----------------------------------------------------------------------------------------------


class Change(NamedTuple):
    """A change in place.

    Attributes:
        touches: Pillow's fields that it may set or change. name: the method or function, or fields that are set.
        do: it, tried on an image; None: it is not tried. lazy: whether a lazy image is still lazy after it.
        works: whether it, or a later use of the image, works for files that are not loaded yet where Pillow raises: it
            closes the file, which accel has read, or it uses the pixels and does not load them first.
    """

    name: str
    touches: str
    do: Callable[[Any], Any] | None
    lazy: bool = False
    works: bool = False


def colour(image: Any, value: int = 9) -> Any:
    return (value, 8, 7)[: len(image.getbands())] if len(image.getbands()) > 1 else value


def _palette(image: Any) -> None:
    palette = ImagePalette.ImagePalette("RGB", bytearray(COLOURS))
    palette.dirty = 1
    image.palette = palette


def _transparency(image: Any) -> None:
    image.info["transparency"] = colour(image)


def _exif(image: Any) -> None:
    image.getexif()[0x0110] = "model"


_PROFILE = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB"))  # which has the time in it


def _cms(image: Any) -> None:
    ImageCms.profileToProfile(image, _PROFILE, _PROFILE, inPlace=True)


def _save(image: Any, format: str, **options: Any) -> bytes:
    stream = BytesIO()
    image.save(stream, format, **options)
    return stream.getvalue()


def _state(image: Any) -> None:
    _, *state = image.__getstate__()
    state[3] = bytes(len(state[3]))
    image.__setstate__([{"mine": 1}, *state])


def _mode(image: Any) -> None:
    image._mode = {"L": "P", "RGB": "YCbCr"}.get(image.mode, image.mode)


def _resized_by_fields(image: Any) -> None:
    image.load()
    smaller = image.im.resize((5, 4))
    image._size = smaller.size
    image.im = smaller


def _another_file(image: Any) -> None:
    if getattr(image, "fp", None) is not None:
        image.fp.close()
    image.fp = BytesIO(helpers.jpeg(26, 22, seed=1))


PIXELS, LOADS, SAVES = (
    "im readonly",
    "im tile fp map readonly palette",
    "im readonly encoderinfo encoderconfig _default_encoderinfo",
)
CHANGES = [
    # methods that write pixels
    Change("paste", PIXELS, lambda image: image.paste(colour(image), (3, 4, 9, 9))),
    Change("paste", PIXELS, lambda image: image.paste(image.resize((5, 5)), (1, 1), Image.new("L", (5, 5), 99))),
    Change("alpha_composite", PIXELS, lambda image: image.alpha_composite(Image.new("RGBA", (5, 5), (9, 9, 9, 99)))),
    Change("putpixel", PIXELS, lambda image: image.putpixel((1, 1), colour(image))),
    Change("putdata", PIXELS, lambda image: image.putdata([colour(image, level) for level in range(40)])),
    Change(
        "frombytes", PIXELS, lambda image: image.frombytes(bytes(range(200)) * 9, "raw", image.mode, 0, 1), works=True
    ),
    Change("load", LOADS, lambda image: image.load().__setitem__((1, 2), colour(image))),
    Change("load", LOADS, lambda image: image.load() and None, lazy=True),
    Change("ImageDraw.ImageDraw.__init__", "im", lambda image: ImageDraw.Draw(image).rectangle((1, 2, 9, 9), 50, 60)),
    Change("ImageDraw.floodfill", "im", lambda image: ImageDraw.floodfill(image, (3, 3), colour(image), thresh=40)),
    Change("ImageCms.ImageCmsTransform.apply", "im info", _cms),
    Change("_copy", "im readonly", lambda image: image._copy()),
    Change("_ensure_mutable", "im readonly", lambda image: image._ensure_mutable()),
    # methods that set the mode, the size or the palette
    Change("putalpha", "im readonly _mode", lambda image: image.putalpha(77)),
    Change(
        "putalpha", "im readonly _mode", lambda image: image.putalpha(Image.linear_gradient("L").resize(image.size))
    ),
    Change("putpalette", "_mode palette", lambda image: image.putpalette(COLOURS)),
    Change("putpalette", "_mode palette", lambda image: image.putpalette(COLOURS[:600], "RGBX")),
    Change("putpalette", "_mode palette", lambda image: image.putpalette(bytes(COLOURS), "RGBA;L")),
    Change("putpalette", "_mode palette", lambda image: image.putpalette(COLOURS[:24], "BGR")),
    Change("putpalette", "_mode palette", lambda image: image.putpalette(ImagePalette.wedge())),
    Change("apply_transparency", "palette info", lambda image: image.apply_transparency(), lazy=True),
    Change("thumbnail", "im _mode _size readonly", lambda image: image.thumbnail((9, 9))),
    Change("draft", "_mode _size tile decoderconfig", lambda image: image.draft("L", (12, 12))),
    Change("load_djpeg", "im _mode _size tile", None),  # runs a program
    Change("ImageOps.exif_transpose", "im _size info", lambda image: ImageOps.exif_transpose(image, in_place=True)),
    Change("__setstate__", "info _mode _size im tile filename layers layer palette", _state),
    Change("ImagePalette.getcolor", "palette", lambda image: image.palette.getcolor((1, 2, 3), image)),
    Change("GifImagePlugin.getheader", "palette im", lambda image: GifImagePlugin.getheader(image), works=True),
    # what is not pixels
    Change("getexif", "_exif", _exif, lazy=True),
    Change("_reload_exif", "_exif", lambda image: image._reload_exif(), lazy=True),
    Change("seek", "im tile fp info offset __frame", lambda image: image.seek(0), lazy=True),
    Change("save", SAVES, lambda image: _save(image, "PNG")),
    Change("save", SAVES, lambda image: _save(image, "GIF")),
    Change("save", SAVES, lambda image: _save(image, "PALM", bpp=2)),
    Change("save", SAVES, lambda image: _save(image, "JPEG", quality=50)),
    # files
    Change("close", "im map fp _fp", lambda image: image.close()),
    Change("__exit__", "fp _fp", lambda image: image.__exit__(None, None, None), lazy=True, works=True),
    Change("verify", "fp", lambda image: image.verify(), lazy=True, works=True),
    # fields that are set from outside
    Change("_mode", "_mode", _mode, works=True),
    Change("_size", "_size", lambda image: setattr(image, "_size", (image.width, image.height))),
    Change("im", "im _size", _resized_by_fields),
    Change("palette", "palette", _palette),
    Change("palette", "palette", lambda image: setattr(image, "palette", None)),
    Change("info", "info", lambda image: setattr(image, "info", {"mine": [1]}), lazy=True),
    Change("info", "info", lambda image: image.info.update(mine=[2], dpi=(9, 9)), lazy=True),
    Change("info", "info", lambda image: image.info.pop("exif", None), lazy=True),
    Change("info", "info", _transparency, lazy=True),
    Change("_exif", "_exif", lambda image: setattr(image, "_exif", None), lazy=True),
    Change("tile", "tile", lambda image: setattr(image, "tile", [])),
    Change("decoderconfig", "decoderconfig", lambda image: setattr(image, "decoderconfig", (2, 0))),
    Change("fp", "fp", _another_file),
    Change("readonly", "readonly", lambda image: (image.load(), setattr(image, "readonly", 1))[1], lazy=True),
    Change("encoderinfo", "encoderinfo", lambda image: setattr(image, "encoderinfo", {"quality": 9}), lazy=True),
]

FOLLOWING: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda image: image,
    "crop": lambda image: image.crop((0, 0, 8, 7)),
    "resize": lambda image: image.resize((7, 6), Image.Resampling.NEAREST),
    "transpose": lambda image: image.transpose(0),
    "convert": lambda image: image.convert("RGB"),
    "copy": lambda image: image.copy(),
    "tensor": F.pil_to_tensor,
    "array": np.asarray,
    "save": lambda image: _save(image, "PNG"),
    "pickle": lambda image: pickle.loads(pickle.dumps(image)),
    "deep copy": copy.deepcopy,
}


def _fields(image: Any) -> Any:
    palette = image.palette
    colours = palette and (palette.mode, palette.rawmode, palette.dirty, bytes(palette.palette))
    return image.mode, image.size, colours, dict(image.info), dict(image.getexif())


def facts(image: Any) -> list[Any]:
    """Everything of an image: its fields before its pixels are used, its pixels, and its fields after it."""
    if not isinstance(image, Image.Image):
        return [np.asarray(image).tolist()]
    uses = (
        _fields,
        Image.Image.tobytes,
        Image.Image.getpalette,
        _fields,
        lambda image: image.tobytes() and image.readonly,
    )
    return [helpers.outcome(use, image) for use in uses]


def _is_error(result: Any) -> bool:
    return isinstance(result, type) and issubclass(result, Exception)


def _raised(result: Any) -> bool:
    return any(map(_raised, result)) if isinstance(result, (list, tuple)) else _is_error(result)


def _tried(start: str, mode: str, changes: tuple[Change, ...], following: str) -> list[Any]:
    image = STARTS[start](opened(mode))
    access = image.load() if start == "accessed" else None
    done: list[Any] = []
    for change in changes:
        assert change.do is not None
        was_lazy = helpers.is_lazy(image)
        result = helpers.outcome(change.do, image)
        done.append(result)
        if was_lazy and change.lazy and not _is_error(result):
            assert helpers.is_lazy(image), change.name
    other = helpers.outcome(FOLLOWING[following], image)
    done.append(other if _is_error(other) else facts(other))
    done.append(facts(image))
    image.close()
    done.append(access and helpers.outcome(access.__getitem__, (1, 2)))
    return done


Case = tuple[str, str, tuple[Change, ...], str]
"""The start, its mode, changes, and what follows."""


def assert_as_pillow(cases: Iterable[Case]) -> None:
    cases = list(cases)
    expected = [_tried(*case) for case in cases]
    with accel.image_backend("cpu"):
        actual = [_tried(*case) for case in cases]
    wrong = [
        (start, mode, *(change.name for change in changes), following)
        for (start, mode, changes, following), one, other in zip(cases, actual, expected, strict=True)
        if one != other and not (_raised(other) and any(change.works for change in changes))
    ]
    assert not wrong


TRIED = [change for change in CHANGES if change.do is not None]


def named(changes: list[Change]) -> list[str]:
    return [f"{number}-{change.name}" for number, change in enumerate(changes)]


@pytest.mark.parametrize("change", TRIED, ids=named(TRIED))
def test_a_change_of_every_lazy_image(change: Change) -> None:
    turn = cycle(FOLLOWING)
    assert_as_pillow((start, mode, (change,), next(turn)) for start, mode, _ in product(STARTS, MODES, range(3)))


@pytest.mark.parametrize("first", TRIED, ids=named(TRIED))
def test_changes_in_every_order(first: Change) -> None:
    """Each pair of changes, of one of the lazy images."""
    turn = cycle(STARTS)
    assert_as_pillow((next(turn), mode, (first, second), "crop") for second, mode in product(TRIED, MODES))


@pytest.mark.sweep
@pytest.mark.parametrize("first", TRIED, ids=named(TRIED))
def test_changes_in_every_order_of_every_lazy_image(first: Change) -> None:
    for start, following in product(STARTS, ("nothing", "convert", "resize")):
        assert_as_pillow((start, mode, (first, second), following) for second, mode in product(TRIED, MODES))


def test_segmentation_masks_are_saved_with_their_colours() -> None:
    """As codes for VOC and Cityscapes show classes: predictions and masks with a palette, saved as PNG and overlaid."""
    classes = np.arange(40 * 32).reshape(32, 40).astype(np.uint8) // 60

    def saved() -> Any:
        results = []
        for mask in (Image.fromarray(classes), opened("L"), F.to_pil_image(torch.from_numpy(classes))):
            small = F.resize(F.hflip(mask), [16, 20], F.InterpolationMode.NEAREST)
            for result in (small, small.copy(), F.center_crop(small, [9, 9]), F.pad(small, [3], fill=255)):
                result.putpalette(COLOURS)
                png = Image.open(BytesIO(_save(result, "PNG")))
                overlaid = Image.blend(opened("RGB").resize(result.size), result.convert("RGB"), 0.5)
                results += [facts(png), facts(result), facts(png.convert("RGB")), facts(overlaid)]
            target = F.pil_to_tensor(small)
            results += [facts(small), target, target.unique().tolist()]
        return results

    helpers.assert_equal_runs(saved)


# -- the table is complete ----------------------------------------------------------------------------------

CLASSES = Image.Image, ImageFile.ImageFile, JpegImageFile, MpoImageFile
FIELDS = {"im", "_mode", "_size", "palette", "info", "_exif", "readonly"}
NOT_OF_LAZY_IMAGES = {
    # Pillow calls these while it opens or decodes, on an image of its own
    *("__init__", "_open", "_after_jpeg_open", "_read_dpi_from_exif", "load_prepare", "load_read", "load_seek"),
    # these read the pixels, or are parts of methods in the table
    *("convert", "tobytes", "__transformer", "get_child_images", "_dump", "_repr_image", "_close_fp"),
    *("_attach_default_encoderinfo", "GifImagePlugin._normalize_mode", "GifImagePlugin._normalize_palette"),
    *("PalmImagePlugin._save", "TiffImagePlugin._save", "ImageFile._encode_tile", "Image.Image.paste"),
    *("Image.Image.putalpha", "Image.Image.__transformer", "ImageCms.ImageCmsTransform.apply_in_place"),
    *("ImageDraw.ImageDraw.bitmap", "ImageWin.Dib.paste"),
}


def _not_in_the_table(found: dict[str, set[str]]) -> dict[str, set[str]]:
    """Of the changes that were found in Pillow's source, the fields that the table does not have."""
    table: dict[str, set[str]] = {}
    for change in CHANGES:
        table.setdefault(change.name, set()).update(change.touches.split())
    lacking = {name: fields - table.get(name, set()) for name, fields in found.items()}
    return {name: fields for name, fields in lacking.items() if fields and name not in NOT_OF_LAZY_IMAGES}


def test_all_of_pillows_changes_are_in_the_table() -> None:
    for kind in CLASSES:
        assert not _not_in_the_table(pillow_source.fields_of_methods(kind)), kind
    assert not _not_in_the_table(pillow_source.fields_of_functions(FIELDS))
    assert pillow_source.fields_of_methods(Image.Image)["__init__"] == FIELDS


@pytest.mark.parametrize(
    "code",
    [
        "self._mode = 'P'",
        "self.palette.dirty = 1",
        "self.im.putpalette('RGB', 'RGB', data)",
        "self.a, self._size = data",
        "self.info['transparency'] = 0",
        "del self.info['exif']",
        "encoder.setimage(self.im)",
        "self.paste(data)",
    ],
)
def test_a_new_change_would_be_noticed(code: str) -> None:
    source = f"""class Image:
    def tint(self, data):
        {code}
    def paste(self, data):
        self._ensure_mutable()
    def _ensure_mutable(self):
        self.im = self.im.copy()
"""
    assert list(_not_in_the_table(pillow_source.fields_of_methods(source))) == ["tint"]
