"""``accel.warm``: what is compiled, loaded, allocated and measured before the first request comes."""

from __future__ import annotations

import operator
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from io import BytesIO
from itertools import takewhile
from statistics import median
from typing import Any

import numpy as np
import torch
from PIL import Image
from torchvision import transforms as T

from accel.backend import backend_of
from accel.lazy.on_device import queue_of
from accel.lazy.submit import lazy_of, submit
from accel.processes import switch
from accel.recipes.options import Selection
from accel.runtime import small_requests, streams
from accel.system import fork

_VALUES = T.ToTensor(), T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
_EVALUATION = T.Compose([T.Resize(256), T.CenterCrop(224), *_VALUES])
_ROUNDS, _FILES = 5, 8
_LONGEST = 65500  # of the sides of a JPEG file that libjpeg writes
_measuring = fork.Lock()


def warm(
    backend: str,
    shapes: Iterable[Sequence[int]],
    transform: Callable[[Image.Image], Any] | None = None,
    device: Any = None,
) -> int:
    """Compile, load and allocate what requests of these shapes take, so that the first one is not slow.

    For an accelerator backend it also measures, on a machine that should do nothing else, up to how many images the
    host computes a request sooner. From then on ``accel.submit`` has the host compute such requests for the device if
    ``exact`` is true and both give the same bits; ``accel.explain`` says so. Without this call the device computes all.

    Args:
        backend: a backend's name. If it is the one in force, its options hold, else the defaults.
        shapes: the largest requests, each (images, height, width): so many JPEG files of that size.
        transform: what is done to an opened image; None: ImageNet's evaluation, to a tensor [3, 224, 224]. It may draw
            random numbers; their generators are left as they were.
        device: as ``accel.submit`` takes it.

    Returns:
        The most images that the host computes for the device; 0 if the device was always faster, or for a host backend.

    Raises:
        ValueError: a shape is not three numbers of at least 1, or no JPEG file can be as large; or the device is not
            known.
        TypeError: ``shapes`` cannot be iterated over, or ``transform`` cannot be called.
        BackendUnavailable: the backend cannot run here.
    """
    if not isinstance(shapes, Iterable):
        raise TypeError(f"shapes must be a list of (images, height, width), got {shapes!r}")
    if not (transform is None or callable(transform)):
        raise TypeError(f"transform must be a function of an image, got {transform!r}")
    requests = [_checked(shape) for shape in shapes]
    in_force = nullcontext() if switch.current().name == backend else switch.image_backend(backend)
    with in_force, _measuring, _random_states_kept():
        selection = switch.current()
        if selection.steps_aside:
            raise ValueError(f"backend {backend!r} has nothing to warm")
        backend_of(selection).prepare()
        queue, most = queue_of(selection, 0, None if device is None else torch.device(device)), 0
        on = None if queue is None else queue.device
        try:
            found = [_warmed(selection, shape, transform or _EVALUATION, device, on) for shape in requests]
            most = min(found, default=0)
        finally:
            if on is not None:
                small_requests.learned[selection, on] = most
        return most


def _checked(shape: Sequence[int]) -> tuple[int, int, int]:
    try:
        count, height, width = map(operator.index, shape)
    except (TypeError, ValueError):
        count = height = width = 0
    if min(count, height, width) < 1:
        raise ValueError(f"a shape is (images, height, width), each at least 1, got {shape!r}")
    if max(height, width) > _LONGEST:
        raise ValueError(f"a JPEG file's height and width are at most {_LONGEST}, got {shape!r}")
    return count, height, width


def _warmed(
    selection: Selection, shape: tuple[int, int, int], transform: Callable[[Any], Any], device: Any, on: Any
) -> int:
    """Run requests of one shape, and measure smaller ones; returns how many images the host computes sooner.

    ``on``: the device that computes; None: the host does.
    """
    most, *size = shape
    files = [_file(size[0], size[1], seed) for seed in range(min(most, _FILES))]

    def request(count: int) -> list[Any]:
        return [transform(Image.open(BytesIO(files[number % len(files)]))) for number in range(count)]

    if on is not None:
        small_requests.learned[selection, on] = 0
    for future in [submit(request(most), device) for _ in range(2 * streams.MOST)]:  # each stream has its memory
        future.result()
    if on is None or not selection.options.exact:
        return 0
    if all(lazy_of(image) is None for image in request(1)):  # the transform leaves nothing to accel
        return 0
    sooner = takewhile(lambda count: _host_is_faster(selection, on, partial(request, count)), _counts(most))
    return max(sooner, default=0)


def _counts(most: int) -> list[int]:
    """The powers of two below a number, and the number."""
    return [*(1 << power for power in range((most - 1).bit_length())), most]


def _host_is_faster(selection: Selection, device: torch.device, request: Callable[[], list[Any]]) -> bool:
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for on_host in (False, True) * _ROUNDS:
        images = request()
        small_requests.learned[selection, device] = len(images) * on_host
        begin = time.perf_counter()
        submit(images, device).result()
        streams.synchronize(device)
        seconds[on_host].append(time.perf_counter() - begin)
    return median(seconds[True]) < median(seconds[False])


def _file(height: int, width: int, seed: int) -> bytes:
    """A JPEG file of smooth noise, which takes about as long to decode as a photo."""
    noise = np.random.default_rng(seed).integers(0, 256, (height // 4 + 1, width // 4 + 1, 3), np.uint8)
    stream = BytesIO()
    Image.fromarray(noise).resize((width, height), Image.Resampling.BILINEAR).save(stream, "JPEG", quality=90)
    return stream.getvalue()


@contextmanager
def _random_states_kept() -> Iterator[None]:
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()  # noqa: NPY002  a transform may use it
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        random.setstate(states[1])
        np.random.set_state(states[2])  # noqa: NPY002
