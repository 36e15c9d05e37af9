"""Loaders of all kinds, and a training loop that is killed and goes on: the cases of ``python -m bench.resume``."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import distributed
from torch.utils import data
from torch.utils.data import DataLoader
from torchvision import transforms as T
from torchvision.datasets import ImageFolder
from torchvision.datasets.folder import default_loader

import accel

TRAIN = T.Compose(
    [T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.25))]
)
JITTER = T.Compose([T.RandomResizedCrop(24), T.ColorJitter(0.4, 0.4, 0.4), T.ToTensor(), T.RandomErasing(0.5)])

DATASETS = ("folder", "jitter", "own", "iterable")
SAMPLERS = ("sequential", "shuffle", "generator", "replacement", "weighted", "subset", "ranks", "batches", "eager")
PLANTED = ("torch", "python", "numpy", "numpy state")


@dataclass(frozen=True)
class Case:
    """A loader and a training.

    Attributes:
        dataset, sampler: of ``DATASETS`` and ``SAMPLERS``. method: how workers are started.
        planted: a kind of ``PLANTED`` generators of the user's in dataset, sampler and collate function; "": none.
        seed: of everything. cuts: after how many batches of the run it is killed, in order.
        rank: of two, for the sampler "ranks". between: whether states are saved at an epoch's end if it is reached.
    """

    dataset: str = "folder"
    sampler: str = "shuffle"
    batch_size: int = 4
    workers: int = 0
    method: str = "fork"
    persistent: bool = False
    pin: bool = False
    drop_last: bool = False
    planted: str = ""
    seed: int = 0
    cuts: tuple[int, ...] = (3,)
    epochs: int = 2
    rank: int = 0
    between: bool = False


def chosen(number: int, methods: Sequence[str] = ("fork",), dataset: str = "") -> Case:
    """The random case with this number."""
    draw = random.Random(f"case {number}")
    dataset = dataset or draw.choice((*DATASETS, "folder"))
    workers = draw.choice((0, 0, 1, 2, 3))
    own = draw.choice(("", *PLANTED)) if dataset == "own" else ""
    methods = ("fork",) if own == "torch" else methods  # torch cannot send its generators to others
    return Case(
        dataset=dataset,
        sampler="sequential" if dataset == "iterable" else draw.choice(SAMPLERS),
        batch_size=draw.choice((1, 2, 3, 4, 5, 8)),
        workers=workers,
        method=draw.choice(methods),
        persistent=dataset != "iterable" and workers > 0 and draw.random() < 0.5,
        pin=draw.random() < 0.3,
        drop_last=draw.random() < 0.3,
        planted=own,
        seed=draw.randrange(1 << 20),
        cuts=tuple(sorted(draw.sample(range(1, 14), draw.choice((1, 2, 3, 5))))),
        rank=draw.randrange(2),
        between=draw.random() < 0.3,
    )


def planted(kind: str, seed: int) -> Any:
    """A generator of the user's."""
    if kind == "torch":
        return torch.Generator().manual_seed(seed)
    if kind == "python":
        return random.Random(seed)
    return np.random.default_rng(seed) if kind == "numpy" else np.random.RandomState(seed)


def drawn(generator: Any) -> float:
    """The next number of such a generator."""
    if isinstance(generator, torch.Generator):
        return torch.rand((), generator=generator).item()
    return float(generator.random() if hasattr(generator, "random") else generator.random_sample())


class Own(data.Dataset[Any]):
    """A dataset of the user's, with a generator in it."""

    def __init__(self, root: Path, generator: Any) -> None:
        self.files, self.generator = sorted(map(str, root.rglob("*.jpg"))), generator

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, number: int) -> Any:
        noise = 0.0 if self.generator is None else drawn(self.generator)
        return TRAIN(default_loader(self.files[number])), {"number": number, "noise": noise}


