"""The kernels' sources, and names for what is compiled of them; ``accel.native.cache`` keeps it."""

from __future__ import annotations

from accel.backends.cuda.declarations import SOURCES
from accel.native.cache import cached, cached_path, digest, folder

__all__ = ["SOURCES", "cached", "cached_path", "folder", "key"]


def key(*parts: str) -> str:
    """A name for what is made of all sources below this folder with these settings."""
    return digest([*SOURCES.rglob("*.cu"), *SOURCES.rglob("*.h")], SOURCES, *parts)
