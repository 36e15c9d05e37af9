"""Shuffling so that a disk reads long stretches: for disks on which a random place costs more than its bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import Any

import torch
from torch.utils.data import Sampler


class BlockShuffle(Sampler[int]):
    """A sampler that permutes blocks of neighbouring samples, and shuffles the samples of a few blocks together.

    The blocks come in random order; ``window`` of them at a time are read and shuffled as one. So at any moment a disk
    reads from ``window`` stretches of ``block`` samples. Global shuffles (``shuffle=True``) mix better and cost nothing
    on disks that do not mind.

    Args:
        dataset: anything with a length; its order should be that of its files on the disk, as of a pack.
        block: samples in a block.
        seed: of the order of the first epoch; epoch ``e`` is shuffled by ``seed + e`` (``set_epoch``).
        window: blocks that are shuffled together.
        num_replicas: how many ranks there are, as of ``torch.utils.data.DistributedSampler``: each gets other blocks,
            and all as many samples as the one with the fewest.
        rank: the number of this one, from 0.

    Raises:
        ValueError: a number is too small, the rank is not one of ``num_replicas``, or a rank would have no samples.
    """

    def __init__(
        self, dataset: Sized, block: int, seed: int = 0, window: int = 8, num_replicas: int = 1, rank: int = 0
    ) -> None:
        if min(block, window, num_replicas) < 1 or not 0 <= rank < num_replicas:
            raise ValueError(
                "block, window and num_replicas must be at least 1, and rank from 0 to num_replicas - 1; got "
                f"block={block}, window={window}, num_replicas={num_replicas}, rank={rank}"
            )
        self._dataset, self._block, self._window = dataset, block, window
        self._seed, self._replicas, self._rank = seed, num_replicas, rank
        self._epoch = 0
        inside: list[Any] = [dataset]
        for inner in inside:  # what a Subset has, too, and a ConcatDataset
            if hasattr(inner, "in_blocks"):
                inner.in_blocks = True
            inside += [inner.dataset] if hasattr(inner, "dataset") else getattr(inner, "datasets", ())
        if len(dataset) and not len(self):
            raise ValueError(f"block={block} is too large: {len(dataset)} samples are no whole block for each rank")

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the next epoch, which changes its order."""
        self._epoch = epoch

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self._seed + self._epoch)
        count, block, given = len(self._dataset), self._block, len(self)
        blocks = torch.randperm(-(-count // block), generator=generator)[self._rank :: self._replicas].tolist()
        for first in range(0, len(blocks), self._window):
            window = [
                index
                for number in blocks[first : first + self._window]
                for index in range(number * block, min(number * block + block, count))
            ]
            for place in torch.randperm(len(window), generator=generator).tolist()[:given]:
                yield window[place]
            given -= min(given, len(window))

    def __len__(self) -> int:
        count, blocks = len(self._dataset), -(-len(self._dataset) // self._block)
        if self._replicas == 1:
            return count
        # of the rank with the fewest, wherever the last block, which may be shorter, comes
        return max(blocks // self._replicas * self._block - (blocks * self._block - count), 0)
