"""The folder of accel's compiled code.

A file is a compiler's output followed by a digest of its name and content: a file that is cut short, damaged or not
accel's is made again. Files appear in one step, so any number of processes may write one at the same time. The name
depends on everything that the content depends on, but not on the machine's folders or clocks, so the folder can be
copied to another machine.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from accel.system import log


def folder() -> Path:
    """The folder of the cache: $ACCEL_CACHE_DIR, or accel's folder in $NUMBA_CACHE_DIR, or in the user's cache."""
    is_windows = sys.platform == "win32"
    users = ("LOCALAPPDATA", "accel/cache") if is_windows else ("XDG_CACHE_HOME", "accel")
    for variable, name in (("ACCEL_CACHE_DIR", ""), ("NUMBA_CACHE_DIR", "accel"), users):
        if chosen := os.environ.get(variable):
            return Path(chosen) / name
    try:
        return Path.home() / ".cache" / "accel"
    except RuntimeError:  # a user without a home
        return _of_nobody(Path(tempfile.gettempdir()) / f"accel-{os.getuid()}")


def _of_nobody(path: Path) -> Path:
    """Make a folder inside one where everybody may write; it must be this user's alone, as code from it is run.

    Raises:
        OSError: the folder is not this user's alone, or cannot be made.
    """
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{path} is not this user's alone")
    return path


def digest(paths: list[Path], root: Path, *parts: str) -> str:
    """A digest, 32 hexadecimal digits, of these files below a folder and of more texts, for names of cached files."""
    files = (path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() for path in sorted(paths))
    content = b"".join(part + b"\0" for part in (*files, *map(str.encode, parts)))
    return hashlib.sha256(content).hexdigest()[:32]


def cached(name: str, build: Callable[[], bytes]) -> bytes:
    """The content called ``name`` (which contains a ``digest``), built if the folder has no sound copy of it."""
    if (content := read(name)) is None:
        content = build()
        keep(name, content)
    return content


def cached_path(name: str, build: Callable[[], bytes]) -> Path:
    """``cached`` as a file, for a loader that ignores the digest behind the content.

    Raises:
        OSError: the file cannot be written.
    """
    path = folder() / name
    if read(name) is None:
        _write(path, build())
    return path


def read(name: str) -> bytes | None:
    """The content called ``name``; None if the folder has no sound copy of it."""
    try:
        path = folder() / name
        data = path.read_bytes()
    except OSError:
        return None
    if (content := data[:-32]) and data[-32:] == _digest(name, content):
        return content
    log.note(log.INFO, "%s is damaged, and made again", path)
    return None


def keep(name: str, content: bytes) -> None:
    """Put the content into the folder; if that fails, log why, once."""
    try:
        _write(folder() / name, content)
    except OSError as error:
        lost = (
            "compiled code is not kept, so every process compiles it anew: %s (ACCEL_CACHE_DIR may name another folder)"
        )
        log.once(log.WARNING, lost, str(error))


def _digest(name: str, content: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\0" + content).digest()


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content + _digest(path.name, content))
        os.chmod(temporary, 0o644)  # other users of a container image read what its maker has compiled
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
