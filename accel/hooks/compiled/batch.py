"""A batch of one of torchvision's datasets, made in one go if it cannot be description from one made image by image.

Files are read, and everything that may be refused is checked, before the first number is drawn: a refused batch goes
the usual way from the beginning.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from contextlib import suppress
from operator import index as whole_number
from typing import Any, NamedTuple

import torch
import torchvision
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset, default_collate
from torch.utils.data._utils import collate
from torchvision import transforms as v1
from torchvision.datasets import folder
from torchvision.transforms import v2

from accel.hooks import tv_files
from accel.hooks.compiled import compositions, program, stock
from accel.hooks.compiled.datasets import arrays
from accel.hooks.compiled.datasets.targets import transformed
from accel.hooks.compiled.program import Program, Which
from accel.hooks.compiled.random_numbers import tape
from accel.hooks.compiled.stock import Refused
from accel.hooks.compiled.transforms import known
from accel.hooks.compiled.transforms.draws import Size
from accel.hooks.compiled.transforms.fixed import RGB, ImageKind
from accel.hooks.tv_tensors import LazyTVImage, keeps_class
from accel.lazy import explanation
from accel.lazy.tensor import LazyTensor
from accel.ops.memory_layout import Layout
from accel.processes import switch
from accel.recipes.options import Selection
from accel.recipes.recipe import Recipe, Source
from accel.recipes.rows import Numbers, Rows
from accel.recipes.sources import COLOURED, Sources, table_of


class RecordedBatch(NamedTuple):
    """A batch that was drawn: the kind of its images, their recipes and resulting sizes, and the samples' targets."""

    kind: ImageKind
    recipes: Rows | tuple[Recipe, ...]
    sizes: Sequence[Size]
    targets: Sequence[Any]

    def samples(self) -> list[tuple[Any, Any]]:
        """The samples that the dataset would return."""
        kind = self.kind
        assert kind.cls is not None
        make, channels, dtype, layout = kind.cls.of, kind.channels, kind.dtype, Layout(bool(kind.interleaved))
        return [
            (make((recipe,), (), (channels, *size), dtype, layout), target)
            for recipe, size, target in zip(self.recipes, self.sizes, self.targets, strict=True)
        ]

    def stacked(self) -> list[Any] | None:
        """The batch that ``default_collate`` would make of the samples; None if it must be called."""
        kind, size = self.kind, self.sizes[0]
        if self.sizes.count(size) != len(self.sizes) or tuple(collate.default_collate_fn_map.items()) != _COLLATED:
            return None
        if kind.cls is LazyTVImage and keeps_class():
            return None
        images = LazyTensor.of(self.recipes, (len(self.sizes),), (kind.channels, *size), kind.dtype)
        return [images, _labels(self.targets)]


def _labels(targets: Sequence[Any]) -> Any:
    """The labels that ``default_collate`` makes of targets."""
    if {int}.issuperset(map(type, targets)):
        with suppress(OverflowError):
            labels = torch.empty(len(targets), dtype=torch.int64, device="cpu")
            labels.numpy()[:] = targets  # torch takes several times as long for a list
            return labels
    return default_collate(tuple(targets))  # type: ignore[arg-type]  # strings come back as a tuple


FEW = 4
"""The fewest images for which the checks of a batch take less time than is saved."""

METHODS = ("__getitem__", "__getitems__", "__getattribute__", "__getattr__")
"""Methods of a dataset that must be the usual ones, whatever its class."""

_COLLATED = tuple(collate.default_collate_fn_map.items())


def fetched(dataset: Any, indices: Any, stacks: bool) -> RecordedBatch | Refused | None:
    """Make a batch of the samples with these indices; why not, or None, if they must be made one by one.

    Args:
        stacks: whether the collate function is ``default_collate``.
    """
    if switch.active() is None or type(indices) is not list or not indices:
        return None
    try:
        return _drawn(dataset, indices, stacks)
    except Refused as refused:
        return refused.with_traceback(None)
    except Exception as error:  # torchvision will raise it where it belongs
        return Refused(f"it raises {type(error).__name__}")


