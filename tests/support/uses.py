"""Uses of a Pillow image that need its pixels."""

import copy
import pickle
from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image, ImageChops, ImageDraw, ImageEnhance, ImageFilter, ImageOps, ImageStat

from tests.support.helpers import attempt, outcome


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
    "save-keep-copy": lambda image: attempt(lambda: _saved(image.copy(), format="JPEG", quality="keep")),
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
    "draft-verify": lambda image: (image.draft("L", (image.width // 2, 9)), image.verify(), image.size, image.mode),
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
    "closed": lambda image: (image.close(), attempt(lambda: image.getpixel((0, 0))))[1],
    "closed-used": lambda image: (image.getpixel((0, 0)), image.close(), attempt(lambda: image.getpixel((0, 0)))),
    "composite": lambda image: Image.composite(
        image, image.transpose(1), Image.linear_gradient("L").resize(image.size)
    ),
    "alpha": lambda image: Image.alpha_composite(image.convert("RGBA"), Image.new("RGBA", image.size, (9, 9, 9, 99))),
}
