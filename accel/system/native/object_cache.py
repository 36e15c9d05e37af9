"""The folder of accel's compiled code.

A file is a compiler's output followed by a digest of its name and content: a file that is cut short, damaged or not
accel's is made again. Files appear in one step, so any number of processes may write one at the same time. The name
depends on everything that the content depends on, but not on the machine's folders or clocks, so the folder can be
copied to another machine.

The digest does not say who wrote a file, so a folder or a file that another user may write to is not used
(``accel.system.trust``): code is kept elsewhere then.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from accel.errors import attempt
from accel.system import log, trust
from accel.system.trust import Untrusted


def folder() -> Path:
    """The folder of the cache: the one that is chosen, or, if another user may write to that, this user's elsewhere.

    Raises:
        OSError: there is none yet, or it cannot be opened.
    """
    with _opened() as (path, _):
        return path


def where() -> str:
    """The folder of the cache, for messages: also one that is not there yet, or cannot be opened."""
    found = attempt(folder)
    return str((_chosen() or tempfile.gettempdir()) if isinstance(found, Exception) else found)


@contextmanager
def _opened(*, make: bool = False) -> Iterator[tuple[Path, int | None]]:
    """The folder of the cache and its descriptor (``trust.opened``); ``make``: made if there is none."""
    path, descriptor = _place(make)
    try:
        yield path, descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _place(make: bool) -> tuple[Path, int | None]:
    chosen = _chosen()
    try:
        if chosen is not None:
            return chosen, _checked(chosen, make)
        refused = ""
    except Untrusted as error:
        refused = f"no compiled kernels are loaded from {chosen}: {error}"
    try:
        user = os.geteuid() if hasattr(os, "geteuid") else "user"
        path = Path(tempfile.gettempdir()) / f"accel-{user}"
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
        descriptor = trust.opened(path, private=True)
    except OSError as error:
        refused = refused or f"no compiled kernels are loaded from {path}: {error}"
        path = _of_process()
        descriptor = trust.opened(path, private=True)
    if refused:
        log.once(log.WARNING, "%s; they are kept in %s (ACCEL_CACHE_DIR may name another folder)", refused, str(path))
    return path, descriptor


def _chosen() -> Path | None:
    """$ACCEL_CACHE_DIR, or accel's folder in $NUMBA_CACHE_DIR, or in the user's cache; None: a user without a home."""
    is_windows = sys.platform == "win32"
    users = ("LOCALAPPDATA", "accel/cache") if is_windows else ("XDG_CACHE_HOME", "accel")
    for variable, name in (("ACCEL_CACHE_DIR", ""), ("NUMBA_CACHE_DIR", "accel"), users):
        if chosen := os.environ.get(variable):
            return Path(chosen) / name
    try:
        return Path.home() / ".cache" / "accel"
    except RuntimeError:
        return None


def _checked(path: Path, make: bool) -> int | None:
    try:
        return trust.opened(path)
    except FileNotFoundError:
        if not make:
            raise
    _make(path)
    return trust.opened(path)


def _make(path: Path) -> None:
    """Make a folder and its parents, none of which others may write to, whatever the umask."""
    try:
        path.mkdir(mode=0o755, exist_ok=True)
    except FileNotFoundError:
        _make(path.parent)
        path.mkdir(mode=0o755, exist_ok=True)


@cache
def _of_process() -> Path:
    """A folder of this process and its forked children, removed when it ends."""
    path, process = tempfile.mkdtemp(prefix="accel-"), os.getpid()
    atexit.register(lambda: shutil.rmtree(path, ignore_errors=True) if os.getpid() == process else None)
    return Path(path)


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
    if read(name) is None:
        _write(name, build())
    return folder() / name


def read(name: str) -> bytes | None:
    """The content called ``name``; None if the folder has no sound copy of it."""
    try:
        with _opened() as (path, descriptor):
            place = path / name if descriptor is None else name
            with open(os.open(place, os.O_RDONLY | getattr(os, "O_BINARY", 0), dir_fd=descriptor), "rb") as file:
                status = os.fstat(file.fileno())
                if descriptor is not None and (fault := attempt(trust.check, status, path / name)) is not None:
                    log.note(log.WARNING, "%s, so it is not run, and made again", str(fault))
                    return None
                data = file.read()
    except OSError:
        return None
    if (content := data[:-32]) and data[-32:] == _digest(name, content):
        return content
    log.note(log.INFO, "%s is damaged, and made again", path / name)
    return None


def keep(name: str, content: bytes) -> None:
    """Put the content into the folder; if that fails, log why, once."""
    try:
        _write(name, content)
    except OSError as error:
        lost = (
            "compiled code is not kept, so every process compiles it anew: %s (ACCEL_CACHE_DIR may name another folder)"
        )
        log.once(log.WARNING, lost, str(error))


def _digest(name: str, content: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\0" + content).digest()


def _write(name: str, content: bytes) -> None:
    with _opened(make=True) as (path, _):
        handle, temporary = tempfile.mkstemp(dir=path, prefix=name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content + _digest(name, content))
            os.chmod(temporary, 0o644)  # other users of a container image read what its maker has compiled
            os.replace(temporary, path / name)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
