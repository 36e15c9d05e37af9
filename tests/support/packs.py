"""Packs of trees of files."""

from pathlib import Path

from accel.packs.writing import pack
from bench.packs import forget

__all__ = ["forget", "made"]


def made(tree: Path, folder: Path, shard_size: int = 20_000) -> Path:
    """Pack a tree into several small shards; return the pack's folder."""
    pack(str(tree), str(folder), shard_size=shard_size, workers=1)
    return folder
