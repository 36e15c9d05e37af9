"""A batch of one of torchvision's datasets, made in one go where nothing can tell it from one made image by image.

Files are read, and whatever might be refused is looked at, before the first number is drawn: what is refused goes its
usual way from the beginning. The first batch of a program goes that way too, and is compared with what the program
would have made of it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from operator import index as whole_number
from typing import Any, NamedTuple

import numpy as np
import torch
import torchvision
from torch.utils.data import Subset, default_collate
from torch.utils.data._utils import collate
from torchvision.datasets import folder

from accel import switch
from accel.hooks import tv_files
from accel.hooks.compiled import program, stock, tape
from accel.hooks.compiled.draws import Size
from accel.hooks.compiled.program import Program
from accel.hooks.compiled.stock import Refused
from accel.hooks.tv_tensors import LazyTVImage, keeps_class
from accel.lazy.tensor import LazyTensor
from accel.lazy.tensor_base import LazyTensorBase, is_lazy
from accel.recipe import Recipe, Source
from accel.rows import Rows
from accel.system import counters, measuring

Check = Callable[[Sequence[Any]], None]


class Made(NamedTuple):
    """A batch that was drawn: the recipes, the sizes that the images have, and the samples' targets."""

    program: Program
    recipes: Rows | tuple[Recipe, ...]
    sizes: list[Size]
    targets: list[Any]

    def samples(self) -> list[tuple[Any, Any]]:
        """The samples that the dataset gives."""
        kind = self.program.kind
        assert kind is not None
        assert kind.cls is not None
        make, channels, dtype, interleaved = kind.cls.of, kind.channels, kind.dtype, bool(kind.interleaved)
        return [
            (make((recipe,), (), (channels, *size), dtype, interleaved), target)
            for recipe, size, target in zip(self.recipes, self.sizes, self.targets, strict=True)
        ]

    def stacked(self) -> list[Any] | None:
        """What ``default_collate`` makes of the samples; None where it is to be asked."""
        kind, size = self.program.kind, self.sizes[0]
        assert kind is not None
        if self.sizes.count(size) != len(self.sizes) or tuple(collate.default_collate_fn_map.items()) != _COLLATED:
            return None
        if kind.cls is LazyTVImage and keeps_class():
            return None
        images = LazyTensor.of(self.recipes, (len(self.sizes),), (kind.channels, *size), kind.dtype)
        return [images, default_collate(tuple(self.targets))]


_COLLATED = tuple(collate.default_collate_fn_map.items())


def fetched(dataset: Any, indices: Any, stacks: bool) -> Made | Check | None:
    """Make a batch of the samples with these indices.

    Args:
        stacks: whether ``default_collate`` gets the samples.

    Returns:
        The batch, drawn; or None, or what is to be called with the samples, where these are to be made one by one.
    """
    if switch.active() is None or type(indices) is not list or not indices:
        return None
    try:
        return _drawn(dataset, indices, stacks)
    except Refused as refused:
        counters.way(f"one by one: {refused}", len(indices))
        return None


def _drawn(dataset: Any, indices: list[Any], stacks: bool) -> Made | Check:
    if measuring.measuring():
        raise Refused("what takes how long is being measured")
    paths, targets, transform = _samples(dataset, indices)
    own = program.compiled(transform)
    selection = switch.current()
    sources: list[Source] = []
    for path in paths:
        source = tv_files.opened(path, selection)
        if source is None:
            raise Refused("a file is none that accel claims")
        sources.append(source)
    headers = [source.header for source in sources]
    sizes = [(header.height, header.width) for header in headers]
    if not tape.agrees():
        raise Refused("torch draws many numbers otherwise than one by one on this machine")
    state = torch.default_generator.get_state()
    runs, sizes, used = own.run(sizes, [header.mode != "RGB" for header in headers], state)
    assert own.kind is not None
    if own.kind.interleaved is None and not (stacks and sizes.count(sizes[0]) == len(sizes)):
        raise Refused("the collate function may look at how tensors lie in memory")
    made = Made(own, program.recipes(sources, runs), sizes, targets)
    if own.trusted is None:
        counters.way("one by one: the first of a pipeline, to compare with", len(indices))
        others = random.getstate(), _of_numpy()
        return lambda samples: _compare(made, used.after(), others, samples)
    used.commit()
    counters.way("drawn together", len(indices))
    return made


