"""Datasets and loaders at random: torchvision's, users' own, and what wraps them."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch.utils._pytree import tree_map
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
    default_collate,
)
from torchvision import datasets
from torchvision import transforms as T
from torchvision.datasets import ImageFolder
from torchvision.io import ImageReadMode, decode_image
from torchvision.transforms import functional as F
from torchvision.transforms import v2

from tests.hooks.compiled.composer import Composer
from tests.hooks.compiled.kinds import KINDS as ARRAYS
from tests.hooks.compiled.own import DRAWS
from tests.hooks.compiled.support import with_states
from tests.support import helpers

COUNT = 9


def write(root: Path, *, odd: bool = False) -> Path:
    """Small pictures of two classes; ``odd``: some of which are of kinds that are left to Pillow."""
    sizes = [(40, 52), (61, 33), (28, 28), (24, 70), (50, 50), (33, 41), (64, 48), (35, 30), (44, 29)]
    for number, (width, height) in enumerate(sizes):
        folder = root / ("cat" if number < 4 else "dog")
        folder.mkdir(parents=True, exist_ok=True)
        if odd and number == 6:
            helpers.picture(width, height).save(folder / f"{number}.png")
            continue
        mode = {2: "L", 5: "CMYK" if odd else "RGB"}.get(number, "RGB")
        data = helpers.jpeg(width, height, mode, number, progressive=number == 3, subsampling=number % 3)
        (folder / f"{number}.jpg").write_bytes(data)
    return root


def label_by_chance(target: int) -> float:
    return target + random.random() + float(torch.rand(())) + np.random.rand()  # noqa: NPY002


class OwnFiles(Dataset[Any]):
    """A user's own. ``way``: how it hands images to its transform, and what it returns."""

    def __init__(self, paths: list[str], transform: Any, way: str) -> None:
        self.paths, self.transform, self.way = paths, transform, way
        self.kept = [helpers.picture(30 + 3 * place, 44 - place) for place in range(len(paths))]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        way, path = self.way, self.paths[index]
        if way == "kept":
            return self.transform(self.kept[index]), index
        if way == "array":
            return self.transform(Image.fromarray(np.asarray(self.kept[index]))), index
        if way == "tensor":
            return self.transform(decode_image(path, ImageReadMode.RGB)), index
        image = helpers.open_rgb(path) if index % 2 else helpers.open_file_rgb(path)
        if way == "functional":
            top, left, height, width = T.RandomResizedCrop.get_params(image, [0.2, 1.0], [0.7, 1.4])
            image = F.resized_crop(image, top, left, height, width, [30, 28])
            image = F.vflip(image) if random.random() < 0.5 else image
            return self.transform(image), np.random.randint(5)  # noqa: NPY002
        if way == "two views":
            return self.transform(image), self.transform(image)
        if way == "labels" and isinstance(self.transform, v2.Compose):
            return self.transform(image, index)
        if way == "dictionary":
            return {"image": self.transform(image), "index": index, "drawn": DRAWS["torch's normal"]()}
        return self.transform(image), index


class OwnFolder(ImageFolder):
    """A folder whose samples are made otherwise."""

    def __getitem__(self, index: int) -> Any:
        image, target = super().__getitem__((index + random.randrange(2)) % len(self))
        return image, target + float(torch.rand(()))


class Streamed(IterableDataset[Any]):
    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __iter__(self) -> Iterator[Any]:
        for place in range(len(self.dataset)):
            yield self.dataset[(place * 5) % len(self.dataset)]


WAYS = ("plain", "kept", "array", "functional", "two views", "labels", "dictionary", "tensor")


