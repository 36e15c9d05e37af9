"""Epochs, or the beginnings of epochs, that are recorded and not computed: skipped batches, and content digests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

from torch.utils.data import DataLoader

from accel.codec.header import Header
from accel.lazy import search
from accel.processes import switch
from accel.recipes.recipe import Source
from accel.resuming import batch_record, loaders, random_states
from accel.resuming.progress import Digested, Recorded, found, instead

EVERY = 1 << 62


def skip(loader: Any, batches: int) -> Iterator[Any]:
    """Begin with an epoch and leave out its first batches: their random numbers are drawn, nothing is computed.

    What comes behind them equals what a loop gets there that throws these batches away. Without a backend in force, and
    for other objects than torch's DataLoader, that is what is done.

    Args:
        loader: a DataLoader. batches: how many are left out.

    Returns:
        The iterator, which is at its end if there are no more.
    """
    with _beginning(Recorded, batches if getattr(type(loader), "__iter__", None) is DataLoader.__iter__ else 0):
        iterator: Iterator[Any] = iter(loader)
    for _ in range(batches):
        next(iterator, None)
    return iterator


def digest(loader: DataLoader[Any]) -> str:
    """The content digest of a loader's next epoch: SHA-256 of the bytes of its files and of all that is done to them.

    Equal digests of two machines prove that they train on the same bits. Nothing is computed, and no random state
    changes: the epoch that follows is the one that was digested.

    Args:
        loader: torch's DataLoader.

    Returns:
        64 hexadecimal digits.

    Raises:
        RuntimeError: no backend is in force, or a state was loaded that the next epoch goes on from.
    """
    if switch.active() is None:
        raise RuntimeError("accel.digest needs a backend in force: call accel.set_image_backend first")
    if loaders.loaded(loader):
        raise RuntimeError("a state was loaded into this loader: digest the epoch behind the resumed one")
    own = found(loader).generators
    states, hasher = random_states.current(own), sha256()
    try:
        with _beginning(Digested, EVERY):
            iterator = loader._get_iterator()  # persistent workers stay where they are
        for each in iterator:
            hasher.update(each.encode())
        del iterator
    finally:
        random_states.restore(states, own)
    return hasher.hexdigest()


@contextmanager
def _beginning(task: type[Recorded], batches: int) -> Iterator[None]:
    token = instead.set((task, batches))
    try:
        yield
    finally:
        instead.reset(token)


def content_digest(batch: Any) -> str:
    """The digest of a batch as it was recorded: of the bytes of its images' files, their steps, and all else."""
    hasher = sha256(batch_record.state_digest(batch_record.noted(batch, whole=True)).encode())
    for tensor in search.lazy_tensors(batch):
        for recipe in tensor.lazy.recipes:
            hasher.update(sha256(_content(recipe.source)).digest())
    return hasher.hexdigest()


def _content(source: Source) -> bytes | memoryview:
    """The bytes of a file as they are on the disk, or pixels."""
    return source.data if source.is_read or isinstance(source.header, Header) else source.file()
