"""The kernels' sources, and names for what is compiled of them; ``accel.native.cache`` keeps it."""

from __future__ import annotations

from pathlib import Path

from accel.native.cache import cached, cached_path, digest, folder

__all__ = ["SOURCES", "cached", "cached_path", "folder", "key"]

SOURCES = Path(__file__).resolve().parent


def key(*parts: str) -> str:
    """A name for what is made of all sources below this folder with these settings."""
    return digest([*SOURCES.rglob("*.cu"), *SOURCES.rglob("*.h")], SOURCES, *parts)
