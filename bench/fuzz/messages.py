"""Mutated messages of ``accel.wire``: each is refused, or gives values; nothing else may happen.

Most mutants have a right checksum, as a hostile sender's would: only the checks behind it can refuse them.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache, partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils._pytree import tree_leaves
from torchvision import transforms as v1
from torchvision import tv_tensors
from torchvision.transforms import v2

import accel
from accel import wire
from accel.errors import AccelError
from accel.ops import OPS
from accel.wire import frame
from accel.wire.frame import Array
from accel.wire.leaves import Encoder
from bench import guard
from bench.fuzz import oracle
from bench.fuzz.check import EQUAL, LARGEST, REFUSED, WRONG, Announce, Checked
from bench.fuzz.files import encode, picture
from bench.fuzz.mutations import MUTATIONS, Rng
from bench.fuzz.oracle import Setting
from bench.fuzz.recipes import Corpus, Recipe

Parts = tuple[dict[str, Any], list[Array]]

_NORMALIZED = [v1.ToTensor(), v1.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))]
_TO_FLOAT = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
_TRANSFORMS: tuple[Callable[[Any], Any], ...] = (
    v1.Compose([v1.RandomResizedCrop(24), v1.RandomHorizontalFlip(), *_NORMALIZED, v1.RandomErasing(1.0)]),
    v1.Compose([v1.RandAugment(4, 12), *_NORMALIZED]),
    v1.Compose([v1.AutoAugment(), v1.RandomCrop(30, 4, pad_if_needed=True), *_NORMALIZED]),
    v1.Compose([v1.ColorJitter(0.4, 0.4, 0.4, 0.2), v1.GaussianBlur(3), v1.RandomGrayscale(0.5), v1.ToTensor()]),
    v1.Compose([v1.RandomPerspective(p=1.0), v1.RandomRotation(30, expand=True), v1.PILToTensor()]),
    v1.Compose([v1.ElasticTransform(20.0), v1.Pad(3, padding_mode="reflect"), *_NORMALIZED]),
    v2.Compose([v2.ToImage(), v2.RandomResizedCrop(21, antialias=True), v2.RandomAffine(20), *_TO_FLOAT[1:]]),
    v2.Compose([*_TO_FLOAT, v2.GaussianNoise(), v2.RandomRotation(90), v2.Resize(19)]),
    v2.Compose([v2.RandomPhotometricDistort(p=1.0), v2.JPEG(50), v2.RandomZoomOut(), v2.ToImage()]),
    lambda image: image.resize((23, 17), 3, (1.5, 2.0, 30.25, 20.0)).reduce(2),
    lambda image: image,
)


def recipe(number: int, seed: str, corpus: Corpus) -> Recipe:
    """The recipe of a number: every ninth message is not mutated, others in up to three ways."""
    if number % 9 == 0:
        return Recipe(number, None)
    rng = Rng(f"{seed} {number}")
    kinds = [[*CHANGES][number % len(CHANGES)], *rng.choices([*CHANGES], k=rng.choice((0, 0, 0, 1, 2)))]
    return Recipe(number, None, tuple((kind, f"{seed} {number} {place}") for place, kind in enumerate(kinds)))


def make(recipe: Recipe, seed: str, corpus: Corpus) -> bytes:
    data = _intact(recipe.number % (3 * len(_TRANSFORMS)))
    for kind, own in recipe.steps:
        try:
            data = CHANGES[kind](data, Rng(own))
        except (
            AccelError,
            ValueError,
            TypeError,
            LookupError,
            AttributeError,
            OverflowError,
        ):  # an earlier change left nothing to be changed
            break
    return data


@cache
def _intact(number: int) -> bytes:
    """An intact message: an image, a sample with labels, or a batch."""
    transform, kind = _TRANSFORMS[number // 3], number % 3
    files = [encode(picture("smooth", 40, 52, 1 if place == 2 else 3, place), quality=80) for place in range(3)]
    torch.manual_seed(number)
    with accel.image_backend("cpu", threads=1):
        images = [transform(Image.open(BytesIO(data)).convert("RGB")) for data in files]
        if kind == 0:
            return wire.dumps(images[0])
        if kind == 1:
            boxes = tv_tensors.BoundingBoxes(torch.eye(4), format="XYXY", canvas_size=(40, 52))
            eager = Image.frombytes("RGB", (4, 3), bytes(36))
            return wire.dumps(
                {"image": images[2], "label": 3, "boxes": boxes, "more": [eager, np.arange(3), (b"", 0.5)]}
            )
        alike = isinstance(images[0], torch.Tensor) and len({each.shape for each in images}) == 1
        return wire.dumps((torch.stack(images) if alike else images, torch.arange(3)))


def check_message(
    data: bytes, rng: Rng, path: Path, intact: bool, announce: Announce, setting: Setting | None = None
) -> Checked:
    """Read a message and compute what is in it, under a setting that is drawn unless given; as ``check_file``."""
    setting = setting or oracle.setting(rng)
    Image.MAX_IMAGE_PIXELS = LARGEST
    armed = guard.armed("behind") if guard.present() else nullcontext()
    announce("accel.wire.loads")
    try:
        with accel.image_backend(setting.backend, **setting.options), warnings.catch_warnings(), armed:
            warnings.simplefilter("ignore")
            sample = wire.loads(data)
            announce("its values")
            for leaf in tree_leaves(sample):
                _ = leaf.tobytes() if isinstance(leaf, Image.Image) else leaf
                _ = torch.isnan(leaf) if isinstance(leaf, torch.Tensor) else leaf
            if intact and wire.dumps(wire.loads(data)) != data:
                return WRONG, [(f"accel.wire.dumps under {setting}", "an intact message comes out another one")]
    except AccelError as error:
        return (WRONG, [(f"under {setting}", f"an intact message is refused: {error}")]) if intact else (REFUSED, [])
    except Exception as error:
        return WRONG, [(f"accel.wire under {setting}", f"{type(error).__name__}: {error}")]
    return EQUAL, []


# -- changes -----------------------------------------------------------------------------------------------


def _bits(data: bytes, rng: Rng) -> bytes:
    """Any bits, and the checksum is wrong."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _cut(data: bytes, rng: Rng) -> bytes:
    return data[: rng.randrange(len(data))] if rng.random() < 0.8 else data + rng.randbytes(rng.randint(1, 99))