class OwnSamples(Refused):
    """A dataset makes its samples itself, as most do: how they are recorded is up to its transform."""


def prepare(dataset: Any) -> bool:
    """Compile and try a dataset's pipeline before processes are started that will use it; whether it has one."""
    with suppress(Exception):
        images, transform = _samples(*_within(dataset, [0]))
        if tape.agrees():
            compositions.program_of(transform, images.begin)
            return True
    return False


def describe(x: Any) -> str | None:
    """Say whether a dataset, its loader or a transform is compiled; None for anything else."""
    dataset = x.dataset if isinstance(x, DataLoader) else x
    name, begin = type(dataset).__name__, RGB
    try:
        if isinstance(dataset, Dataset) and hasattr(dataset, "__getitem__"):
            if isinstance(dataset, Sized) and not len(dataset):
                return f"{name}: it has no images"
            images, transform = _samples(*_within(dataset, [0]))
            begin, description = images.begin, "batches are drawn in one go, for its pipeline is compiled"
        elif type(dataset) in _PIPELINES or type(dataset) in known.TRANSFORMS:
            transform, description = dataset, "compiled"
        else:
            return None
        own = program.compiled(transform, begin)
        own.prepare(transform)
        if isinstance(x, DataLoader):
            _loads(x, own.kind)
    except Exception as error:
        reason = str(error) if isinstance(error, Refused) else f"it raises {type(error).__name__}"
        return f"{name}: {'images are made one by one' if isinstance(dataset, Dataset) else 'not compiled'}: {reason}"
    return f"{name}: {description}"


def _loads(loader: DataLoader[Any], kind: ImageKind) -> None:
    if loader.batch_sampler is None:
        raise Refused("the loader makes no batches")
    if loader.batch_size is not None and loader.batch_size < FEW:
        raise Refused(_OF_FEW)
    if kind.interleaved is None and loader.collate_fn is not default_collate:
        raise Refused(_IN_MEMORY)


_PIPELINES = (v1.Compose, v2.Compose, nn.Sequential)
explanation.also(describe)


def _drawn(dataset: Any, indices: list[Any], stacks: bool) -> RecordedBatch:
    if len(indices) < FEW:
        raise Refused(_OF_FEW)
    images, own = _found(dataset, indices)
    if own.kind.interleaved is None and not stacks:
        raise Refused(_IN_MEMORY)
    sources, targets = images.opened(switch.current())
    table = sources.table() if isinstance(sources, Sources) else table_of([source.header for source in sources])
    grey = _grey(table) if isinstance(images, FileBatch) else None
    instead: tape.Instead | None = None
    with tape.in_turn:
        while True:
            try:
                drawn = own.run(table, grey, instead)
            except Exception:
                if isinstance(images, FileBatch):
                    tv_files.ahead.keep(images.paths, sources)
                raise
            sizes = drawn.sizes
            if own.kind.interleaved is None and sizes.count(sizes[0]) < len(sizes):
                raise Refused(_IN_MEMORY)
            made = RecordedBatch(own.kind, drawn.recipes(sources), sizes, targets)
            instead = drawn.tape.commit()
            if instead is None:
                return made


_OF_FEW = "a batch of so few would take longer"
_IN_MEMORY = "the collate function may look at how tensors lie in memory"


class FileBatch(NamedTuple):
    """A batch's images as files, which are converted to RGB when they are read."""

    paths: Sequence[Any]
    targets: Sequence[Any]
    begin: ImageKind = RGB

    def opened(self, selection: Selection) -> tuple[Sequence[Source], Sequence[Any]]:
        """The sources and the targets.

        Raises:
            Refused: a file is left to torchvision.
        """
        opened = tv_files.opened_together(self.paths, selection)
        if isinstance(opened, Sources):
            return opened, self.targets
        sources = [source for source in opened if source is not None]
        if len(sources) < len(opened):
            tv_files.ahead.keep(self.paths, opened)
            raise Refused("one of the files is not a JPEG that accel can decode")
        return sources, self.targets


