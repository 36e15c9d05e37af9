"""The whole path: JPEG bytes in host memory to a normalised tensor on the device, side by side with others."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
import torch.utils.dlpack
from torchvision.transforms.v2 import functional as F2

from accel.backends.cuda.execute import Execution
from accel.backends.cuda.lower import lower
from accel.planning.plan import plan
from accel.running.team import cores
from bench.gpu.setting import SIZE, Setting, in_turns, recorded, transformed, wait
from bench.pipelines import MEAN, PIPELINES, STD
from bench.quality import Quality

Run = Callable[[], torch.Tensor]


def measure(setting: Setting) -> dict[str, Any]:
    """Every contestant's time for a batch, images per second, and difference from torchvision with Pillow."""
    contestants: dict[str, Run] = {
        "torchvision with Pillow, all cores": _pillow(setting),
        "accel, exact, decoded on the device": _accel(setting),
        "accel, exact, the host decodes": _accel(setting, decode="host"),
        "accel, exact=False": _accel(setting, exact=False),
    }
    missing = {}
    for name, make in (("torchvision on the device", _torchvision), ("DALI, mixed", _dali)):
        try:
            contestants[name] = make(setting)
            contestants[name]()
        except Exception as error:  # not installed, or no such device: said in the result
            contestants.pop(name, None)
            missing[name] = f"{type(error).__name__}: {error}"
    wanted = contestants["torchvision with Pillow, all cores"]().cpu()
    found: dict[str, Any] = {"cores": cores(), "batch": len(setting.photos), "missing": missing, "contestants": {}}
    times = in_turns(dict(contestants), setting.rounds, setting.device)
    for name, path in contestants.items():
        quality = Quality(PIPELINES["train"])
        batch = path().cpu()
        quality.add(tuple(wanted), tuple(batch))
        if name.startswith("accel, exact,") and not torch.equal(batch, wanted):
            raise AssertionError(f"{name}: its values are not torchvision's; nothing is reported")
        found["contestants"][name] = {
            "ms a batch": 1000 * times[name]["median"],
            "images/s": len(setting.photos) / times[name]["median"],
            "rounds": times[name]["rounds"],
            **quality.as_data(),
        }
    found["the host decodes, by part, ms"] = _parts(setting)
    return found


def _accel(setting: Setting, **options: Any) -> Run:
    backend, recipes = recorded(setting.photos, setting.device, **options)
    return lambda: backend.run_on(plan(recipes), setting.device)


def _pillow(setting: Setting) -> Run:
    pool = ThreadPoolExecutor(cores())
    return lambda: torch.stack(list(pool.map(transformed, setting.photos))).to(setting.device)


def _torchvision(setting: Setting) -> Run:
    from torchvision.io import ImageReadMode, decode_jpeg

    if setting.device.type != "cuda":
        raise RuntimeError("decode_jpeg of a batch needs a CUDA device")
    encoded = [torch.from_numpy(np.frombuffer(photo.data, np.uint8).copy()) for photo in setting.photos]

    def path() -> torch.Tensor:
        pictures = decode_jpeg(encoded, ImageReadMode.RGB, device=setting.device)
        images = []
        for picture, photo in zip(pictures, setting.photos, strict=True):
            top, left, height, width = photo.draw.box or (0, 0, *picture.shape[1:])
            image = F2.resized_crop(picture, top, left, height, width, [SIZE, SIZE], antialias=True)
            images.append(F2.horizontal_flip(image) if photo.draw.flip else image)
        return F2.normalize(F2.to_dtype(torch.stack(images), torch.float32, scale=True), MEAN, STD)  # type: ignore[no-any-return]

    return path


def _dali(setting: Setting) -> Run:
    """Hardware decoding, only of the crop, and all cores: the settings DALI's documentation recommends."""
    if find_spec("nvidia.dali") is None:
        raise RuntimeError("DALI is not installed")
    if setting.device.type != "cuda":
        raise RuntimeError("the mixed decoder needs a CUDA device")
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
            hw_decoder_load=1.0,
        )  # fmt: skip
        images = fn.resize(images, size=(SIZE, SIZE), interp_type=types.INTERP_LINEAR, antialias=True)
        return fn.crop_mirror_normalize(
            images, dtype=types.FLOAT, output_layout="CHW", mirror=flip,
            mean=[255 * value for value in MEAN], std=[255 * value for value in STD],
        )  # fmt: skip

    pipeline = made()
    pipeline.build()

    def path() -> torch.Tensor:
        (output,) = pipeline.run()
        return torch.utils.dlpack.from_dlpack(output.as_tensor())

    return path


def _parts(setting: Setting) -> dict[str, float]:
    """Where the time goes where the host decodes, part after part, each waited for, in milliseconds."""
    backend, recipes = recorded(setting.photos, setting.device, decode="host")
    for _ in range(2):  # the second counts
        found = _parts_once(setting, backend, recipes)
    return found


def _parts_once(setting: Setting, backend: Any, recipes: Any) -> dict[str, float]:
    engine, device = backend._engine(setting.device), setting.device
    found: dict[str, float] = {}

    def timed(name: str, function: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        value = function()
        wait(device)
        found[name] = 1000 * (time.perf_counter() - start)
        return value

    program = timed("plan", lambda: plan(recipes))
    lowered = timed("program", lambda: lower(program, [None] * len(program.decodes)))
    with engine.device.enter():
        result = program.empty(lambda shape, dtype: torch.empty(tuple(shape), dtype=dtype, device=device))
        execution = Execution(lowered, engine.device, engine.ring)

        def decode(numbered: tuple[int, Any]) -> None:
            backend._decode(numbered[1], 1, execution, numbered[0])

        timed("decode on the host", lambda: backend._team.each(enumerate(program.decodes), decode))
        timed("the rest of the upload", lambda: [fill() for fill in execution.sent()])
        timed("upload", lambda: execution.upload(result))
        timed("kernels", execution.launch)
    timed("recording, in a worker", lambda: recorded(setting.photos, device))
    timed("all but recording", lambda: backend.run_on(plan(recipes), device))
    return found