def _bytes(data: bytes, rng: Rng) -> bytes:
    """Any bytes behind the prefix, under a right checksum."""
    changed = np.frombuffer(bytearray(data), np.uint8)
    for _ in range(rng.randint(1, 4)):
        changed[rng.randrange(8, len(changed))] = rng.choice((rng.randrange(256), 0, 255, 127, 128))
    changed[12:16].view("<u4")[:] = frame.checksum(changed)
    return changed.tobytes()


def _on_parts(change: Callable[[Parts, Rng], object], data: bytes, rng: Rng) -> bytes:
    header, arrays = frame.opened(data)
    change((header, arrays), rng)
    return frame.sealed(header, arrays)


_NUMBERS = (-1, 0, 1, 2, 3, 7, 255, 256, 65500, 65501, 1 << 20, 1 << 31, 1 << 62, 1 << 64, 10**40, -(1 << 63))
_OTHERS: tuple[Any, ...] = (
    0.0,
    -0.5,
    0.3,
    1e9,
    1e308,
    -1e300,
    True,
    None,
    "",
    "RGB",
    "constant",
    "list",
    "tuple",
    [],
    {},
    ["dtype", "U8"],
)


def _values(parts: Parts, rng: Rng) -> None:
    """Any values of the header: another number, a value from elsewhere in it, nothing, twice."""
    header, _ = parts
    for _ in range(rng.randint(1, 3)):
        places = [*_places(header)]
        where, key = rng.choice(places)
        kind = rng.randrange(5)
        if kind == 0 and isinstance(where, list):
            del where[key]
        elif kind == 1 and isinstance(where, list):
            where.insert(key, json.loads(json.dumps(where[key])))
        elif kind == 2:
            other, from_ = rng.choice(places)
            where[key] = json.loads(json.dumps(other[from_])) if _is_there(other, from_) else None
        elif type(where[key]) in (int, float) and rng.random() < 0.7:
            where[key] = (
                where[key] + rng.choice((-1, 1, 0.5, -100, 100)) if rng.random() < 0.5 else rng.choice(_NUMBERS)
            )
        else:
            where[key] = rng.choice((*_NUMBERS, *_OTHERS))


