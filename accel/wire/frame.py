"""The frame of a message: a fixed beginning, a header in JSON, and arrays behind it; nothing of it is trusted.

The layout is in ``docs/wire.md``. ``arrays`` in the header lists the dtype (safetensors' names) and the shape of each
array, so no offsets are sent that could be wrong.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import Any, NamedTuple, NoReturn, TypeVar
from zlib import crc32

import numpy as np
import numpy.typing as npt
import torch

from accel.codec.files.fields import ALIGNED
from accel.errors import WireError, require
from accel.system.version import __version__

MAGIC, VERSION = b"accelmsg", 1
DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "U16": torch.uint16,
    "I16": torch.int16,
    "U32": torch.uint32,
    "I32": torch.int32,
    "U64": torch.uint64,
    "I64": torch.int64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
    "C64": torch.complex64,
    "C128": torch.complex128,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}

_PREFIX, _SUM = struct.Struct("<8sIIQQ"), slice(12, 16)
MOST_AXES = 16

T = TypeVar("T")
Bytes = npt.NDArray[np.uint8]


class Array(NamedTuple):
    """An array of a message: the name of its dtype, its shape, and its bytes, row by row, uint8 [bytes]."""

    dtype: str
    shape: tuple[int, ...]
    content: Bytes


def sealed(header: dict[str, Any], arrays: Sequence[Array]) -> bytes:
    """The message of a header and arrays; the same bytes for the same content."""
    listed = [[each.dtype, list(each.shape)] for each in arrays]
    told = {**header, "accel": __version__, "arrays": listed}
    text = json.dumps(told, separators=(",", ":"), sort_keys=True, allow_nan=False).encode()
    parts: list[Any] = [text, *(each.content.data for each in arrays)]
    head = _PREFIX.pack(MAGIC, VERSION, 0, len(text), ALIGNED + sum(_whole(len(part)) for part in parts))
    filled = [head[_SUM.stop :], bytes(ALIGNED - len(head))]
    for part in parts:
        filled += [part, bytes(-len(part) % ALIGNED)]
    found = reduce(lambda found, part: crc32(part, found), filled, crc32(head[: _SUM.start]))
    return b"".join([head[: _SUM.start], found.to_bytes(4, "little"), *filled])


def checksum(message: Bytes) -> int:
    """The checksum that belongs into a message."""
    return crc32(message[_SUM.stop :].data, crc32(message[: _SUM.start].data))


def opened(message: Any) -> tuple[dict[str, Any], list[Array]]:
    """The header and the arrays of a message, whose contents are views of it.

    Raises:
        TypeError: it is no bytes.
        WireError: it is no message, of another version, cut, or damaged.
    """
    data = np.frombuffer(message, np.uint8)
    if len(data) < ALIGNED or data[:8].tobytes() != MAGIC:
        raise WireError(f"{len(data)} bytes are no message of accel.wire" + _cut(data))
    _, version, found, size, whole = _PREFIX.unpack(data[: _PREFIX.size].tobytes())
    if version != VERSION:
        raise WireError(f"a message has version {version}, and this version of accel reads {VERSION}")
    if whole != len(data):
        raise WireError(f"a message of {whole} bytes has {len(data)}: it was cut, or something was added")
    if size > whole - ALIGNED or found != checksum(data):
        raise WireError("a message is damaged: its checksum is wrong")
    try:
        return _parts(data, size)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise WireError(f"a message cannot be read: its header is wrong: {error!s:.200}") from error


def _cut(data: Bytes) -> str:
    return ": it was cut" if len(data) and MAGIC.startswith(data[:8].tobytes()) else ""


def _parts(data: Bytes, size: int) -> tuple[dict[str, Any], list[Array]]:
    text = str(data[ALIGNED : ALIGNED + size].data, "utf-8")
    header = json.loads(text, parse_constant=_refused, object_pairs_hook=_object)
    require(type(header) is dict, "no object")
    arrays, end = [], _whole(ALIGNED + size)
    filled = [data[_PREFIX.size : ALIGNED].data, data[ALIGNED + size : end].data]
    for dtype, shape in header["arrays"]:
        require(type(shape) is list and len(shape) <= MOST_AXES, "an array has no shape")
        require(all(type(axis) is int and 0 <= axis < 1 << 48 for axis in shape), "an array has no shape")
        length = prod(shape) * DTYPES[dtype].itemsize
        arrays.append(Array(dtype, tuple(shape), data[end : end + length]))
        filled.append(data[end + length : end + _whole(length)].data)
        end += _whole(length)
    require(end == len(data), "its arrays have other sizes")
    require(not b"".join(filled).strip(b"\0"), "its parts are not filled up with zeros")
    return header, arrays


def _whole(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED


def _refused(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    require(len(found) == len(pairs), "a name is there twice")
    return found


def at(values: Sequence[T], place: Any) -> T:
    """The value at a place; raises ``ValueError`` if there is none."""
    if type(place) is not int or not 0 <= place < len(values):
        raise ValueError("it refers to what is not there")
    return values[place]


def taken(values: dict[int, T], place: Any) -> T:
    """Take the value at a place, each once: a short message must not make many copies of one; raises as ``at``."""
    require(type(place) is int and place in values, "it refers to what is not there, or was taken")
    return values.pop(place)


def array_of(tensor: torch.Tensor) -> Array:
    """A tensor as an array, copied if its memory is not dense, on the CPU."""
    plain = tensor.detach().resolve_conj().resolve_neg().to("cpu").contiguous()
    flat = plain.as_strided((plain.numel(),), (1,))  # torch calls one value dense, whatever its stride
    content: Any = flat.view(torch.uint8).numpy() if plain.numel() else np.zeros(0, np.uint8)
    return Array(NAMES[plain.dtype], tuple(plain.shape), content)


def tensor_of(array: Array) -> torch.Tensor:
    """An array as a tensor with memory of its own."""
    values = torch.empty(array.shape, dtype=DTYPES[array.dtype], device="cpu")
    if values.numel():
        content = array.content != 0 if values.dtype == torch.bool else array.content
        values.view(-1).view(torch.uint8).numpy()[:] = content
    return values
