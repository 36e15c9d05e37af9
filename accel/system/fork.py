"""What must happen around a fork of this process, where the system has forks."""

from __future__ import annotations

import os
from collections.abc import Callable

Hook = Callable[[], object]


def _nothing() -> None:
    pass


def register(*, before: Hook = _nothing, in_parent: Hook = _nothing, in_child: Hook = _nothing) -> None:
    """Call ``before`` ahead of every fork, and the others after it, for as long as the process lives."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=before, after_in_parent=in_parent, after_in_child=in_child)
