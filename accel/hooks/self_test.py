"""A test of every op with libraries that are newer than those accel was tested with, once for their versions.

An op whose results differ from the library's, or that raises, is left to it (``accel.ops.LEFT``). Effects are planned
here, and run by Pillow and torchvision: their kernels are compared with these before they are first used anyway.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from threading import get_ident

from accel import testing
from accel.hooks.compiled import stock
from accel.ops import LEFT, OPS
from accel.ops.row import EffectOp
from accel.system import arithmetic, counters, fork, private_names
from accel.system.native import object_cache
from accel.system.version import __version__

_ROOT = Path(__file__).parents[1]
_lock = fork.Lock()
_thread = 0  # which is testing
_tested: list[str] = []


def leave_what_differs() -> None:
    """Test the ops, unless that was done with these versions, and leave to torchvision what differs."""
    global _thread, _tested
    newer = private_names.newer()
    if newer == _tested or _thread == get_ident():
        return
    with _lock:
        if newer == _tested:
            return
        _thread = get_ident()
        try:
            LEFT.update(_kept(newer))
        finally:
            _tested, _thread = newer, 0
    for name in LEFT:
        counters.fallback(f"{name} is left to torchvision: it differs in {', '.join(newer)}")


def _kept(newer: list[str]) -> dict[str, str]:
    """What differs, from the folder of compiled code; or found now, and kept there if torch's settings are as usual."""
    ops = sorted((_ROOT / "ops").glob("*.py"))
    name = f"self-test-{object_cache.digest(ops, _ROOT, __version__, *newer)}"
    if (kept := object_cache.read(name)) is not None:
        return dict(json.loads(kept))
    with counters.uncounted(), arithmetic.own_threads(), warnings.catch_warnings():
        arithmetic.use_threads(1)  # for small pictures
        warnings.simplefilter("ignore")
        found = _differing()
    passing = (MemoryError, OSError)  # of the machine as it is now
    if stock.usual() and not arithmetic.autocasts() and not any(isinstance(each, passing) for each in found.values()):
        object_cache.keep(name, json.dumps({op: _reason(each) for op, each in found.items()}).encode())
    return {op: _reason(each) for op, each in found.items()}


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _differing() -> dict[str, Exception]:
    """The ops that differ, each with the first of the reasons."""
    found: dict[str, Exception] = {}
    for case in testing.cases(((64, 48),), ("RGB",)):
        backend = "reference" if isinstance(OPS[case.op], EffectOp) else "cpu"
        try:
            testing.check(case, backend)
        except Exception as error:
            found.setdefault(case.op, error)
    return found