class Stream(data.IterableDataset[Any]):
    """The files of a folder as a stream, shuffled within a few, shared by the workers."""

    def __init__(self, root: Path) -> None:
        self.files = sorted(map(str, root.rglob("*.jpg")))

    def __iter__(self) -> Iterator[Any]:
        info = data.get_worker_info()
        files = self.files if info is None else self.files[info.id :: info.num_workers]
        held: list[str] = []
        for file in files:
            held.append(file)
            if len(held) > 3:
                yield self._sample(held.pop(random.randrange(len(held))))
        while held:
            yield self._sample(held.pop(random.randrange(len(held))))

    def _sample(self, file: str) -> Any:
        return TRAIN(default_loader(file)), self.files.index(file)


class Eager(data.Sampler[int]):
    """A sampler that draws in ``iter()``."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[int]:
        return iter(np.random.permutation(self.count).tolist())  # noqa: NPY002

    def __len__(self) -> int:
        return self.count


class Batches(data.Sampler[list[int]]):
    """A batch sampler of the user's, with a generator in it, which draws when it is asked for a batch."""

    def __init__(self, count: int, size: int, generator: Any) -> None:
        self.count, self.size, self.generator = count, size, generator

    def __iter__(self) -> Iterator[list[int]]:
        for _ in range(len(self)):
            yield [int(drawn(self.generator) * self.count) for _ in range(self.size)]

    def __len__(self) -> int:
        return self.count // self.size


class Scaled:
    """A collate function that draws."""

    def __init__(self, generator: Any) -> None:
        self.generator = generator

    def __call__(self, samples: Any) -> Any:
        images, *rest = data.default_collate(samples)
        return [images * drawn(self.generator), *rest]


def loader(case: Case, root: Path) -> DataLoader[Any]:
    """The loader of a case, as a script makes it when it begins."""
    dataset: Any
    if case.dataset == "own":
        dataset = Own(root, planted(case.planted, case.seed) if case.planted else None)
    elif case.dataset == "iterable":
        dataset = Stream(root)
    else:
        dataset = ImageFolder(str(root), TRAIN if case.dataset == "folder" else JITTER)
    options: dict[str, Any] = {"batch_size": case.batch_size, "drop_last": case.drop_last}
    count = 0 if case.dataset == "iterable" else len(dataset)
    generator = torch.Generator().manual_seed(case.seed + 1)
    samplers: dict[str, Callable[[], Any]] = {
        "replacement": lambda: data.RandomSampler(dataset, True, count, generator=generator),
        "weighted": lambda: data.WeightedRandomSampler([1.0 + n % 3 for n in range(count)], count),
        "subset": lambda: data.SubsetRandomSampler(range(0, count, 2)),
        "ranks": lambda: data.DistributedSampler(dataset, num_replicas=2, rank=case.rank, seed=case.seed),
        "eager": lambda: Eager(count),
    }
    if case.sampler in ("shuffle", "generator"):
        options |= {"shuffle": True, "generator": generator if case.sampler == "generator" else None}
    elif case.sampler in samplers:
        options["sampler"] = samplers[case.sampler]()
    elif case.sampler == "batches":
        own = planted(case.planted or "python", case.seed + 2)
        options = {"batch_sampler": Batches(count, case.batch_size, own)}
    if case.planted:
        options["collate_fn"] = Scaled(planted(case.planted, case.seed + 3))
    if case.workers:
        options |= {"multiprocessing_context": case.method, "persistent_workers": case.persistent, "timeout": 300}
    return DataLoader(dataset, num_workers=case.workers, pin_memory=case.pin, **options)


def seeded(seed: int) -> None:
    """Seed everything, as a script does when it begins."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002


def states() -> list[Any]:
    """The states of this process's generators."""
    python, numpy = random.getstate(), np.random.get_state(legacy=False)  # noqa: NPY002
    return [torch.get_rng_state(), repr(python), repr((numpy["state"]["key"].tobytes(), numpy["state"]["pos"]))]


