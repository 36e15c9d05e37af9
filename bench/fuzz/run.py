"""Trying files in chunks, each in its own process, so that a crash, a hang or growing memory is tied to a file."""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

import accel
from bench.child import Child, Say
from bench.fuzz.check import Checked, check_file
from bench.fuzz.files import encode, picture
from bench.fuzz.mutations import Rng
from bench.fuzz.oracle import Setting
from bench.fuzz.recipes import Corpus, Recipe, make, recipe

CRASHED, HUNG, GREW, PLAIN = "crashed", "hung", "memory grew", "ended without accel"
"""The last is not accel's fault: Pillow or torchvision alone ended the process, or hung."""

_SETTLED = 20  # the number of files of a chunk after which caches and allocators are full
_MB = 1 << 20


class Limits(NamedTuple):
    seconds: float = 60
    """that one file may take"""
    growth: int = 512 * _MB
    """by which a process may grow from its twentieth file to its last: accel keeps the memory of large results"""
    memory: int = 4096 * _MB
    """by which it may grow at any time"""


class Result(NamedTuple):
    """The outcome of one file, one of ``check``'s or those above, and the differences (where, what)."""

    recipe: Recipe
    outcome: str
    wrong: list[tuple[str, str]]


class Kind(NamedTuple):
    """What is made and tried: (number, seed, corpus) -> recipe, (recipe, seed, corpus) -> bytes, and as
    ``check_file``."""

    recipe: Callable[[int, str, Corpus], Recipe] = recipe
    make: Callable[[Recipe, str, Corpus], bytes] = make
    check: Callable[..., Checked] = check_file


FILES = Kind()


class Runner:
    """Makes and tries the files of a seed, or what ``kind`` says."""

    def __init__(self, seed: str, corpus: Corpus, limits: Limits, kind: Kind = FILES) -> None:
        self.kind = kind
        self.seed = seed
        self.corpus = corpus
        self.limits = limits
        _prepare()

    def run(self, recipes: Sequence[Recipe]) -> Iterator[Result]:
        """The results, in order; after a crash or hang the rest goes on in another process."""
        rest = list(recipes)
        while rest:
            for result in self._process(rest, None):
                if result.outcome == PLAIN and not self.ends_without_accel(result.recipe):
                    result = result._replace(outcome=CRASHED)  # an earlier file has damaged the process
                yield result
                if rest and result.recipe is rest[0]:
                    rest = rest[1:]

    def ends_without_accel(self, recipe: Recipe) -> bool:
        """Whether Pillow or torchvision alone crashes or hangs on a file."""
        alone = Setting("torchvision", {}, False)
        return any(result.outcome in (CRASHED, HUNG, PLAIN) for result in self._process([recipe], alone))

    def _process(self, recipes: Sequence[Recipe], setting: Setting | None) -> Iterator[Result]:
        """The results of one process, which may end before it has tried all files."""
        with tempfile.TemporaryDirectory(prefix="accel-fuzz-") as folder:

            def work(say: Say) -> None:
                logging.getLogger("accel").setLevel(logging.ERROR)  # there are thousands of fallbacks
                say(_resident(os.getpid()))
                for recipe in recipes:
                    say("plain: making the file")
                    data = self.kind.make(recipe, self.seed, self.corpus)
                    rng = Rng(f"{self.seed} {recipe.number} use")
                    outcome = self.kind.check(data, rng, Path(folder, "file"), not recipe.steps, say, setting)
                    say([*outcome, _resident(os.getpid())])

            with Child("fork", work, Path(folder, "log")) as child:
                yield from self._watched(child, recipes)

    def _watched(self, child: Child, recipes: Sequence[Recipe]) -> Iterator[Result]:
        waiting, where, began, first, sizes = list(recipes), "", time.monotonic(), sys.maxsize, [0]
        for said in child.messages():
            if isinstance(said, list):
                yield Result(waiting.pop(0), said[0], [(place, what) for place, what in said[1]])
                began = time.monotonic()
                sizes.append(said[2])
            elif isinstance(said, int):
                first = said
            elif said is not None:
                where = said
            overdue = time.monotonic() - began > self.limits.seconds
            if waiting and (overdue or _resident(child.pid) - first > self.limits.memory):
                outcome = (HUNG if overdue else GREW) if not where.startswith("plain") else PLAIN
                what = outcome if overdue else f"{outcome} by {self.limits.memory // _MB} MB"
                yield Result(waiting[0], outcome, [(where, what)])
                return
        status = child.wait()
        if status != 0 or waiting:  # files are left where somebody called exit()
            recipe = waiting[0] if waiting else recipes[-1]
            plain = status < 0 and where.startswith("plain")
            yield Result(recipe, PLAIN if plain else CRASHED, [(where, _cause(status, child.printed()))])
        elif len(sizes) > _SETTLED + 1 and sizes[-1] - sizes[_SETTLED] > self.limits.growth:
            steps = [after - before for before, after in zip(sizes[_SETTLED:], sizes[_SETTLED + 1 :], strict=False)]
            worst = recipes[_SETTLED + max(range(len(steps)), key=steps.__getitem__)]
            grown = (sizes[-1] - sizes[_SETTLED]) // _MB
            yield Result(worst, GREW, [("a chunk", f"by {grown} MB over {len(steps)} files, most at this one")])


def _cause(status: int, printed: str) -> str:
    """A description of how a process ended, with its last output."""
    name = signal.Signals(-status).name if status < 0 else f"exit status {status}"
    lines = [line for line in printed.splitlines() if line.strip()]
    telling = [at for at, line in enumerate(lines) if line.startswith(("guard:", "Fatal Python error", "Traceback"))]
    return "\n".join([name, *(lines[telling[0] : telling[0] + 14] if telling else lines[-5:])])


def _resident(pid: int) -> int:
    """A process's resident bytes; 0 if the system does not tell."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def _prepare() -> None:
    """Compile and load everything, so that every process inherits it."""
    torch.set_num_threads(1)
    accel.set_image_backend("cpu")  # kept in force, as switching for every call is slow
    with tempfile.TemporaryDirectory(prefix="accel-fuzz-") as folder:

        def warm(setting: Setting) -> None:
            for channels in (1, 3):
                data = encode(picture("smooth", 40, 40, channels))
                check_file(data, Rng("warm"), Path(folder, "file"), True, lambda where: None, setting)

        with Child("fork", lambda say: warm(Setting("cuda", {"device": "cpu"}, False)), Path(folder, "log")) as device:
            device.wait()  # its kernels are compiled now; each process makes its own state again
        warm(Setting("cpu", {}, False))
