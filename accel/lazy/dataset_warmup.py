"""Lazy images and tensors that a dataset holds when its workers are about to be started.

A list of samples that were transformed ahead, or a cache of opened images: with torchvision they have values by then,
and forked workers share these. So they are computed here, once, and not in every worker of every epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from torch.utils.data import Dataset

from accel.backend import backend_of
from accel.codec.header import Raw
from accel.errors import DecodeError
from accel.lazy.batch import compute_together
from accel.lazy.image import LazyImage
from accel.lazy.jpeg_file import LazyJpegFile
from accel.lazy.tensor_base import LazyTensorBase, is_lazy
from accel.recipes.recipe import Recipe
from accel.runtime import picture_memory, read
from accel.runtime.parallel import ParallelFor
from accel.system import log

_AT_ONCE = 256
_LOOKED_AT = 8
_DEPTH = 5


def compute(dataset: Any, threads: int | str) -> None:
    """Compute the lazy samples and the pixels of the lazy images that ``dataset`` holds, if their backend is a host's.

    They are looked for in its attributes, and in those of the datasets inside it: in lists, tuples and dicts, whose
    first few items show whether there are any. Nothing is computed if it would take more than half of the memory.
    Images that cannot be decoded stay lazy, and raise where they are used.
    """
    found = {id(value): value for value in _lazy(dataset, _DEPTH)}.values()
    samples = [value for value in found if isinstance(value, LazyTensorBase)]
    images = [value for value in found if isinstance(value, LazyImage)]
    size = sum(sample.nbytes for sample in samples) + sum(3 * image.width * image.height for image in images)
    if not found or size > picture_memory.memory() // 2:
        return
    log.note(log.INFO, "what the dataset holds is computed before its workers start: %d images", len(found))
    for start in range(0, len(samples), _AT_ONCE):
        some = samples[start : start + _AT_ONCE]
        compute_together(sample.lazy for sample in some)
        for sample in some:
            try:
                LazyTensorBase.materialize(sample)
            except DecodeError as error:
                log.note(log.DEBUG, "left as it is: %s", error)
    parallel = ParallelFor(threads, "accel-warmup")
    parallel.each(images, _keep)
    parallel.end_threads()


def _keep(image: LazyImage) -> None:
    recipe = image.recipe
    if recipe is not None and recipe.steps:
        image.keep_pixels()
    elif recipe is not None:
        read.picture(recipe.source, again=True)


def _is_kept(recipe: Recipe) -> bool:
    source = recipe.source
    has_pixels = isinstance(source.header, Raw) or source.picture is not None
    return bool(backend_of(source.selection).devices) or (has_pixels and not recipe.steps)


def _lazy(value: Any, depth: int) -> Iterator[Any]:
    """Yield the lazy tensors, and the lazy images that Pillow would have loaded, in a value."""
    if isinstance(value, (LazyTensorBase, LazyImage)):
        if _would_have_values(value):
            yield value
    elif depth:
        for part in _parts(value, depth):
            yield from _lazy(part, depth - 1)


def _parts(value: Any, depth: int) -> list[Any]:
    """The items of a container, if its first ones have lazy parts; the attributes of a dataset."""
    if isinstance(value, (list, tuple, dict)):
        items = value.values() if isinstance(value, dict) else value
        return list(items) if any(True for item in islice(items, _LOOKED_AT) for _ in _lazy(item, depth - 1)) else []
    is_dataset = isinstance(value, Dataset) or depth == _DEPTH
    return list(getattr(value, "__dict__", {}).values()) if is_dataset else []


def _would_have_values(value: LazyTensorBase | LazyImage) -> bool:
    """Whether a host backend would compute values that torchvision's tensor, or Pillow's image, had by now."""
    if isinstance(value, LazyTensorBase):
        return is_lazy(value) and not backend_of(value.lazy.recipes[0].source.selection).devices
    loaded = value._loaded or not isinstance(value, LazyJpegFile)
    return loaded and value.recipe is not None and not _is_kept(value.recipe)
