"""The switch: which backend is in force, for the process and for a context.

The hooks (``accel.hooks``) are installed while any backend but "torchvision" is in force anywhere; they register how
with ``on_use``, so that this file knows nothing of torchvision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from accel import backend as registry
from accel.codec import store
from accel.processes.launch import environment
from accel.recipes.options import STEPS_ASIDE, Options, Selection
from accel.runtime.memo import cached
from accel.system import fork, log


@dataclass(eq=False)
class _Scope:
    """A ``with image_backend(...)`` block, seen by its context and by those copied from it.

    A generator may begin in one context and finish in another, where the first one's variable cannot be reset, and
    blocks of generators need not end in the reverse order. So a block that was left is marked, and skipped wherever it
    is still seen.
    """

    selection: Selection
    outer: _Scope | None
    left: bool = False


_TORCHVISION = Selection(STEPS_ASIDE, Options())
_default = _TORCHVISION
_context: ContextVar[_Scope | None] = ContextVar("accel_image_backend", default=None)

_lock = fork.Lock()
fork.wait_for(lambda: _lock, fork.SWITCH)  # a child must not inherit hooks that are half installed
_users = 0
_install: Callable[[], None]
_uninstall: Callable[[], None]


def on_use(install: Callable[[], None], uninstall: Callable[[], None]) -> None:
    """Call ``install`` when the first backend comes into force and ``uninstall`` when the last one goes."""
    global _install, _uninstall
    _install, _uninstall = install, uninstall


def current() -> Selection:
    """The selection in force here."""
    block = _context.get()
    if block is not None and block.left:
        block = _outside(block)
    return _default if block is None else block.selection


def active() -> Selection | None:
    """The selection in force here; None if that is "torchvision"."""
    selection = current()
    return None if selection.name == STEPS_ASIDE else selection


def in_use() -> bool:
    """Whether a backend is in force anywhere in this process."""
    return _users > 0


def _outside(block: _Scope | None) -> _Scope | None:
    """The innermost block, from this one outward, that has not been left; None if there is none."""
    while block is not None and block.left:
        block = block.outer
    return block


def _leave(block: _Scope) -> None:
    with _lock:
        if not block.left:
            block.left = True
            _use(block.selection, -1)


def select(name: str, options: dict[str, Any]) -> Selection:
    """Check a name and its options and return the selection; raises as ``set_image_backend`` does."""
    if not isinstance(name, str):
        raise TypeError(f"the backend's name must be a string, got {type(name).__name__}")
    if name == "auto":
        name = registry.best()
    if name == STEPS_ASIDE:
        if options:
            raise TypeError(f"backend {STEPS_ASIDE!r} takes no options, got {', '.join(options)}")
        return _TORCHVISION
    selection = Selection(name, registry.parse_options(name, options))
    registry.backend_of(selection)
    if getattr(selection.options, "cache", None) is not None:
        cached.prepare(selection.options)
    return selection


def adopt(selection: Selection) -> None:
    """Make a checked selection the default of this process."""
    global _default
    with _lock:
        _use(selection, 1)
        _default, previous = selection, _default
        _use(previous, -1)


def replace(selection: Selection) -> None:
    """Make a checked selection the default of this process, and leave the blocks of this context, which another process
    began before it forked this one."""
    adopt(selection)
    block = _context.get()
    while block is not None:
        _leave(block)
        block = block.outer


def set_image_backend(name: str, **options: Any) -> None:
    """Choose the backend that decodes and augments images, for the whole process.

    Args:
        name: "cpu", "cuda", "dali" or the name of any other installed backend; "auto", the best one that runs here; or
            "torchvision": accel steps aside, and every name of torchvision's and Pillow's is the original again.
        **options: ``exact`` and ``on_error`` (see ``accel.backend.Options``) and the backend's own.

    Files are decoded when a batch is collated or used. So damage in the middle of a file raises ``DecodeError`` there,
    and not inside a ``try`` in a dataset's ``__getitem__``; with ``on_error="replace"`` the epoch goes on, with a black
    picture. A damaged header or a missing end raises when the file is opened, as without accel.

    Raises:
        ValueError: the name is unknown, an option's value is out of range, or the cache's folder cannot be used.
        TypeError: the name is no string, the backend does not know an option, or its value is of the wrong type.
        BackendUnavailable: the backend cannot run here; the message says what is missing.
    """
    adopt(select(name, options))
    environment.choose(name, options)
    log.flush()


@contextmanager
def image_backend(name: str, **options: Any) -> Iterator[None]:
    """Use a backend inside a ``with`` block, in this context only; what was in force before is restored.

    Takes a ``name`` and ``options`` as ``set_image_backend`` does. Threads started inside see the process's default, as
    with any context variable; a DataLoader's workers use the backend that is in force at ``iter()``. A block that is
    left in another context than it was entered in, as by a generator that another thread finishes, is left in both.

    Raises:
        ValueError, TypeError, BackendUnavailable: as ``set_image_backend`` does, before the block begins.
    """
    selection = select(name, options)
    with _lock:
        _use(selection, 1)
    block = _Scope(selection, _outside(_context.get()))
    _context.set(block)
    try:
        yield
    finally:
        _leave(block)
        _context.set(_outside(_context.get()))


def get_image_backend() -> str:
    """Return the name of the backend in force in this context, "torchvision" if there is none."""
    return current().name


def image_backends() -> dict[str, str | None]:
    """Return every known backend's name, with None where it can run here, else the reason why it cannot."""
    return {STEPS_ASIDE: None, **registry.availability()}


def _use(selection: Selection, more: int) -> None:
    """Count one use of a selection more (1) or less (-1); the first installs the hooks and the last uninstalls them."""
    global _users
    if not selection.steps_aside:
        if more > 0 and getattr(selection.options, "cache", None) is not None:
            store.prepare()
            cached.enter(selection.options)
        if _users == 0:
            _install()
        _users += more
        if _users == 0:
            _uninstall()
            cached.leave()