def dataset(root: Path, rng: random.Random, seed: int) -> tuple[Any, Any]:
    """A dataset, and the transform in it."""
    user, way = rng.random() < 0.35, rng.choice(WAYS)
    kind = rng.choice(6 * ["folder"] + 4 * ["own"] + 2 * ["array"] + ["fake", "subset", "joined", "derived", "stream"])
    transform = Composer(seed, user=user, tensors=kind == "own" and way == "tensor").pipeline()
    target_transform = rng.choice((None, None, int, str, *([label_by_chance] if user else [])))
    paths = sorted(str(path) for path in root.rglob("*.*g"))

    def folder(cls: type[ImageFolder] = ImageFolder) -> Any:
        return cls(str(root), transform, target_transform)

    def fake() -> Any:
        shape = rng.choice(((3, 32, 30), (3, 40, 33), (1, 36, 36)))
        return datasets.FakeData(COUNT, shape, 5, transform, target_transform, rng.randint(0, 9))

    made: dict[str, Callable[[], Any]] = {
        "folder": folder,
        "own": lambda: OwnFiles(paths, transform, way),
        "array": lambda: Subset(ARRAYS[rng.choice(list(ARRAYS))](transform), range(3, 3 + COUNT)),
        "fake": fake,
        "subset": lambda: Subset(Subset(folder(), [8, 1, 3, 3, 5, 0, 7]), [0, -1, 2, 2, 6, 4]),
        "joined": lambda: ConcatDataset([folder(), Subset(folder(OwnFolder), [1, 2]), OwnFiles(paths, transform, "")]),
        "derived": lambda: folder(OwnFolder),
        "stream": lambda: Streamed(folder()),
    }
    return made[kind](), transform


def _apart(samples: list[Any]) -> Any:
    """The samples as they are, but for how views lie in memory, which lazy tensors do not tell."""

    def plain(value: Any) -> Any:
        return (torch.clone(value) + 0).contiguous() if isinstance(value, torch.Tensor) else value

    return tree_map(plain, samples)


def _stacked(samples: list[Any]) -> Any:
    return torch.stack([each[0] for each in samples]), _apart([each[1:] for each in samples])


class Mixing:
    """A collate function that mixes, as torchvision's references do."""

    def __init__(self, mix: Any) -> None:
        self.mix = mix

    def __call__(self, samples: list[Any]) -> Any:
        return self.mix(*default_collate(samples))


def collating(rng: random.Random) -> Callable[[list[Any]], Any]:
    """A collate function: mostly torch's own."""
    mixing = Mixing(rng.choice((v2.CutMix, v2.MixUp))(num_classes=20))
    return rng.choice((default_collate, default_collate, default_collate, with_states, _stacked, _apart, mixing))


def loader(dataset: Any, rng: random.Random, **options: Any) -> Callable[[], DataLoader[Any]]:
    """What makes a loader of it."""
    streams = isinstance(dataset, IterableDataset)
    size, seed, last, own = rng.choice((1, 3, 4, 5, 8)), rng.randrange(99), rng.random() < 0.2, rng.random() < 0.2
    collate = collating(rng)
    order = "none" if streams else rng.choice(("shuffle", "shuffle", "none", "batches", "some", "weighted"))

    def make() -> DataLoader[Any]:
        given = {"collate_fn": collate, **options}
        if own:
            given["generator"] = torch.Generator().manual_seed(seed)
        if order == "batches":
            return DataLoader(dataset, batch_sampler=BatchSampler(RandomSampler(dataset), size, last), **given)
        given |= {"batch_size": size, "drop_last": last}
        if order == "some":
            given["sampler"] = SubsetRandomSampler([0, 3, len(dataset) - 1, 2, 1])
        if order == "weighted":
            given["sampler"] = WeightedRandomSampler(torch.rand(len(dataset)).tolist(), len(dataset))
        return DataLoader(dataset, shuffle=order == "shuffle" or None, **given)

    return make


class Sample(NamedTuple):
    """A transform in a dataset, and a function that runs epochs of it.

    That gives the batches, what was drawn between them from all generators, a number for their states after each, and
    the kind of error that it ends in.
    """

    transform: Any
    run: Callable[[], Any]


def sample(root: Path, seed: int, look: Callable[[Any], Any] = lambda batch: batch, **options: Any) -> Sample:
    """What this seed says. ``look``: what becomes of a batch at once; ``options``: of the loader."""
    rng = random.Random(seed)
    made, transform = dataset(root, rng, seed)
    make, passes = loader(made, rng, **options), rng.choice((1, 1, 2))

    def run() -> Any:
        drawn, found = random.Random(seed), list[Any]()

        def between() -> list[float]:
            return [DRAWS[name]() for name in drawn.sample(list(DRAWS), drawn.randint(0, 3))]

        def epochs() -> None:
            for _ in range(passes):
                found.append(between())
                batches = iter(make())
                try:
                    for batch in batches:
                        found.extend((look(batch), hash(helpers.random_states()), between()))
                finally:
                    if options.get("num_workers"):
                        batches._shutdown_workers()  # type: ignore[attr-defined]

        ended = helpers.attempt(epochs)
        return found, ended and ended[0]

    return Sample(transform, run)
