"""Other libraries that prepare images on a GPU, each used as its own documentation recommends.

A contestant is made of a ``Setting`` and gives the batch of the whole path: from JPEG bytes in host memory to float32
[images, 3, 224, 224] on the device. Making one raises where it cannot run; the result says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
import torch.utils.dlpack
from torchvision.transforms.v2 import functional as F2

from accel.system.cores import cores
from bench.gpu.setting import SIZE, Photo, Setting
from bench.pipelines import MEAN, STD

Run = Callable[[], torch.Tensor]
_MEAN, _STD = [255 * value for value in MEAN], [255 * value for value in STD]


def torchvision(setting: Setting) -> Run:
    """``torchvision.io.decode_jpeg`` on the device, of the whole batch, and transforms.v2."""
    from torchvision.io import ImageReadMode, decode_jpeg

    encoded = _as_tensors(setting.photos)
    return lambda: _by_v2(decode_jpeg(encoded, ImageReadMode.RGB, device=setting.device), setting.photos)


def torchcodec(setting: Setting) -> Run:
    """TorchCodec's decoder on the device, of the whole batch, and torchvision's transforms.v2."""
    from torchcodec.decoders import decode_jpeg

    encoded = _as_tensors(setting.photos)
    return lambda: _by_v2(decode_jpeg(encoded, mode="RGB", device=setting.device), setting.photos)


def dali(setting: Setting, hardware: float) -> Run:
    """Decoding only of the crop, ``hardware`` of the images by the hardware decoder, and all cores."""
    from nvidia.dali import fn, pipeline_def, types

    files = [np.frombuffer(photo.data, np.uint8) for photo in setting.photos]
    boxes = [photo.draw.box or (0, 0, 1, 1) for photo in setting.photos]
    corners = [np.array(box[:2], np.int32) for box in boxes]
    shapes = [np.array(box[2:], np.int32) for box in boxes]
    flips = [np.array(photo.draw.flip, np.int32) for photo in setting.photos]

    @pipeline_def(  # type: ignore[untyped-decorator]
        batch_size=len(files), num_threads=cores(), device_id=setting.device.index, prefetch_queue_depth=1
    )
    def made() -> Any:
        encoded, corner, shape, flip = fn.external_source(
            source=lambda: (files, corners, shapes, flips), num_outputs=4, batch=True
        )
        images = fn.decoders.image_slice(
            encoded, corner, shape, axes=(0, 1), device="mixed", output_type=types.RGB, adjust_orientation=False,
            hw_decoder_load=hardware,
        )  # fmt: skip
        images = fn.resize(images, size=(SIZE, SIZE), interp_type=types.INTERP_LINEAR, antialias=True)
        return fn.crop_mirror_normalize(
            images, dtype=types.FLOAT, output_layout="CHW", mirror=flip, mean=_MEAN, std=_STD
        )

    pipeline = made()
    pipeline.build()

    def path() -> torch.Tensor:
        (output,) = pipeline.run()
        return torch.utils.dlpack.from_dlpack(output.as_tensor())

    return path


def dali_torchvision(setting: Setting) -> Run:
    """DALI's own torchvision API on pictures that torchvision decodes on the device, one by one; its own draws."""
    from nvidia.dali.experimental import torchvision as T
    from torchvision.io import ImageReadMode, decode_jpeg

    transform = T.Compose(
        [
            T.RandomResizedCrop((SIZE, SIZE), device="gpu"),
            T.RandomHorizontalFlip(device="gpu"),
            T.Normalize(_MEAN, _STD, device="gpu"),
        ],
        batch_size=1,
        num_threads=cores(),
    )
    encoded = _as_tensors(setting.photos)

    def path() -> torch.Tensor:
        pictures = decode_jpeg(encoded, ImageReadMode.RGB, device=setting.device)
        return torch.stack([transform(picture).clone() for picture in pictures])  # DALI writes there again

    return path


