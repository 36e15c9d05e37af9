"""Packs of trees of files."""

import os
from pathlib import Path

from accel.codec.files.packs import known
from accel.packs.writing import pack


def made(tree: Path, folder: Path, shard_size: int = 20_000) -> Path:
    """Pack a tree into several small shards; return the pack's folder."""
    pack(str(tree), str(folder), shard_size=shard_size, workers=1)
    return folder


def forget() -> None:
    """Have this process know no pack, as one that was just started."""
    for _, each in known.values():
        for shard, descriptor in enumerate(each.descriptors):
            if descriptor >= 0:
                os.close(descriptor)
                each.descriptors[shard] = -1
    known.clear()
