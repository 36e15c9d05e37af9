"""The input of contestants: a pipeline, in torchvision's classes and as numbers for those that cannot run these;
images; and settings.

A ``Draw`` is all that a pipeline does to an image's geometry. ``Pipeline.draw`` makes it from the random numbers that
torchvision's classes would use, in their order, so that contestants that cannot run these classes get the same crops
and flips, and their pixels can be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torchvision import transforms as T
from torchvision import tv_tensors
from torchvision.transforms import functional as F
from torchvision.transforms import v2

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CIFAR_MEAN, CIFAR_STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)

Size = tuple[int, int]
Box = tuple[int, int, int, int]


class Draw(NamedTuple):
    """The geometry of one image, in this order; boxes are (top, left, height, width), sizes (height, width)."""

    box: Box | None = None
    """the part of the (padded) source that is used; None for all of it"""
    size: Size | None = None
    """the size to resize to, bilinear and with antialiasing; None for no resize"""
    window: Box | None = None
    """the part of the result that is kept; None for all of it"""
    flip: bool = False


@dataclass(frozen=True)
class Pipeline:
    """A pipeline.

    Attributes:
        steps: returns all steps but the conversion to floats, in the classes of a module, ``transforms`` or its ``v2``.
        draw: returns an image's Draw, from its (height, width) and torch's global generator.
        mean, std: of the normalisation; None if uint8 pixels come out.
        pad: black pixels added on every side at first.
        ragged: whether the images of a batch differ in size, so that it is a list.
        boxes: whether every image has boxes, which are transformed with it.
        source: encoded files, or pixels in memory.
    """

    name: str
    steps: Callable[[Any], list[Any]]
    draw: Callable[[Size], Draw]
    mean: Sequence[float] | None = MEAN
    std: Sequence[float] | None = STD
    pad: int = 0
    ragged: bool = False
    boxes: bool = False
    source: Literal["files", "pixels"] = "files"

    def v1(self) -> Callable[[Any], Any]:
        """The pipeline in torchvision's v1 classes, for a PIL image."""
        if self.boxes:
            return self.v2()  # v1 does not know boxes
        last = [T.PILToTensor()] if self.mean is None else [T.ToTensor(), T.Normalize(self.mean, self.std)]
        return T.Compose([*self.steps(T), *last])  # type: ignore[no-any-return]

    def v2(self) -> Callable[[Any], Any]:
        """The ``transforms.v2`` pipeline, for a uint8 [3, H, W] tensor; with boxes (image, boxes), also a PIL image."""
        floats = [] if self.mean is None else [v2.ToDtype(torch.float32, scale=True), v2.Normalize(self.mean, self.std)]
        if not self.boxes:
            return v2.Compose([*self.steps(v2), *floats]) if floats else v2.Identity()  # type: ignore[no-any-return]
        transform = v2.Compose([*self.steps(v2), v2.ToImage(), *floats, v2.ToPureTensor()])

        def with_boxes(image: Any) -> Any:
            size = tuple(F.get_dimensions(image)[1:])
            return transform(image, tv_tensors.BoundingBoxes(boxes_of(size), format="XYXY", canvas_size=size))

        return with_boxes