Seen = tuple[int, Any, list[Any]]
"""An epoch, a batch of it, and the random states behind the step that used it."""


def train(case: Case, root: Path, saved: bytes | None = None, cut: int | None = None) -> tuple[list[Seen], bytes]:
    """Train from the beginning, or from a checkpoint, until the run is killed.

    Args:
        cut: behind how many batches it is killed; None: at the end.

    Returns:
        The batches, and the last checkpoint.
    """
    seeded(case.seed if saved is None else case.seed + 99)
    batches, seen, first = loader(case, root), list[Seen](), 0
    if saved is not None:
        checkpoint = torch.load(io.BytesIO(saved), weights_only=True)
        batches.load_state_dict(checkpoint["loader"])  # type: ignore[attr-defined]
        first = checkpoint["epoch"]
        torch.rand(7), random.random()  # a model is made
    for epoch in range(first, case.epochs):
        if hasattr(batches.sampler, "set_epoch"):
            batches.sampler.set_epoch(epoch)
        for batch in batches:
            torch.rand(3)  # dropout
            if distributed.is_initialized():
                distributed.all_reduce(torch.ones(()))
            seen.append((epoch, [part.clone() for part in tensors(batch)], states()))
            if len(seen) == cut and not case.between:
                return seen, _checkpoint(batches, epoch)
        if cut is not None and len(seen) >= cut:
            return seen, _checkpoint(batches, epoch + 1)
    return seen, b""


def _checkpoint(batches: Any, epoch: int) -> bytes:
    stream = io.BytesIO()
    torch.save({"epoch": epoch, "loader": batches.state_dict()}, stream)
    return stream.getvalue()


def tensors(batch: Any) -> Iterator[torch.Tensor]:
    """The tensors of a batch, in order."""
    for part in batch.values() if isinstance(batch, dict) else batch:
        if isinstance(part, torch.Tensor):
            yield part
        else:
            yield from tensors(part)


def resumed(case: Case, root: Path) -> list[list[Seen]]:
    """The batches of each run of a training that is killed at each of the case's cuts, and goes on."""
    runs: list[list[Seen]] = []
    saved: bytes | None = None
    for cut in (*case.cuts, None):
        done = sum(map(len, runs))
        if cut is not None and cut <= done:
            continue
        more, saved = train(case, root, saved, None if cut is None else cut - done)
        runs.append(more)
        if not saved:
            break
    return runs


def compared(case: Case, root: Path) -> tuple[str, list[list[Seen]]]:
    """Compare a training that is killed with the one that went through, and that with torchvision's.

    Those two start workers by ``fork``, which gives the same batches as other ways.

    Returns:
        What differs first; "" if they are equal. The batches of each run of the training that was killed.
    """
    forked = replace(case, method="fork")
    with accel.image_backend("torchvision"):
        plain, _ = train(forked, root)
    with accel.image_backend("cpu"):
        whole, _ = train(forked, root)
        runs = resumed(case, root)
    return difference(plain, whole) or difference(whole, [seen for run in runs for seen in run]), runs


def difference(expected: Sequence[Seen], found: Sequence[Seen]) -> str:
    """What differs first between two runs; "" if they are equal in every bit."""
    if len(expected) != len(found):
        return f"{len(found)} batches instead of {len(expected)}"
    for number, ((epoch, batch, after), (other_epoch, other, other_after)) in enumerate(
        zip(expected, found, strict=True)
    ):
        if epoch != other_epoch or len(batch) != len(other):
            return f"batch {number} is of epoch {other_epoch} instead of {epoch}"
        if not all(map(torch.equal, batch, other)):
            return f"batch {number}, in epoch {epoch}"
        if not torch.equal(after[0], other_after[0]) or after[1:] != other_after[1:]:
            return f"random states behind batch {number}, in epoch {epoch}"
    return ""
