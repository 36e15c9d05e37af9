"""Small batches that take every way through the cuda backend's kernels, each equal to torchvision's in every bit."""

from collections.abc import Callable, Iterator
from functools import cache, partial
from io import BytesIO
from itertools import count
from typing import Any
from unittest import mock

import numpy as np
import torch
from PIL import Image, ImageFilter
from torchvision.transforms import InterpolationMode as Mode
from torchvision.transforms import functional as F
from torchvision.transforms.v2 import functional as F2

import accel
from accel import testing
from accel.backends.cuda.jpeg import requests
from accel.codec import jpeg, store, store_fields
from accel.recipes.recipe import Source

Batch = Callable[[], torch.Tensor]
Step = Callable[[Any], Any]

MODES = (Mode.NEAREST, Mode.BILINEAR, Mode.BICUBIC, Mode.BOX, Mode.HAMMING, Mode.LANCZOS)
DTYPES = (torch.uint8, torch.float16, torch.bfloat16, torch.float32, torch.float64)

EFFECTS: dict[str, Step] = {
    "grey": lambda image: F.rgb_to_grayscale(image, 3),
    "saturation": lambda image: F.adjust_saturation(image, 1.7),
    "hue": lambda image: F.adjust_hue(image, -0.3),
    "permuted": lambda image: F2.permute_channels(image.convert("RGB"), [2, 0, 1]),
    "sharpness": lambda image: F.adjust_sharpness(image, 2.5),
    "box blur": lambda image: F.vflip(image).filter(ImageFilter.BoxBlur((1.5, 4))),
    "Pillow's blur": lambda image: F.hflip(image).filter(ImageFilter.GaussianBlur((0.3, 2))),
    "nearest": lambda image: F.rotate(image, 33, fill=[9]),
    "affine": lambda image: F.affine(image, 20, [3, -2], 1.2, [10.0, 5.0], Mode.BILINEAR, [200]),
    "bicubic": lambda image: F.rotate(image, -71, Mode.BICUBIC, expand=True),
    "perspective": lambda image: F.perspective(
        image, [[0, 0], [8, 0], [8, 8], [0, 8]], [[1, 1], [9, -1], [7, 8], [-3, 9]], Mode.BILINEAR
    ),
    "quarter": lambda image: F.rotate(image, 90, expand=True),
    "contrast": lambda image: F.adjust_contrast(image, 0.4),
    "autocontrast": F.autocontrast,
    "equalize": F.equalize,
    "levels": lambda image: F.solarize(F.posterize(image, 5), 90),
    "blur": lambda image: F.gaussian_blur(image, [min(2 * image.width - 1, 7), min(2 * image.height - 1, 5)]),
}


def by_torchvision(batch: Batch) -> torch.Tensor:
    with accel.image_backend("torchvision"):
        return batch()


def by_kernels(batch: Batch, **options: Any) -> torch.Tensor:
    """A batch computed by the cuda backend on the host, by stream indexes however small it is; ``options`` are the
    backend's."""
    with mock.patch.object(requests, "INDEXED", 0), accel.image_backend("cuda", device="cpu", **options):
        found: torch.Tensor = testing.computed(batch())
    return found


def noise(height: int, width: int, mode: str = "RGB", seed: int = 0) -> Image.Image:
    """An image of noise, which shows every wrong weight and every misplaced pixel."""
    shape = (height, width, 3) if mode == "RGB" else (height, width)
    return Image.fromarray(np.random.default_rng([height, width, seed]).integers(0, 256, shape, dtype=np.uint8))


