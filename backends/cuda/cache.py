"""The kernels' sources, and keys for the code compiled from them, which ``accel.system.native.object_cache`` keeps."""

from __future__ import annotations

from accel.backends.cuda.declarations import SOURCES
from accel.system.native.object_cache import cached, cached_path, digest, folder

__all__ = ["SOURCES", "cached", "cached_path", "folder", "key"]


def key(*parts: str) -> str:
    """The cache key of code compiled from all sources in this folder with these settings."""
    return digest([*SOURCES.rglob("*.cu"), *SOURCES.rglob("*.h")], SOURCES, *parts)