def _samples(dataset: Any, indices: Sequence[Any]) -> tuple[list[Any], list[Any], Any]:
    """The paths and targets of samples, and the transform."""
    while type(dataset) is Subset:
        own = vars(dataset)
        if not stock.unchanged(Subset, stock.methods(Subset, _OF_DATASETS)) or not own.keys().isdisjoint(_OF_DATASETS):
            raise Refused("Subset has other methods than usual")
        try:
            indices = [own["indices"][each] for each in indices]
        except Exception:
            raise Refused("an index is out of range") from None
        dataset = own["dataset"]
    cls, own = type(dataset), getattr(dataset, "__dict__", {})
    if getattr(cls, "__getitem__", None) is not folder.DatasetFolder.__getitem__:
        raise Refused(f"{cls.__name__} has a __getitem__ of its own")
    if not stock.unchanged(cls, stock.methods(cls, _OF_DATASETS)) or not own.keys().isdisjoint(_OF_DATASETS):
        raise Refused(f"{cls.__name__} has other methods than usual")
    if not own.keys() >= _ATTRIBUTES or any(hasattr(cls, name) for name in _ATTRIBUTES):
        raise Refused(f"{cls.__name__} has other attributes than usual")
    if not stock.unchanged(folder, (folder.default_loader, folder.pil_loader)):
        raise Refused("torchvision's loaders were replaced")
    if own["loader"] not in (folder.default_loader, folder.pil_loader) or torchvision.get_image_backend() != "PIL":
        raise Refused("the loader is not torchvision's")
    if own["target_transform"] is not None:
        raise Refused("there is a target_transform")
    samples = own["samples"]
    try:
        found = [samples[whole_number(each)] for each in indices] if type(samples) is list else []
        pairs = [(path, target) for path, target in found]
    except Exception:
        raise Refused("an index is out of range, or a sample is unusual") from None
    return [path for path, _ in pairs], [target for _, target in pairs], own["transform"]


_OF_DATASETS = ("__getitem__", "__getitems__", "__getattribute__", "__getattr__")
_ATTRIBUTES = frozenset({"samples", "loader", "transform", "target_transform"})


# -- the first batch ----------------------------------------------------------------------------------------


def _of_numpy() -> tuple[bytes, int]:
    _, words, place, *_ = np.random.get_state()  # noqa: NPY002
    return words.tobytes(), place  # type: ignore[union-attr]


def _compare(made: Made, state: torch.Tensor, others: Any, samples: Sequence[Any]) -> None:
    """Compare what a program made with the samples that the dataset gave."""
    same = len(samples) == len(made.sizes) and torch.equal(torch.default_generator.get_state(), state)
    same = same and repr(others) == repr((random.getstate(), _of_numpy()))
    made.program.trusted = same and all(
        _is_sample(made, *each) for each in zip(samples, made.recipes, made.sizes, made.targets, strict=True)
    )
    if not made.program.trusted:
        counters.fallback("a pipeline is not compiled: it did not record what torchvision's transforms do")


def _is_sample(made: Made, sample: Any, recipe: Recipe, size: Size, target: Any) -> bool:
    kind = made.program.kind
    assert kind is not None
    if type(sample) is not tuple or len(sample) != 2 or sample[1] is not target or not is_lazy(sample[0]):
        return False
    image: LazyTensorBase = sample[0]
    lazy = image.lazy
    in_memory = kind.interleaved is None or (lazy.interleaved, lazy.view) == (kind.interleaved, 0)
    alike = (type(image), lazy.lead, lazy.shape, lazy.dtype) == (kind.cls, (), (kind.channels, *size), kind.dtype)
    return in_memory and alike and not lazy.after and _equal(lazy.recipes[0].steps, recipe.steps)


def _equal(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    return bool(one == other)
