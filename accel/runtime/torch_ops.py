"""Running torchvision's kernels on computed values: on the host image by image, on a device in batches if possible."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from accel.codec import arrow
from accel.ops import tensor_op
from accel.ops.helpers import THREADS
from accel.planning.plan import Plan
from accel.planning.torch_tail import Tail, TailedPlans
from accel.recipes.recipe import Step
from accel.runtime.parallel import ParallelFor
from accel.system import arithmetic
from accel.system.memory import Allocate


def on_host(
    batches: Sequence[tuple[TailedPlans, Sequence[torch.Tensor], bool]], allocate: Allocate, parallel: ParallelFor
) -> list[torch.Tensor]:
    """Finish images that plans made, one by one, so that every value equals torchvision's.

    ``batches``: of each the plans, what they made, and whether the result is interleaved.
    """
    # kernels have threads of their own; with twice as many as ours, some run while others wait for each other
    threads = max(_threads(tail) for whole, *_ in batches for tail in whole.tails)
    turn = threading.Semaphore(max(2 * parallel.size // threads, 1))
    results, allocating = dict[int, torch.Tensor](), threading.Lock()

    def image(batch: int, number: int) -> torch.Tensor:
        whole, made, _ = batches[batch]
        with turn:
            return _image([made[plan][place] for plan, place in whole.places], whole.tails[number])

    def begin(batch: int) -> None:
        first, (whole, _, interleaved) = image(batch, 0), batches[batch]
        channels, height, width = first.shape
        plan = Plan((), (len(whole.tails), channels, height, width), first.dtype, interleaved)
        with allocating:
            results[batch] = plan.empty(allocate)
        _put(results[batch][0], first)

    def finish(place: tuple[int, int]) -> None:
        batch, number = place
        found = image(batch, number)
        _check_alike(found, results[batch][0])
        _put(results[batch][number], found)

    parallel.each(range(len(batches)), begin)
    parallel.each(
        [(n, number) for n, (whole, *_) in enumerate(batches) for number in range(1, len(whole.tails))], finish
    )
    return [results[batch] for batch in range(len(batches))]


def _put(target: torch.Tensor, image: torch.Tensor) -> None:
    """Copy an image; of planes of bytes into interleaved ones torch's own copy takes ten times as long."""
    pixels = target.permute(1, 2, 0)
    if image.dtype == torch.uint8 and len(image) == 3 and image.is_contiguous() and pixels.is_contiguous():
        arrow.interleave(image.numpy()[None], pixels.numpy()[None])
    else:
        target.copy_(image)


def _threads(tail: Tail) -> int:
    """The largest number of threads that one of its kernels runs on."""
    branches = [each for _, params in tail.kernels for each in params if isinstance(each, Tail)]
    return max([threads or 1 for _, threads in _steps(tail.kernels)] + list(map(_threads, branches)), default=1)


def _check_alike(image: torch.Tensor, first: torch.Tensor) -> None:
    """Raise ValueError if an image has another shape or dtype than the first, and so would be broadcast or cast."""
    if (image.shape, image.dtype) != (first.shape, first.dtype):
        raise ValueError(
            f"images of one program must come out alike, got {list(image.shape)} {image.dtype} and "
            f"{list(first.shape)} {first.dtype}"
        )


def _image(bases: Sequence[torch.Tensor], tail: Tail) -> torch.Tensor:
    with arithmetic.as_recorded(bases[tail.base].device.type):
        return _finished(bases, tail)


def _finished(bases: Sequence[torch.Tensor], tail: Tail) -> torch.Tensor:
    values = bases[tail.base]
    for step, threads in _steps(tail.kernels):
        values = _applied(bases, values, step, threads)
    return values


def _steps(recorded: Sequence[Step]) -> Iterator[tuple[Step, int | None]]:
    """Each step, with the number of threads that torch must run it on; None for any number."""
    threads = None
    for step in recorded:
        name, params = step
        if name == THREADS:
            (threads,) = params
        else:
            yield step, None if tensor_op(name).elementwise else threads


def _applied(bases: Sequence[torch.Tensor], values: torch.Tensor, step: Step, threads: int | None) -> torch.Tensor:
    name, params = step
    given = [_finished(bases, each) if isinstance(each, Tail) else each for each in params]
    if threads is not None:
        arithmetic.use_threads(threads)
    return tensor_op(name).apply(values, *given)


def _applied_together(
    bases: Sequence[torch.Tensor], images: Sequence[torch.Tensor], step: Step, threads: int | None
) -> Sequence[torch.Tensor] | torch.Tensor:
    """A step applied to several images, in one call."""
    if len(images) == 1:
        return [_applied(bases, images[0], step, threads)]
    return _applied(bases, torch.stack(list(images)), step, threads)


def on_device(whole: TailedPlans, made: Sequence[torch.Tensor], interleaved: bool) -> torch.Tensor:
    """Finish images that plans made, on their device.

    Images whose remaining elementwise steps are the same take these together.
    """
    bases = [made[plan][image] for plan, image in whole.places]
    with arithmetic.as_recorded(bases[0].device.type):
        images = [bases[tail.base] for tail in whole.tails]
        recorded = [list(_steps(tail.kernels)) for tail in whole.tails]
        for left in range(max(map(len, recorded)), 0, -1):
            now = [(n, *steps[-left], images[n]) for n, steps in enumerate(recorded) if len(steps) >= left]
            for step, threads, numbers in _batched(now):
                values = _applied_together(bases, [images[n] for n in numbers], step, threads)
                for n, image in zip(numbers, values, strict=True):
                    images[n] = image
        for image in images[1:]:
            _check_alike(image, images[0])
        order = torch.channels_last if interleaved else torch.contiguous_format
        return torch.stack(images).contiguous(memory_format=order)


def _batched(
    steps: Sequence[tuple[int, Step, int | None, torch.Tensor]],
) -> Iterator[tuple[Step, int | None, list[int]]]:
    """Group the steps of several images: each step with the numbers of the images that may take it in one call."""
    groups: dict[Any, list[int]] = {}
    for number, (name, params), threads, values in steps:
        op = tensor_op(name)
        if op.elementwise and not op.holds_tensors:
            groups.setdefault((name, params, values.shape, values.dtype), []).append(number)
        else:
            yield (name, params), threads, [number]
    for (name, params, _, _), numbers in groups.items():
        yield (name, params), None, numbers


def on_batch(batch: torch.Tensor, steps: Sequence[Step]) -> torch.Tensor:
    """Apply steps that were recorded on a batch."""
    with arithmetic.as_recorded(batch.device.type):
        for step, threads in _steps(steps):
            batch = _applied((), batch, step, threads)
    return batch