def _is_there(where: Any, key: Any) -> bool:
    return key in where if isinstance(where, dict) else key < len(where)


def _places(found: Any) -> Any:
    """Every place in JSON: (list or object, index or name)."""
    for key in found if isinstance(found, dict) else range(len(found)):
        yield found, key
        if isinstance(found[key], (dict, list)):
            yield from _places(found[key])


def _steps(parts: Parts, rng: Rng) -> None:
    """Other steps: any op's, with parameters that it is tried with; in any place, in another order."""
    header, arrays = parts
    for _ in range(rng.randint(1, 2)):
        op = OPS[rng.choice([*OPS])]
        encoder = Encoder()
        step = [op.name, *map(encoder.value, rng.choice(op.samples or ((),)))]
        for array in encoder.arrays:  # at most one tensor a step
            step = json.loads(json.dumps(step).replace('["tensor", 0]', f'["tensor", {len(arrays)}]'))
            arrays.append(array)
        header["steps"].append(step)
        place, number = rng.choice((0, 0, rng.randint(0, 9))), len(header["steps"]) - 1
        for _, own in header["recipes"] if rng.random() < 0.7 else rng.sample(header["recipes"], 1):
            own.insert(place, number)
            if rng.random() < 0.1:
                rng.shuffle(own)


def _arrays(parts: Parts, rng: Rng) -> None:
    """Other dtypes and shapes of arrays, or less or other content."""
    _, arrays = parts
    place = rng.randrange(len(arrays))
    dtype, shape, content = arrays[place]
    kind = rng.randrange(4)
    if kind == 0:
        dtype = rng.choice([*frame.DTYPES, "F8", ""])
    elif kind == 1:
        shape = tuple(rng.choice((*_NUMBERS, len(content))) for _ in range(rng.randint(0, 4)))
    elif kind == 2:
        content = content[: rng.randint(0, len(content))]
        shape = (len(content),) if rng.random() < 0.7 else shape
    else:
        content = np.frombuffer(rng.randbytes(len(content)), np.uint8)
    arrays[place] = Array(dtype, shape, content)


def _files(parts: Parts, rng: Rng) -> None:
    """A damaged file, as ``MUTATIONS`` damage it."""
    _, arrays = parts
    files = [place for place, each in enumerate(arrays) if each.content[:2].tobytes() == b"\xff\xd8"]
    if not files:
        return
    place = rng.choice(files)
    data = arrays[place].content.tobytes()
    content = MUTATIONS[rng.choice([*MUTATIONS])](data, data, rng)
    arrays[place] = Array("U8", (len(content),), np.frombuffer(content, np.uint8))


CHANGES: dict[str, Callable[[bytes, Rng], bytes]] = {
    "bits": _bits,
    "cut": _cut,
    "bytes under a right checksum": _bytes,
    "values of the header": partial(_on_parts, _values),
    "steps": partial(_on_parts, _steps),
    "steps and values": lambda data, rng: _on_parts(_values, _on_parts(_steps, data, rng), rng),
    "arrays": partial(_on_parts, _arrays),
    "files": partial(_on_parts, _files),
}
