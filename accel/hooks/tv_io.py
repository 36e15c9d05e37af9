"""``torchvision.io.image``: lazy uint8 tensors for the JPEG files that accel claims, and for those that a cache has.

torchvision reads at once if its decoder's pixels are not Pillow's (grey from colour), if they need a step that is not
recorded (turning a file with EXIF), and if a file may not be intact.
"""

from __future__ import annotations

import sys
from functools import partial
from time import thread_time
from typing import Any

import torch
import torchvision

from accel.codec import decode, foreign
from accel.codec.files import packs, reader
from accel.codec.files.reader import File
from accel.codec.header import SOI, Header, Raw
from accel.hooks import claimed_files, pillow_open
from accel.hooks.patch import Body, Function
from accel.lazy.tensor import LazyTensor
from accel.ops.memory_layout import INTERLEAVED
from accel.processes import switch
from accel.recipes.recipe import Recipe, Source, Step
from accel.runtime.memo import cached
from accel.system import counters
from accel.system.content import key_of_content
from accel.system.replaced import replaced

_MODULE = "torchvision.io.image"
_UNCHANGED, _GRAY, _RGB = "UNCHANGED", "GRAY", "RGB"
_CHANNELS = {_GRAY: 1, "GRAY_ALPHA": 2, "RGB_ALPHA": 4, "RGBA": 4}
_NOT_OF_JPEG = ("GRAY_ALPHA", "RGB_ALPHA", "RGBA")
_IN_MEMORY = "image in memory"


def read_image(original: Function, path: Any, mode: Any = _UNCHANGED, apply_exif_orientation: Any = False) -> Any:
    lazy = _from_file(str(path), mode, apply_exif_orientation)
    if lazy is None:
        return _as_a_whole(original, path, mode, apply_exif_orientation)
    _warn_as(original)
    return lazy


def decode_image(original: Function, input: Any, mode: Any = _UNCHANGED, apply_exif_orientation: Any = False) -> Any:
    if sys._getframe(2).f_globals.get("__name__") == _MODULE:  # called by ``read_image``, which left the file to it
        return original(input, mode, apply_exif_orientation)
    if not isinstance(input, torch.Tensor):
        return read_image(original, input, mode, apply_exif_orientation)
    lazy = _from_memory(input, mode, apply_exif_orientation)
    if lazy is None:
        return _as_a_whole(original, input, mode, apply_exif_orientation)
    _warn_as(original)
    return lazy


def decode_jpeg(
    original: Function, input: Any, mode: Any = _UNCHANGED, device: Any = "cpu", apply_exif_orientation: Any = False
) -> Any:
    """``torchvision.io.decode_jpeg``."""
    streams = input if isinstance(input, list) else [input]
    lazy = [_from_memory(stream, mode, apply_exif_orientation) for stream in streams if str(device) == "cpu"]
    if not lazy or any(each is None for each in lazy):
        if str(device) != "cpu" or not streams or not pillow_open.replaces():
            return original(input, mode, device, apply_exif_orientation)
        if isinstance(input, list):
            return [decode_jpeg(original, stream, mode, device, apply_exif_orientation) for stream in input]
        return _at_once(original, input, mode, device, apply_exif_orientation)
    _warn_as(original)
    return lazy if isinstance(input, list) else lazy[0]


def read_file(original: Function, path: Any) -> Any:
    """``torchvision.io.read_file``, which reads an empty file without an error if damaged files are replaced."""
    if (member := _member(path)) is not None:
        _warn_as(original)
        return member
    if pillow_open.replaces() and _beginning(path) == b"":
        return torch.empty(0, dtype=torch.uint8)
    return original(path)


def _at_once(original: Function, input: Any, *args: Any, **kwargs: Any) -> Any:
    """Read by torchvision's own function; return a black tensor in place of a damaged file if it is replaced."""
    if not pillow_open.replaces():
        return original(input, *args, **kwargs)
    try:
        return original(input, *args, **kwargs)
    except RuntimeError as error:
        mode, start = _name(args[0] if args else kwargs.get("mode", _UNCHANGED)), _beginning(input)
        if start is None or (start == SOI and mode in _NOT_OF_JPEG):
            raise
        replaced(_IN_MEMORY if isinstance(input, torch.Tensor) else str(input), str(error))
        side = pillow_open.UNKNOWN_SIZE
        return torch.zeros((_CHANNELS.get(mode, 3), side, side), dtype=torch.uint8)


def _as_a_whole(original: Function, input: Any, *args: Any, start: bytes = b"", **kwargs: Any) -> Any:
    """Read a file or stream that torchvision decodes (PNG, WebP, ...); lazy if a cache has it, or may keep its results.

    ``start``: the bytes that a stream for this function begins with.
    """
    if not isinstance(input, torch.Tensor) and (member := _member(input)) is not None:
        return torchvision.io.decode_image(member, *args, **kwargs)
    arguments = {**dict(zip(("mode", "apply_exif_orientation"), args, strict=False)), **kwargs}
    mode, turned = arguments.get("mode", _UNCHANGED), arguments.get("apply_exif_orientation", False)
    decoder = foreign.by_torchvision(_name(mode))
    if not cached.in_use or turned or not decoder or pillow_open.replaces() or not _takes(mode):
        return _at_once(original, input, *args, **kwargs)
    selection, in_memory = switch.current(), isinstance(input, torch.Tensor)
    if cached.of(selection.options) is None or (in_memory and not _is_stream(input)):
        return original(input, *args, **kwargs)
    if in_memory:
        data, name = input.numpy().tobytes(), _IN_MEMORY
        key = key_of_content(data) if data.startswith(start) else None
        source = None if key is None else cached.of_content(data, key, name, selection, decoder)
    else:
        name = str(input)
        key = reader.file_key(name)
        source = cached.opened(name, selection, decoder=decoder)
    if source is None:
        begin = thread_time()
        values = original(input, *args, **kwargs)
        made = None if key is None else foreign.of_tensor(values, decoder)
        if made is None or (not in_memory and reader.file_key(name) != key):
            return values
        source = cached.decoded(Source(made[1], made[0], name, selection, key=key), thread_time() - begin)
    else:
        _warn_as(original)
    return _lazy(source, _UNCHANGED)