def _train(*colour: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
    return lambda of: [of.RandomResizedCrop(224), of.RandomHorizontalFlip(), *(each(of) for each in colour)]


def _draw_train(size: Size) -> Draw:
    image = torch.empty(1, *size, device="meta")
    box = T.RandomResizedCrop.get_params(image, [0.08, 1.0], [3 / 4, 4 / 3])
    return Draw(box=box, size=(224, 224), flip=_flip())


def _draw_eval(size: Size) -> Draw:
    height, width = _shortest(size, 256)
    window = (int(round((height - 224) / 2.0)), int(round((width - 224) / 2.0)), 224, 224)
    return Draw(size=(height, width), window=window)


def boxes_of(size: Size) -> torch.Tensor:
    """Eight boxes for an image of that (height, width): left, top, right, bottom; [8, 4] float32."""
    unit = torch.rand(8, 4, generator=torch.Generator().manual_seed(1))
    first, second = unit[:, :2] * 0.5, 0.5 + unit[:, 2:] * 0.5
    height, width = size
    return torch.cat([first, second], 1) * torch.tensor([width, height, width, height])


def boxes_after(size: Size, draw: Draw) -> torch.Tensor:
    """An image's boxes after it was resized and flipped."""
    boxes = boxes_of(size)
    if draw.size is not None:
        vertical, horizontal = draw.size[0] / size[0], draw.size[1] / size[1]
        boxes = boxes * torch.tensor([horizontal, vertical, horizontal, vertical])
        size = draw.size
    if draw.flip:
        boxes = torch.stack([size[1] - boxes[:, 2], boxes[:, 1], size[1] - boxes[:, 0], boxes[:, 3]], 1)
    return boxes


def _shortest(size: Size, short: int, longest: int | None = None) -> Size:
    height, width = F._compute_resized_output_size(size, [short], longest)
    return height, width


def _flip() -> bool:
    return bool(torch.rand(1) < 0.5)


_LINEAR = F.InterpolationMode.BILINEAR
_COLOURS: dict[str, Callable[[Any], Any]] = {
    "jitter": lambda of: of.ColorJitter(0.4, 0.4, 0.4, 0.1),
    "randaugment": lambda of: of.RandAugment(interpolation=_LINEAR),
    "trivialaugment": lambda of: of.TrivialAugmentWide(interpolation=_LINEAR),
}
_ROWS = (
    Pipeline("train", _train(), _draw_train),
    Pipeline("png", _train(), _draw_train),
    Pipeline("eval", lambda of: [of.Resize(256), of.CenterCrop(224)], _draw_eval),
    Pipeline("decode", lambda of: [], lambda size: Draw(), None, None, ragged=True),
    Pipeline(
        "cifar",
        lambda of: [of.RandomCrop(32, padding=4), of.RandomHorizontalFlip()],
        lambda size: Draw(T.RandomCrop.get_params(torch.empty(1, 40, 40, device="meta"), (32, 32)), flip=_flip()),
        *(CIFAR_MEAN, CIFAR_STD),
        pad=4,
        source="pixels",
    ),
    Pipeline(
        "detection",
        lambda of: [of.Resize(480, max_size=800), of.RandomHorizontalFlip()],
        lambda size: Draw(size=_shortest(size, 480, 800), flip=_flip()),
        ragged=True,
        boxes=True,
    ),
    *(Pipeline(name, _train(each), _draw_train) for name, each in _COLOURS.items()),
)

PIPELINES: dict[str, Pipeline] = {row.name: row for row in _ROWS}
"""The pipelines by name."""


@dataclass(frozen=True)
class Images:
    """The images of an epoch: files, with or without their contents in memory, or pixels [H, W, 3] uint8."""

    files: Sequence[str] = ()
    pixels: Sequence[npt.NDArray[np.uint8]] = ()
    contents: Sequence[bytes] = ()

    def __len__(self) -> int:
        return len(self.files) or len(self.pixels)

    def __getitem__(self, index: Any) -> Any:
        return (self.contents or self.files or self.pixels)[index]

    def name(self, index: int) -> str:
        """An image's name in messages; a file's without its folder."""
        return Path(self.files[index]).name if self.files else f"image {index}"


@dataclass(frozen=True)
class Job:
    """A task with its settings.

    Attributes:
        order: the indices of the images in an epoch, which may repeat.
        threads: the cores that this process may use; a contestant has as many threads of its own.
        workers: the number of DataLoader's worker processes, with one thread each.
    """

    pipeline: Pipeline
    images: Images
    order: Sequence[int]
    batch_size: int
    threads: int = 1
    workers: int = 0
    _draws: dict[int, list[Draw]] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def sizes(self) -> list[Size]:
        """(height, width) of every image, from the files' headers."""
        if self.images.pixels:
            return [(pixels.shape[0], pixels.shape[1]) for pixels in self.images.pixels]
        found = []
        for file in self.images.files:
            with Image.open(file) as image:
                found.append((image.height, image.width))
        return found

    def draws(self, seed: int) -> list[Draw]:
        """torchvision's draws for an epoch's images, in their order, after ``torch.manual_seed(seed)``."""
        if seed not in self._draws:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                self._draws[seed] = [self.pipeline.draw(self.sizes[index]) for index in self.order]
        return self._draws[seed]

    def batches(self, seed: int) -> list[list[tuple[Any, Draw]]]:
        """The epoch as batches of (file or pixels, draw)."""
        items = [(self.images[index], draw) for index, draw in zip(self.order, self.draws(seed), strict=True)]
        return [items[first : first + self.batch_size] for first in range(0, len(items), self.batch_size)]

    def names(self, number: int) -> list[str]:
        """The names of the images in the epoch's batch with this number."""
        first = number * self.batch_size
        return [self.images.name(index) for index in self.order[first : first + self.batch_size]]
