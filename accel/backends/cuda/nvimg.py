"""nvImageCodec on the device (``exact=False, decode="nvimgcodec"``): JPEG files decoded to pixels on the device.

All files are offered to the hardware first. On an H200 it takes files from batches only, so that a file alone may have
other pixels than in a batch (by at most 3 levels, as far as seen). Before nvJPEG 13.2 it refuses regions of pictures
with halved chroma. Files that it refuses come back as None, and are left to the host's decoders.

nvJPEG's hardware engine may write its output before work that was queued earlier on the stream has run, so the output
must not be memory that was just freed by tensors which that work still reads. nvImageCodec takes its memory from the
driver's pool (cudaMallocAsync), not from torch's allocator, and an image goes back there only when the device is done
with everything that reads it (``KeepAlive``). If torch's tensors come from that pool as well, nvImageCodec is not used
(``shares_memory``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from accel.backends.cuda.device import Mark
from accel.codec import engines
from accel.codec.decode import is_plainly_intact
from accel.planning.plan import Decode
from accel.system import counters, fork


class Pixels(NamedTuple):
    """A decoded image, uint8 [height, width, channels], dense: its address, and the object that owns its memory."""

    address: int
    image: Any


def accepts(wanted: Decode) -> bool:
    """Whether nvImageCodec may decode a source: an intact file, and a region whose chroma it gets right."""
    source = wanted.source
    return wanted.box == engines.wide_enough(wanted.box, source.header.width) and is_plainly_intact(
        source.data, source.header
    )


def shares_memory(device: torch.device) -> bool:
    """Whether torch allocates from the pool that nvImageCodec uses (PYTORCH_CUDA_ALLOC_CONF)."""
    return device.type == "cuda" and torch.cuda.get_allocator_backend() == "cudaMallocAsync"


class Decoder:
    """nvImageCodec's decoder for one device; threads take turns."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._lock = fork.Lock()
        self._decoder: Any = None

    def decode(self, wanted: Sequence[Decode]) -> list[Pixels | None]:
        """Decode every box, in the order of torch's current stream; None for those that it declines."""
        found: list[Pixels | None] = [None] * len(wanted)
        offered = [number for number, each in enumerate(wanted) if accepts(each)]
        with self._lock:
            codec, decoder = self._ready()
            for channels, space in ((1, codec.ColorSpec.GRAY), (3, codec.ColorSpec.SRGB)):
                params = codec.DecodeParams(apply_exif_orientation=False, color_spec=space)
                numbers = [number for number in offered if wanted[number].channels == channels]
                streams = [_stream(codec, wanted[number]) for number in numbers]
                images = decoder.decode(streams, params=params, cuda_stream=self._stream()) if streams else []
                for number, image in zip(numbers, images, strict=True):
                    found[number] = _pixels(image, wanted[number])
        for number in offered:
            if found[number] is None:
                name = wanted[number].source.name
                counters.fallback("nvImageCodec declined a JPEG on the device; the host decoded it", name)
        return found

    def _stream(self) -> int:
        return int(torch.cuda.current_stream().cuda_stream) if self._device.type == "cuda" else 0

    def _ready(self) -> tuple[Any, Any]:
        codec = engines.nvimgcodec_module()
        if self._decoder is None:
            kinds, device = codec.BackendKind, self._device.index
            offered: tuple[Any, ...] = (kinds.HW_GPU_ONLY, kinds.GPU_ONLY, kinds.HYBRID_CPU_GPU)
            if self._device.type == "cpu":
                offered, device = (kinds.CPU_ONLY,), codec.NVIMGCODEC_DEVICE_CPU_ONLY
            shares = [codec.Backend(kind, 1.0, codec.LoadHintPolicy.FIXED) for kind in offered]
            self._decoder = codec.Decoder(device_id=device, backends=shares, options=":fancy_upsampling=1")
        return codec, self._decoder


def _stream(codec: Any, wanted: Decode) -> Any:
    data, header = wanted.source.data, wanted.source.header
    top, left, height, width = wanted.box
    stream = codec.CodeStream(data if isinstance(data, bytes) else bytes(data))
    if (height, width) == (header.height, header.width):
        return stream
    return stream.get_sub_code_stream(region=codec.Region(top, left, top + height, left + width))


def _pixels(image: Any, wanted: Decode) -> Pixels | None:
    """The image, if it has the expected shape and dtype and is dense; else None."""
    if image is None:
        return None
    on_host = image.buffer_kind.name == "STRIDED_HOST"
    layout = image.__array_interface__ if on_host else image.__cuda_array_interface__
    _, _, height, width = wanted.box
    shape = (height, width, wanted.channels)
    strides = layout.get("strides")
    dense = strides is None or tuple(strides) == (width * wanted.channels, wanted.channels, 1)
    if tuple(layout["shape"]) != shape or layout["typestr"] != "|u1" or not dense:
        return None
    return Pixels(layout["data"][0], image)


class KeepAlive:
    """Objects whose memory the device may still be reading."""

    def __init__(self) -> None:
        self._lock = fork.Lock()
        self._held: list[tuple[Mark, Any]] = []

    def until(self, mark: Mark | None, objects: Any) -> None:
        """Keep ``objects`` until ``mark`` is reached, and release those whose marks are."""
        with self._lock:
            self._held = [each for each in self._held if not each[0].query()]
            if mark is not None:
                self._held.append((mark, objects))