def _member(path: Any) -> torch.Tensor | None:
    """The bytes of a file in a pack, uint8 [bytes]; None for other files."""
    file = None if switch.active() is None else packs.opened(str(path))
    return None if file is None else torch.frombuffer(file.getbuffer(), dtype=torch.uint8)


def _is_stream(input: Any) -> bool:
    """Whether a value is a plain tensor, uint8 [bytes] on the CPU, as torchvision decodes."""
    return type(input) is torch.Tensor and input.dtype == torch.uint8 and input.ndim == 1 and input.is_cpu


def _beginning(input: Any) -> bytes | None:
    """The first two bytes of a file or stream; None if it cannot be read or is no stream."""
    if isinstance(input, torch.Tensor):
        is_stream = input.dtype == torch.uint8 and input.ndim == 1 and input.is_cpu
        return bytes(input[: len(SOI)].tolist()) if is_stream else None
    try:
        with open(str(input), "rb") as file:
            return file.read(len(SOI))
    except (OSError, ValueError):
        return None


def _warn_as(original: Function) -> None:
    """Give the deprecation warning of torchvision versions that have one."""
    warn = original.__globals__.get("_warn_deprecated")
    if warn is not None:
        warn()


def _from_file(path: str, mode: Any, turned: Any) -> LazyTensor | None:
    if not _takes(mode):
        return None
    selection = switch.current()
    source = cached.opened(path, selection) if cached.in_use else None
    if source is None or isinstance(source.header, Raw):  # raw pixels there are Pillow's
        source = claimed_files.read(path, selection, lambda file: _claimed(file, path, mode, turned))
    else:
        header = _left(source.header, path, mode, turned and source.cached.has_exif)
        if header is None:
            return None
        source.header = header
    return None if source is None else _lazy(source, mode)


def _from_memory(stream: torch.Tensor, mode: Any, turned: Any) -> LazyTensor | None:
    if not _is_stream(stream) or not _takes(mode):
        return None
    data = stream.numpy().tobytes()
    header = _claimed(File(data, len(data), None), _IN_MEMORY, mode, turned)
    if header is None:
        return None
    selection = switch.current()
    known = cached.in_use and cached.of(selection.options) is not None
    source = Source(data, header, _IN_MEMORY, selection, key=key_of_content(data) if known else None)
    if known:
        source.cached = cached.known(source.key, selection)
    return _lazy(source, mode)


def _takes(mode: Any) -> bool:
    """Whether images are read lazily in this mode, as far as is known before they are read."""
    if switch.active() is None or _name(mode) not in (_UNCHANGED, _GRAY, _RGB):
        return False
    if torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
        return False
    return hasattr(torch.ops.image, "decode_jpeg") and decode.agrees("torchvision")


def _name(mode: Any) -> str:
    return mode.upper() if isinstance(mode, str) else getattr(mode, "name", "")


def _claimed(file: File, name: str, mode: Any, turned: Any) -> Header | None:
    """The header of a file that is read lazily; None (counted) for others."""
    header = claimed_files.header_of(file)
    if header is None or header.pictures or not (header.ordinary or switch.current().options.on_error == "replace"):
        counters.fallback(
            "torchvision.io read a file that accel cannot decode (not JPEG, CMYK, cut short, ...)", str(name)
        )
        return None
    return _left(header, name, mode, turned and b"Exif" in bytes(file.buffer[: header.scan]))


def _left(header: Header, name: str, mode: Any, turned: bool) -> Header | None:
    """The header of a file that accel claims; None (counted) if its pixels are left to torchvision.io."""
    if _name(mode) == _GRAY and header.mode != "L":
        counters.fallback("torchvision.io read the grey pixels of a colour JPEG", str(name))
    elif turned:
        counters.fallback("torchvision.io read a file with EXIF for apply_exif_orientation", str(name))
    else:
        return header._replace(reference="torchvision")
    return None


def _lazy(source: Source, mode: Any) -> LazyTensor:
    header = source.header
    to_rgb = _name(mode) == _RGB and header.mode == "L"
    steps: tuple[Step, ...] = (("pil_to_tensor", ()),)
    if to_rgb:
        steps = (("convert", ("RGB",)), *steps)
    shape = (3 if to_rgb else header.channels, header.height, header.width)
    return LazyTensor.of((Recipe(source, steps),), (), shape, torch.uint8, INTERLEAVED)


_READERS: dict[str, Function] = {
    "read_file": read_file,
    "read_image": read_image,
    "decode_image": decode_image,
    "decode_jpeg": decode_jpeg,
    "decode_png": partial(_as_a_whole, start=b"\x89PNG"),
    "decode_webp": partial(_as_a_whole, start=b"RIFF"),
    "decode_gif": _at_once,
}
PATCHES = (
    *(Body(f"{_MODULE}.{name}", reader) for name, reader in _READERS.items() if hasattr(torchvision.io.image, name)),
)
