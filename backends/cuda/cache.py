"""Compiled kernels on disk, one file for every source, compiler and target.

A file is the compiler's output and, behind it, a digest of key and content: a file that is cut short, damaged or
somebody else's is built again. Files appear in one step, so any number of processes may race for one.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from accel.system import log

SOURCES = Path(__file__).resolve().parent


def folder() -> Path:
    """Where compiled kernels are kept: $ACCEL_CACHE_DIR, or accel's folder in the user's cache."""
    if chosen := os.environ.get("ACCEL_CACHE_DIR"):
        return Path(chosen)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", tempfile.gettempdir())) / "accel" / "cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "accel"


def key(*parts: str) -> str:
    """A name for what is made of all sources below this folder with these settings."""
    digest = hashlib.sha256()
    for path in sorted([*SOURCES.rglob("*.cu"), *SOURCES.rglob("*.h")]):
        digest.update(path.relative_to(SOURCES).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    for part in parts:
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:32]


def cached(name: str, build: Callable[[], bytes]) -> bytes:
    """The content called ``name`` (which holds a ``key``), built if the folder has no sound copy of it."""
    path = folder() / name
    found = _read(path)
    if found is not None:
        return found
    content = build()
    try:
        _write(path, content)
    except OSError as error:
        log.note(log.INFO, "compiled kernels are not kept: %s", error)
    return content


def cached_path(name: str, build: Callable[[], bytes]) -> Path:
    """As ``cached``, as a file for a loader, which ignores the digest behind the content.

    Raises:
        OSError: the file cannot be written.
    """
    path = folder() / name
    if _read(path) is None:
        _write(path, build())
    return path


def _digest(name: str, content: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\0" + content).digest()


def _read(path: Path) -> bytes | None:
    try:
        data = path.read_bytes()
    except OSError:
        return None
    content, digest = data[:-32], data[-32:]
    if len(data) > 32 and digest == _digest(path.name, content):
        return content
    log.note(log.INFO, "%s is damaged, and built again", path)
    return None


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content + _digest(path.name, content))
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
