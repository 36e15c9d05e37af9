"""A batch of one of torchvision's datasets, made in one go where nothing can tell it from one made image by image.

Files are read, and whatever might be refused is looked at, before the first number is drawn: what is refused goes its
usual way from the beginning.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index as whole_number
from typing import Any, NamedTuple

import torchvision
from torch.utils.data import Subset, default_collate
from torch.utils.data._utils import collate
from torchvision.datasets import folder

from accel import switch
from accel.hooks import tv_files
from accel.hooks.compiled import program, stock, tape
from accel.hooks.compiled.draws import Size
from accel.hooks.compiled.fixed import Kind
from accel.hooks.compiled.stock import Refused
from accel.hooks.tv_tensors import LazyTVImage, keeps_class
from accel.lazy.tensor import LazyTensor
from accel.recipe import Recipe, Source
from accel.rows import Rows
from accel.system import counters, measuring


class Made(NamedTuple):
    """A batch that was drawn: the recipes, the sizes that the images have, and the samples' targets."""

    kind: Kind
    recipes: Rows | tuple[Recipe, ...]
    sizes: list[Size]
    targets: list[Any]

    def samples(self) -> list[tuple[Any, Any]]:
        """The samples that the dataset gives."""
        kind = self.kind
        assert kind.cls is not None
        make, channels, dtype, interleaved = kind.cls.of, kind.channels, kind.dtype, bool(kind.interleaved)
        return [
            (make((recipe,), (), (channels, *size), dtype, interleaved), target)
            for recipe, size, target in zip(self.recipes, self.sizes, self.targets, strict=True)
        ]

    def stacked(self) -> list[Any] | None:
        """What ``default_collate`` makes of the samples; None where it is to be asked."""
        kind, size = self.kind, self.sizes[0]
        if self.sizes.count(size) != len(self.sizes) or tuple(collate.default_collate_fn_map.items()) != _COLLATED:
            return None
        if kind.cls is LazyTVImage and keeps_class():
            return None
        images = LazyTensor.of(self.recipes, (len(self.sizes),), (kind.channels, *size), kind.dtype)
        return [images, default_collate(self.targets)]


_COLLATED = tuple(collate.default_collate_fn_map.items())


def fetched(dataset: Any, indices: Any, stacks: bool) -> Made | None:
    """Make a batch of the samples with these indices; None where they are to be made one by one.

    Args:
        stacks: whether ``default_collate`` gets the samples.
    """
    if switch.active() is None or type(indices) is not list or not indices:
        return None
    try:
        made = _drawn(dataset, indices, stacks)
        reason = None
    except Refused as refused:
        reason = str(refused)
    except Exception as error:  # torchvision will raise it where it belongs
        reason = f"it raises {type(error).__name__}"
    counters.way("drawn together" if reason is None else f"one by one: {reason}", len(indices))
    return made if reason is None else None


def _drawn(dataset: Any, indices: list[Any], stacks: bool) -> Made:
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
    if not tape.agrees():
        raise Refused("torch draws many numbers otherwise than one by one on this machine")
    drawn = own.run(
        [(header.height, header.width) for header in headers], [header.mode != "RGB" for header in headers], transform
    )
    sizes = drawn.sizes
    if own.kind.interleaved is None and not (stacks and sizes.count(sizes[0]) == len(sizes)):
        raise Refused("the collate function may look at how tensors lie in memory")
    made = Made(own.kind, drawn.recipes(sources), sizes, targets)
    drawn.tape.commit()
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
