"""Planted bottlenecks as data: a script, its expected name, and the advice that must or must not be given."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from bench.bottlenecks import sleeping
from bench.bottlenecks.script import Script


@dataclass(frozen=True)
class Plant:
    """A planted bottleneck.

    Attributes:
        name: unique. says: a description of what was planted.
        expected: the name that the profiler must find.
        cure: the script without the planted bottleneck, to show that this was it; None if it cannot run without it, or
            nothing was planted.
        helps: keys of changes, one of which must be advised; empty if none must.
        never: keys of changes that must not be advised, as they are useless.
        names: words that the verdict or the advice must contain, such as the function at fault.
        environment: variables that it runs with; those of ``slow_files.c`` make a slow disk.
        shm: bytes of /dev/shm; None for the machine's own.
        inside: whether the script sets its backend itself, after the profiler has begun.
        device: whether the script copies to the stand-in device.
    """

    name: str
    says: str
    expected: str
    script: Script
    cure: Script | None = None
    helps: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    shm: int | None = None
    inside: bool = False
    device: bool = False

    @property
    def apart(self) -> bool:
        """Whether it needs a process of its own from the start."""
        return self.shm is not None or any(not name.startswith("SLOW_") for name in self.environment)

    def machine(self) -> AbstractContextManager[None]:
        """A context in which the profiler sees the machine that the plant is for."""
        return nullcontext() if self.script.cores is None else sleeping.machine(self.script.cores)

    def wrong(self, advice: Sequence[dict[str, Any]], why: str) -> list[str]:
        """The faults of advice: what must not be advised, and what is missing."""
        keys = [key for each in advice for key in each["change"] or ()]
        found = [f"{key} must not be advised" for key in self.never if key in keys]
        if self.helps and not set(self.helps) & set(keys):
            found.append(f"{' or '.join(self.helps)} is not advised")
        text = " ".join([why, *(each["text"] for each in advice)])
        return found + [f"nothing says {name}" for name in self.names if name not in text]