def cvcuda(setting: Setting) -> Run:
    """nvImageCodec's decoder and CV-CUDA's operators on batches of images of different sizes."""
    import cvcuda
    from nvidia import nvimgcodec

    count, device = len(setting.photos), setting.device
    decoder = nvimgcodec.Decoder(device_id=device.index or 0)
    files = [photo.data for photo in setting.photos]
    corners = []
    for photo in setting.photos:
        assert photo.draw.box is not None
        top, left, height, width = photo.draw.box
        corners.append((top, left, top + height, left + width))

    def on_device(values: Any, dtype: torch.dtype, layout: str) -> Any:
        return cvcuda.as_tensor(torch.tensor(values, dtype=dtype, device=device), layout)

    whole = on_device([[[[0, 0, SIZE, SIZE]]]] * count, torch.int32, "NHWC")
    flips = on_device([[1 if photo.draw.flip else 2] for photo in setting.photos], torch.int32, "NC")
    mean, std = (on_device([[[list(values)]]], torch.float32, "NHWC") for values in (_MEAN, _STD))

    def path() -> torch.Tensor:
        stream = cvcuda.as_stream(torch.cuda.current_stream(device))
        batch = cvcuda.ImageBatchVarShape(count)
        decoded = decoder.decode(files, cuda_stream=stream.handle)
        batch.pushback([cvcuda.as_image(picture, cvcuda.Format.RGB8) for picture in decoded])
        resized = cvcuda.hq_resize(
            batch, [(SIZE, SIZE)] * count, antialias=True, roi=corners, interpolation=cvcuda.Interp.LINEAR,
            stream=stream,
        )  # fmt: skip
        values = cvcuda.crop_flip_normalize_reformat(
            resized, (count, 3, SIZE, SIZE), np.float32, cvcuda.TensorLayout.NCHW, whole, flips, mean, std,
            flags=cvcuda.NormalizeFlags.SCALE_IS_STDDEV, stream=stream,
        )  # fmt: skip
        return torch.as_tensor(values.cuda(), device=device)

    return path


PEERS: dict[str, tuple[Callable[[Setting], Run], tuple[str, ...]]] = {
    "torchvision on the device": (torchvision, ()),
    "TorchCodec on the device": (torchcodec, ("torchcodec",)),
    **{
        f"DALI, mixed, {load:.0%} by the hardware": (partial(dali, hardware=load), ("nvidia.dali",))
        for load in (0.0, 0.65, 0.8, 1.0)
    },
    "DALI's torchvision API": (dali_torchvision, ("nvidia.dali.experimental.torchvision",)),
    "CV-CUDA": (cvcuda, ("cvcuda", "nvidia.nvimgcodec")),
}
"""Their functions, and the modules that they need."""
OWN_DRAWS = {"DALI's torchvision API"}
"""Those whose pixels cannot be compared."""


def made(name: str, setting: Setting) -> Run:
    """One of them.

    Raises:
        RuntimeError: it cannot run here.
    """
    make, modules = PEERS[name]
    for module in modules:
        if find_spec(module.split(".")[0]) is None or find_spec(module) is None:
            raise RuntimeError(f"{module} is not installed")
    if setting.device.type != "cuda":
        raise RuntimeError("needs a CUDA device")
    return make(setting)


def _as_tensors(photos: Sequence[Photo]) -> list[torch.Tensor]:
    return [torch.from_numpy(np.frombuffer(photo.data, np.uint8).copy()) for photo in photos]


def _by_v2(pictures: Sequence[torch.Tensor], photos: Sequence[Photo]) -> torch.Tensor:
    images = []
    for picture, photo in zip(pictures, photos, strict=True):
        top, left, height, width = photo.draw.box or (0, 0, *picture.shape[1:])
        image = F2.resized_crop(picture, top, left, height, width, [SIZE, SIZE], antialias=True)
        images.append(F2.horizontal_flip(image) if photo.draw.flip else image)
    return F2.normalize(F2.to_dtype(torch.stack(images), torch.float32, scale=True), MEAN, STD)  # type: ignore[no-any-return]
