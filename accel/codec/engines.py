"""The host's JPEG decoders, each a function (data, box, channels) -> pixels, or None if it declines the file.

Pixels are uint8 [height, width, channels], C-contiguous; ``box`` is (top, left, height, width) inside the
picture; 3 channels of a grey file are its values three times over, as Pillow converts "L" to "RGB".
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import torch
from PIL.JpegImagePlugin import JpegImageFile

from accel.codec import jpeg
from accel.system import fork, log
from accel.system.imports import importing

Pixels = npt.NDArray[np.uint8]
Box = tuple[int, int, int, int]
Data = bytes | memoryview


def accel(
    data: Data, box: Box, channels: int, index: jpeg.Index | None = None, out: Pixels | None = None
) -> Pixels | None:
    """accel's own decoder (``jpeg.decode``), on the region alone, which declines all but plainly intact baseline
    files."""
    return jpeg.decode(data, box, channels=channels, out=out, index=index)


def pillow(data: Data, box: Box, channels: int) -> Pixels | None:
    """Pillow's own decoder, on the whole file: the reference, which also decides what is broken.

    Raises:
        OSError, SyntaxError, ...: whatever Pillow raises for the file.
    """
    with JpegImageFile(io.BytesIO(data)) as image:
        image.load()
        top, left, height, width = box
        part = image.crop((left, top, left + width, top + height))
        pixels = np.array(part.convert("RGB" if channels == 3 else "L"))
    return pixels.reshape(height, width, channels)


def torchvision(data: Data, box: Box, channels: int) -> Pixels | None:
    """torchvision's own decoder (its own libjpeg-turbo), on the whole file: the reference for ``torchvision.io``."""
    stream = torch.from_numpy(np.frombuffer(data, np.uint8).copy())
    mode = 3 if channels == 3 else 0  # torchvision.io.ImageReadMode: RGB, UNCHANGED
    pixels: Pixels = torch.ops.image.decode_jpeg(stream, mode, False).permute(1, 2, 0).numpy()
    top, left, height, width = box
    return np.ascontiguousarray(pixels[top : top + height, left : left + width])


def nvimgcodec(data: Data, box: Box, channels: int) -> Pixels | None:
    """nvImageCodec's CPU decoder (libjpeg-turbo, islow, fancy upsampling), on the region alone."""
    codec = nvimgcodec_module()
    decoder, grey, colour = _nvimgcodec_decoder()
    stream = codec.CodeStream(data if isinstance(data, bytes) else np.frombuffer(data, np.uint8))
    top, first, height, columns = wide_enough(box, stream.width)
    if (height, columns) != (stream.height, stream.width):
        stream = stream.get_sub_code_stream(region=codec.Region(top, first, top + height, first + columns))
    image = decoder.decode(stream, params=grey if channels == 1 else colour)
    if image is None:
        return None
    pixels = np.asarray(image)
    if pixels.dtype != np.uint8 or pixels.shape != (height, columns, channels):
        return None
    left = box[1] - first
    return np.ascontiguousarray(pixels[:, left : left + box[3]])


def wide_enough(box: Box, picture_width: int) -> Box:
    """The region to ask for from decoders that use libjpeg-turbo: the box, with more columns if it is narrow.

    If a component has a single sample across the region, jpeg_crop_scanline (jdapistd.c) chooses anew how all of them
    are upsampled, and then repeats samples that it should interpolate. More columns than the largest sampling factor
    (4), or all of the picture's, avoid that.
    """
    top, left, height, width = box
    columns = min(max(width, _NARROWEST), picture_width)
    return top, min(left, picture_width - columns), height, columns


_NARROWEST = 5


@cache
def has_nvimgcodec() -> bool:
    try:
        with importing:  # this imports the package that it is in
            return find_spec("nvidia.nvimgcodec") is not None
    except ModuleNotFoundError:
        return False


@cache
def nvimgcodec_module() -> Any:
    with _native_stderr_to_log(), importing:  # it complains of missing GPU libraries, which the CPU does not need
        from nvidia import nvimgcodec as module
    return module


_per_thread = threading.local()
fork.register(in_child=lambda: _per_thread.__dict__.clear())


def _nvimgcodec_decoder() -> tuple[Any, Any, Any]:
    """This thread's decoder, and its parameters for grey and for colour: a decoder serves one thread at a time."""
    found = getattr(_per_thread, "nvimgcodec", None)
    if found is None:
        codec = nvimgcodec_module()
        with _native_stderr_to_log():
            decoder = codec.Decoder(
                device_id=codec.NVIMGCODEC_DEVICE_CPU_ONLY,
                backends=[codec.Backend(codec.BackendKind.CPU_ONLY)],
                max_num_cpu_threads=1,
                options=":fancy_upsampling=1",
            )
        grey = codec.DecodeParams(apply_exif_orientation=False, color_spec=codec.ColorSpec.GRAY)
        colour = codec.DecodeParams(apply_exif_orientation=False, color_spec=codec.ColorSpec.SRGB)
        found = _per_thread.nvimgcodec = (decoder, grey, colour)
    return found


_stderr_lock = fork.Lock()
fork.wait_for(lambda: _stderr_lock, fork.NATIVE_STDERR)  # else a child's stderr would stay redirected


@contextmanager
def _native_stderr_to_log() -> Iterator[None]:
    """Send what native code writes to file descriptor 2 in the block to accel's debug log."""
    with _scratch() as kept:
        try:
            with _stderr_lock:
                if sys.stderr is not None:
                    sys.stderr.flush()
                saved = os.dup(2)
                os.dup2(kept.fileno(), 2)
                try:
                    yield
                finally:
                    os.dup2(saved, 2)
                    os.close(saved)
        finally:
            kept.seek(0)
            if text := kept.read().decode(errors="replace").strip():
                log.note(log.DEBUG, "nvImageCodec: %s", text)


def _scratch() -> IO[bytes]:
    """A temporary file; the null device if none can be made."""
    try:
        return tempfile.TemporaryFile()
    except OSError:
        return open(os.devnull, "w+b")