def _jpeg(width: int, height: int, mode: str = "RGB", seed: int = 0, **options: Any) -> bytes:
    """A JPEG file of smooth colours with some noise."""
    stream = BytesIO()
    coarse = noise(max(height // 12, 2), max(width // 12, 2), mode, seed).resize((width, height))
    Image.blend(coarse, noise(height, width, mode, seed), 0.1).save(stream, "JPEG", **{"quality": 88, **options})
    return stream.getvalue()


def _values(image: Any) -> torch.Tensor:
    return F.to_tensor(image.convert("RGB"))  # type: ignore[no-any-return]


def _stacked(images: list[Any], step: Step, interleaved: bool = False) -> torch.Tensor:
    made = torch.stack([step(image) for image in images])
    return made.contiguous(memory_format=torch.channels_last) if interleaved else made


def _resized(mode: Mode, sizes: list[tuple[int, int]], size: list[int], kind: str = "RGB") -> torch.Tensor:
    return _stacked([noise(*each, kind) for each in sizes], lambda image: F.to_tensor(F.resize(image, size, mode)))


def _of_tensors(
    mode: Mode, antialias: bool, sizes: list[tuple[int, int]], size: list[int], kind: str = "RGB"
) -> torch.Tensor:
    images = [F.pil_to_tensor(noise(*each, kind)) for each in sizes]
    return _stacked(images, lambda image: F2.resize(image, size, mode, antialias=antialias))


def _sizes() -> Iterator[tuple[int, int]]:
    """Odd and even (height, width), and some larger than a tile."""
    yield from ((1 + n, 9 - n) for n in range(9))
    yield from ((33, 65), (70, 31))


def _ragged(size: tuple[int, int], mode: Mode) -> torch.Tensor:
    """Images of all sizes, each cropped at its own offset, every other one flipped."""
    images = [noise(3 + height, 2 + width, ("RGB", "L")[n % 2]) for n, (height, width) in enumerate(_sizes())]
    made = []
    for n, image in enumerate(images):
        crop = F.crop(image.convert("RGB"), n % 3, n % 2, image.height - 2, image.width - 1)
        made.append(F.to_tensor(F.resize(F.hflip(crop) if n % 2 else crop, list(size), mode)))
    return torch.stack(made)


def _typed(dtype: torch.dtype, interleaved: bool, width: int) -> torch.Tensor:
    def step(image: Any) -> Any:
        return F2.to_dtype(F2.to_image(F.center_crop(image, [4, width])), dtype, scale=True)

    return _stacked([noise(5 + n, width + 2) for n in range(3)], step, interleaved)


def _patched(width: int, grey: bool) -> torch.Tensor:
    given = torch.arange(3.0 * 2 * width).reshape(3, 2, width)
    made = []
    for n in range(4):
        image = F.to_tensor(noise(11, 12, "L" if grey else "RGB", n))
        values = (given if n % 2 else given[:, :1, :1])[: len(image)]
        made.append(F.erase(F.erase(image, n, 1, 2, width, values), 9, 12 - width, 1, width, torch.ones(1, 1, 1)))
    return torch.stack(made)


def _decoded(size: tuple[int, int]) -> torch.Tensor:
    """Files with every sampling, odd sizes and restart markers, regions at odd offsets, and one file for the host."""
    large = BytesIO()  # large enough for several blocks of threads
    noise(90, 120).save(large, "JPEG", quality=99, subsampling=0)
    files = [
        *(_jpeg(17 + n, 40 - n, seed=n, subsampling=n % 3, quality=50 + 7 * n) for n in range(6)),
        _jpeg(33, 18, restart_marker_blocks=1),
        _jpeg(90, 75, restart_marker_blocks=3, quality=99),
        _jpeg(21, 19, "L"),
        _jpeg(30, 20, progressive=True),
        large.getvalue(),
    ]
    made = []
    for n, data in enumerate(files):
        with Image.open(BytesIO(data)) as image:
            crop = F.crop(image.convert("RGB"), n % 4, 1 + n % 3, 10 + n % 5, 12)
            made.append(F.to_tensor(F.resize(image if n > 8 else crop, list(size))))
    return torch.stack(made)


def _indexed(size: tuple[int, int], is_known: bool) -> torch.Tensor:
    """Files that have stream indexes, or get them, with crops of a few points and of more than one block's."""
    files = [
        _jpeg(140, 100, subsampling=2, quality=97),
        _jpeg(90, 75, restart_marker_blocks=3, quality=99),
        _jpeg(60, 90, restart_marker_blocks=1, subsampling=0, quality=99),
        _jpeg(100, 110, "L", quality=99),
        _jpeg(230, 220, subsampling=0, quality=99),
        _jpeg(80, 90, subsampling=1, optimize=True, quality=98),
    ]
    made = []
    for n, data in enumerate(files):
        comment = b"\xff\xfe" + (60000).to_bytes(2, "big") + bytes(59998)  # so there is room for a point for each MCU
        image: Any = Image.open(BytesIO(data[:2] + comment + data[2:]))
        if getattr(image, "recipe", None) is not None:
            _keep(image.recipe.source, is_known)
        height, width = image.height - 20 * (n < 4) - 7, image.width - 9
        made.append(F.to_tensor(F.resized_crop(image.convert("RGB"), 5 + n, 3 + n, height - n, width - n, list(size))))
    return torch.stack(made)


_numbers = count(1)


def _keep(source: Source, is_known: bool) -> None:
    """Give a source a key and, if ``is_known``, put its index into the store."""
    entries = store.current()
    assert entries is not None
    source.key = key = (0, next(_numbers), len(source.data), 0, 0)
    if is_known:
        index = jpeg.Index()
        jpeg.decode(source.data, index=index)
        assert entries.put(key, index.bytes) == store_fields.ADDED


def _affected(step: Step, mode: str) -> torch.Tensor:
    sizes = ((1, 1), (2, 7), (9, 3), (8, 8), (35, 47))
    return torch.stack([F.to_tensor(F.resize(step(noise(*size, mode)).convert("RGB"), [6, 5])) for size in sizes])


def _counted_by_many_blocks() -> torch.Tensor:
    steps = (F.equalize, F.autocontrast, lambda image: F.adjust_contrast(F.equalize(image), 1.5))
    return torch.stack([F.to_tensor(F.resize(step(noise(130, 140)), [9, 7])) for step in steps])


def _mixed() -> torch.Tensor:
    """Images that each have their own effects, which see each other's levels."""
    steps = list(EFFECTS.values())
    made = []
    for n in range(len(steps)):
        image: Any = noise(20 + n, 33 - n, seed=n)
        for step in (steps[n], F.equalize, steps[(n * 5 + 3) % len(steps)], F.invert):
            image = step(image).convert("RGB")
        made.append(F.to_tensor(F.resize(F.pad(image, [n % 4, 1], n), [17, 13], MODES[n % 6])))
    return torch.stack(made)


def _padded(mode: str) -> torch.Tensor:
    images = [noise(4 + n, 9 - n) for n in range(5)]
    return _stacked(
        images, lambda image: _values(F.resize(F.pad(image, [2, 1, 3, 0], padding_mode=mode), [15, 40], Mode.BICUBIC))
    )


def _blurred(kernel: tuple[int, int], mode: str) -> torch.Tensor:
    """Noise with stripes in it, whose sums lie at halves."""
    image = noise(40, 90, mode)
    stripes = np.resize(np.array([100, 101], np.uint8), (10, 40))
    image.paste(Image.fromarray(stripes).convert(mode), (20, 3))
    return torch.stack([F.to_tensor(F.gaussian_blur(image, kernel, [9, 2.5]))])


@cache
def batches() -> dict[str, Batch]:
    """The batches, by a description of their content."""
    found: dict[str, Batch] = {}
    for mode in MODES:
        for size in ((1, 1), (3, 50), (40, 9)):
            found[f"ragged {size} {mode.value}"] = partial(_ragged, size, mode)
        # both sums take more than one step of the input, in both orders
        sizes = [(230, 140), (350, 140), (230, 10), (9, 150)]
        found[f"shrunk {mode.value}"] = partial(_resized, mode, sizes, [9, 10])
    for mode in (Mode.BILINEAR, Mode.BICUBIC):
        for antialias in (True, False):
            sizes = [(4 + 6 * n, 40 - 7 * n) for n in range(5)]
            found[f"tensors {mode.value} {antialias}"] = partial(_of_tensors, mode, antialias, sizes, [7, 19])
    for dtype in DTYPES:
        for interleaved in (False, True):
            for width in (*range(1, 10), 37, 40):
                found[f"{dtype} {interleaved} {width}"] = partial(_typed, dtype, interleaved, width)
    for width in (1, 3, 9):
        for grey in (False, True):
            found[f"patches {width} {grey}"] = partial(_patched, width, grey)
    for padding in ("constant", "edge", "reflect"):
        found[f"padded {padding}"] = partial(_padded, padding)
    for name, step in EFFECTS.items():
        for mode in ("RGB", "L"):
            found[f"{name} {mode}"] = partial(_affected, step, mode)
    for kernel in ((1, 1), (3, 3), (23, 5), (79, 5)):
        for mode in ("RGB", "L"):
            found[f"blurred {kernel} {mode}"] = partial(_blurred, kernel, mode)
    found["counted by many blocks"] = _counted_by_many_blocks
    found["mixed"] = _mixed
    found["decoded"] = partial(_decoded, (21, 9))
    found["decoded larger"] = partial(_decoded, (33, 70))
    for name, is_known in (("made", False), ("known", True)):
        found[f"decoded, indexes {name}"] = partial(_indexed, (19, 12), is_known)
    return found


def _grey(mode: Mode, dtype: torch.dtype, interleaved: bool) -> torch.Tensor:
    """Grey images, cropped, padded, flipped, resized, equalised, and converted to a dtype."""
    made = []
    for n, (height, width) in enumerate(((1, 9), (9, 2), (70, 33), (34, 5), (5, 100))):
        image: Any = F.pad(noise(height, width, "L", n), [n % 3, 1], 60 * n)
        if n % 2:
            image = F.hflip(F.equalize(image))
        image = F.resize(image, [11 + 22 * (n > 5), 7], mode) if dtype != torch.uint8 else F.center_crop(image, [11, 7])
        made.append(F2.to_dtype(F2.to_image(image), dtype, scale=True))
    return _stacked(made, lambda image: image, interleaved)


def _erased(dtype: torch.dtype, interleaved: bool, mode: str) -> torch.Tensor:
    """Images erased at the end, with values for each place or repeated ones."""
    made = []
    for n in range(4):
        values = torch.arange(9.0 * 3 * 5).reshape(9, 3, 5)[: 1 if mode == "L" else 3, : (1, 3)[n % 2], : (5, 1)[n % 2]]
        image = F2.to_dtype(F2.to_image(noise(12, 13 + n, mode, n)), dtype, scale=True)
        made.append(F2.erase(F2.center_crop(image, [10, 9]), n, 4 - n, 3, 5, values.to(dtype)))
    return _stacked(made, lambda image: image, interleaved)


def _seen(step: Any, mode: str) -> torch.Tensor:
    """Images with an effect that sees its input through levels, and with erased pixels."""
    made = []
    for n in range(3):
        image = F.pil_to_tensor(step(F.posterize(noise(9 + 15 * n, 37 - 9 * n, mode, n), 3 + n)).convert(mode))
        image = F.resize(F.erase(image, 1, 2, 5, 4, torch.full((1, 1, 1), 99, dtype=torch.uint8)), [8, 9])
        made.append(image)
    return torch.stack(made)


def _widely_erased(dtype: torch.dtype, interleaved: bool) -> torch.Tensor:
    """An image whose erased part is more than a block's threads write in a turn."""
    image = F2.to_dtype(F2.to_image(noise(14, 303)), dtype, scale=True)
    values = torch.arange(3 * 11.0 * 301).reshape(3, 11, 301) % 251
    return _stacked([image], lambda image: F2.erase(image, 2, 1, 11, 301, values.to(dtype)), interleaved)


def _erased_images() -> torch.Tensor:
    """Images erased between other steps."""
    values = torch.arange(3 * 5 * 7, dtype=torch.uint8).reshape(3, 5, 7)
    made = []
    for n, value in enumerate((values, values[:, :1, :1], values[:1, :, :1])):
        image: Any = F.posterize(noise(20 + n, 25), 6) if n % 2 else noise(20 + n, 25)
        made.append(F.to_tensor(F.resize(F2.erase(image, n, 3, 5, 7, value), [17, 9])))
    return torch.stack(made)


def _to_nearest(seen: bool, mode: str) -> torch.Tensor:
    points = [[[0, 0], [8, 0], [8, 8], [0, 8]], [[1, 1], [9, -1], [7, 8], [-3, 9]]]
    images: list[Any] = [noise(8 + n, 35, mode, n) for n in range(3)]
    images = [F.posterize(image, 4) if seen else image for image in images]
    return torch.stack([_values(F.resize(F.perspective(image, *points, Mode.NEAREST), [9, 9])) for image in images])


_LARGE = [(150, 140), (140, 10), (9, 150), (8, 8)]
_TALL = [(202, 2), (203, 4), (260, 5), (300, 2), (330, 4), (333, 5)]
"""Sizes for which rows come first (Pillow 12.2), with few taps."""


@cache
def more_batches() -> dict[str, Batch]:
    """Further batches, as ``batches``, for code that those do not reach."""
    found: dict[str, Batch] = {"erased images": _erased_images}
    for mode in MODES:
        found[f"grey {mode.value}"] = partial(_grey, mode, torch.float32, False)
        found[f"grey, shrunk {mode.value}"] = partial(_resized, mode, [*_LARGE, (310, 3)], [9, 10], "L")
        for kind in ("RGB", "L"):
            found[f"{kind}, tall {mode.value}"] = partial(_resized, mode, _TALL, [201, 3], kind)
    for mode in (Mode.BILINEAR, Mode.BICUBIC):
        for kind in ("RGB", "L"):
            for antialias in (True, False):
                name = f"tensors, shrunk {mode.value} {antialias} {kind}"
                found[name] = partial(_of_tensors, mode, antialias, [*_LARGE, (33, 44), (4, 70)], [13, 40], kind)
    for dtype in DTYPES:
        found[f"erased {dtype}, grey"] = partial(_erased, dtype, False, "L")
        for interleaved in (False, True):
            found[f"grey {dtype} {interleaved}"] = partial(_grey, Mode.BILINEAR, dtype, interleaved)
            found[f"erased {dtype} {interleaved}"] = partial(_erased, dtype, interleaved, "RGB")
            found[f"widely erased {dtype} {interleaved}"] = partial(_widely_erased, dtype, interleaved)
    for kind in ("RGB", "L"):
        found |= {f"seen {name} {kind}": partial(_seen, step, kind) for name, step in EFFECTS.items()}
        found |= {f"to nearest {seen} {kind}": partial(_to_nearest, seen, kind) for seen in (False, True)}
    return found