def _grey(table: Numbers) -> Which | None:
    """Which files are grey, bool [files]; None: none is."""
    components = table[:, -3]
    return components != COLOURED if 1 in components.tobytes() else None  # all others have 3


def _found(dataset: Any, indices: Sequence[Any]) -> tuple[FileBatch | arrays.ArrayBatch, Program]:
    """The images of the samples with these indices, and the program of their transform.

    Raises:
        Refused: torchvision may do something else with them.
    """
    images, transform = _samples(*_within(dataset, indices))
    if not tape.agrees():
        raise Refused("torch draws many numbers otherwise than one by one on this machine")
    return images, compositions.program_of(transform, images.begin)


def _within(dataset: Any, indices: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
    """The dataset within any ``Subset``, and the samples' indices in it; raises ``Refused`` as ``_found`` does."""
    while type(dataset) is Subset:
        own = vars(dataset)
        if not stock.unchanged(Subset, stock.methods(Subset, METHODS)) or not own.keys().isdisjoint(METHODS):
            raise Refused("Subset has other methods than usual")
        try:
            indices = [own["indices"][each] for each in indices]
        except Exception:
            raise Refused("an index is out of range") from None
        dataset = own["dataset"]
    return dataset, indices


def _samples(dataset: Any, indices: Sequence[Any]) -> tuple[FileBatch | arrays.ArrayBatch, Any]:
    """The images of samples of a dataset that is no ``Subset``, and the transform; raises as ``_found`` does."""
    cls, own = type(dataset), getattr(dataset, "__dict__", {})
    getitem = getattr(cls, "__getitem__", None)
    attributes = _ATTRIBUTES.get(getitem)
    if attributes is None:
        raise OwnSamples(f"{cls.__name__} has a __getitem__ of its own, which is normal")
    if not stock.unchanged(cls, stock.methods(cls, METHODS)) or not own.keys().isdisjoint(METHODS):
        raise Refused(f"{cls.__name__} has other methods than usual")
    if not own.keys() >= attributes or any(hasattr(cls, name) for name in attributes):
        raise Refused(f"{cls.__name__} has other attributes than usual")
    storage = arrays.STORAGES.get(getitem)
    if storage is not None:
        found = arrays.found(getitem, storage, own, [_place(each) for each in indices])
        return found._replace(targets=transformed(own["target_transform"], found.targets)), own["transform"]
    if not stock.unchanged(folder, (folder.default_loader, folder.pil_loader)):
        raise Refused("torchvision's loaders were replaced")
    if not tv_files.opens():
        raise Refused("what opens files was replaced")
    if own["loader"] not in (folder.default_loader, folder.pil_loader) or torchvision.get_image_backend() != "PIL":
        raise Refused("the loader is not torchvision's")
    return _files(own, indices), own["transform"]


def _files(own: dict[str, Any], indices: Sequence[Any]) -> FileBatch:
    """The paths and targets of samples; ``own``: the dataset's attributes. Raises ``Refused`` as ``_found`` does."""
    samples = own["samples"]
    try:
        chosen = [samples[each] for each in map(whole_number, indices)] if type(samples) is list else []
        paths, targets = zip(*chosen, strict=True)
    except Exception:
        raise Refused("an index is out of range, or a sample is unusual") from None
    return FileBatch(paths, transformed(own["target_transform"], targets))


def _place(index: Any) -> int:
    if type(index) is bool:  # NumPy and torch make another axis of it
        raise Refused("an index is out of range, or a sample is unusual")
    try:
        return whole_number(index)
    except TypeError:
        raise Refused("an index is out of range, or a sample is unusual") from None


_ATTRIBUTES = {
    folder.DatasetFolder.__getitem__: frozenset({"samples", "loader", "transform", "target_transform"}),
    **{
        getitem: frozenset({storage.data, storage.targets, "transform", "target_transform"})
        for getitem, storage in arrays.STORAGES.items()
    },
}
"""The attributes of the known dataset classes, by the class's ``__getitem__``."""
