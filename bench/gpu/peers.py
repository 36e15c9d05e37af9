"""Other libraries that prepare images on a GPU, each used as its own documentation recommends.

A peer is a function of a ``Setting`` that yields batches without end: float32 [images, 3, 224, 224] on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torchvision.transforms.v2 import functional as F2

from accel.system.cores import cores
from bench.contestants.servers import encoded
from bench.gpu.setting import SIZE, Photo, Setting
from bench.pipelines import MEAN, STD

Batches = Generator[torch.Tensor, None, None]
_MEAN, _STD = [255 * value for value in MEAN], [255 * value for value in STD]


def torchvision(setting: Setting) -> Batches:
    """``torchvision.io.decode_jpeg`` of the whole batch, by nvJPEG on the device, and transforms.v2."""
    from torchvision.io import ImageReadMode, decode_jpeg

    files = [encoded(photo.data) for photo in setting.photos]
    while True:
        yield _by_v2(decode_jpeg(files, ImageReadMode.RGB, device=setting.device), setting.photos)


def torchcodec(setting: Setting) -> Batches:
    """TorchCodec's decoder on the device, of the whole batch, and torchvision's transforms.v2."""
    from torchcodec.decoders import decode_jpeg

    files = [encoded(photo.data) for photo in setting.photos]
    while True:
        yield _by_v2(decode_jpeg(files, mode="RGB", device=setting.device), setting.photos)


def dali(setting: Setting, hardware: float) -> Batches:
    """DALI's example for training on ImageNet: its reader, decoding only crops, on all cores, three batches ahead;
    ``hardware``: the share of images for the hardware decoder."""
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

    device = setting.device
    where: dict[str, Any] = {"device": "cpu"}
    if device.type == "cuda":
        where = {"device": "mixed", "hw_decoder_load": hardware}
        where |= {"preallocate_width_hint": 5980, "preallocate_height_hint": 6430}

    @pipeline_def(  # type: ignore[untyped-decorator]
        batch_size=len(setting.photos), num_threads=cores(), device_id=device.index, prefetch_queue_depth=3
    )
    def made() -> Any:
        files, _ = fn.readers.file(files=setting.files, random_shuffle=True, prefetch_queue_depth=3)
        images = fn.decoders.image_random_crop(
            files, output_type=types.RGB, random_aspect_ratio=[3 / 4, 4 / 3], random_area=[0.08, 1.0], num_attempts=100,
            **where,
        )  # fmt: skip
        images = fn.resize(images, resize_x=SIZE, resize_y=SIZE, interp_type=types.INTERP_TRIANGULAR)
        flip = fn.random.coin_flip(probability=0.5)
        return fn.crop_mirror_normalize(
            images, dtype=types.FLOAT, output_layout="CHW", crop=(SIZE, SIZE), mirror=flip, mean=_MEAN, std=_STD
        )

    for batch in DALIGenericIterator([made()], ["images"]):
        yield batch[0]["images"]


def dali_torchvision(setting: Setting) -> Batches:
    """DALI's own torchvision API on pictures that torchvision decodes on the device, one by one; its own draws."""
    from nvidia.dali.experimental import torchvision as T
    from torchvision.io import ImageReadMode, decode_jpeg

    where = "gpu" if setting.device.type == "cuda" else "cpu"
    transform = T.Compose(
        [
            T.RandomResizedCrop((SIZE, SIZE), device=where),
            T.RandomHorizontalFlip(device=where),
            T.Normalize(_MEAN, _STD, device=where),
        ],
        batch_size=1,
        num_threads=cores(),
    )
    files = [encoded(photo.data) for photo in setting.photos]
    while True:
        pictures = decode_jpeg(files, ImageReadMode.RGB, device=setting.device)
        yield torch.stack([transform(picture).clone() for picture in pictures])  # DALI reuses its memory


def cvcuda(setting: Setting) -> Batches:
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
    while True:
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
        yield torch.as_tensor(values.cuda(), device=device)


PEERS: dict[str, tuple[Callable[[Setting], Batches], tuple[str, ...], bool]] = {
    "torchvision on the device": (torchvision, (), False),
    **{
        f"DALI, {load:.0%} by the hardware": (partial(dali, hardware=load), ("nvidia.dali",), True)
        for load in (0.65, 0.8, 1.0, 0.0)
    },
    "DALI's torchvision API": (dali_torchvision, ("nvidia.dali", "nvidia.dali.experimental.torchvision"), True),
    "TorchCodec on the device": (torchcodec, ("torchcodec",), False),
    "CV-CUDA": (cvcuda, ("cvcuda", "nvidia.nvimgcodec"), False),
}
"""By name: the function, the modules that it needs, and whether it draws its own crops."""
NEED_DRIVER = (dali_torchvision, cvcuda)


def _by_v2(pictures: Sequence[torch.Tensor], photos: Sequence[Photo]) -> torch.Tensor:
    images = []
    for picture, photo in zip(pictures, photos, strict=True):
        top, left, height, width = photo.draw.box or (0, 0, *picture.shape[1:])
        image = F2.resized_crop(picture, top, left, height, width, [SIZE, SIZE], antialias=True)
        images.append(F2.horizontal_flip(image) if photo.draw.flip else image)
    return F2.normalize(F2.to_dtype(torch.stack(images), torch.float32, scale=True), MEAN, STD)  # type: ignore[no-any-return]
