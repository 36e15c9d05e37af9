"""What a planted bottleneck is: a script, the name that is expected, and what has to be advised and what must not."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from bench.bottlenecks import sleeping
from bench.bottlenecks.script import Script


@dataclass(frozen=True)
class Plant:
    """A bottleneck, planted.

    Attributes:
        name: unique. says: what was done to the script, in words.
        expected: the name that the profiler has to find.
        cure: the same script without what was planted; it shows that this is what held it back. None: it cannot run
            otherwise, or nothing was planted.
        helps: keys of changes one of which has to be among the advice; (): none has to be.
        never: keys of changes that must not be advised: they cannot help, or cost without bringing anything.
        names: words that the verdict or the advice has to have, such as the function at fault.
        environment: variables that it runs with; those of ``slow_files.c`` make a slow disk.
        shm: bytes of /dev/shm; None: the machine's own.
        inside: the script sets its backend itself, after the profiler has begun.
        device: the script copies to the stand-in device.
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
        """Whether the process has to be another one from its start."""
        return self.shm is not None or any(not name.startswith("SLOW_") for name in self.environment)

    def machine(self) -> AbstractContextManager[None]:
        """Inside the block, the profiler is told of the machine that the plant is for."""
        return nullcontext() if self.script.cores is None else sleeping.machine(self.script.cores)

    def wrong(self, advice: Sequence[dict[str, Any]], why: str) -> list[str]:
        """What is wrong about advice: what must not be there, and what is missing."""
        keys = [key for each in advice for key in each["change"] or ()]
        found = [f"{key} must not be advised" for key in self.never if key in keys]
        if self.helps and not set(self.helps) & set(keys):
            found.append(f"{' or '.join(self.helps)} is not advised")
        text = " ".join([why, *(each["text"] for each in advice)])
        return found + [f"nothing says {name}" for name in self.names if name not in text]
