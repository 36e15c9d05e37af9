"""``python -m bench.sink_soak``: ``accel.device_queue`` and ``accel.sink`` interrupted at random, on a stand-in device.

Each interruption leaves an epoch of a random loader in one of the ways of ``WAYS``; every tenth is followed by a whole
epoch, whose batches must be the loader's. Then a loader runs for many small batches. Threads, processes, open files and
memory must not grow.

Exit status: 0 nothing grew, 1 something did or a batch was wrong, 2 wrong usage; a run that hangs is ended with a trace
of every thread.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as T
from torchvision.datasets import FakeData

import accel
from accel.cli import screen
from accel.cli.arguments import WrongUsage, at_least, command
from accel.cli.tables import Table, show
from bench.soak import Use, grew
from rig.tape import TapeDevice, stand_in

EXAMPLES, BATCH, EPOCHS = 48, 4, 12
_PATIENCE = 120.0  # seconds after which an epoch has hung
_WAITING = 10.0  # seconds for what was left to end


class Hidden:
    """The device, whose own counters are none of the step's."""

    __slots__ = ("device",)

    def __init__(self, device: TapeDevice) -> None:
        self.device = device


class Broken(Exception):
    """Raised where an epoch is to be left."""


class Examples(Dataset[Any]):
    """Tensors with their numbers as labels; ``bad``: the number of one that raises."""

    def __init__(self, bad: int | None = None) -> None:
        self.bad = bad

    def __len__(self) -> int:
        return EXAMPLES

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        if number == self.bad:
            raise Broken(f"example {number}")
        return torch.full((6,), float(number)), number


class Images(Examples):
    """The same with lazy images."""

    _images = FakeData(EXAMPLES, (3, 16, 16), 10, T.ToTensor())

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        _, label = super().__getitem__(number)
        return self._images[number][0], label


class Interruptions:
    """Random epochs that end early.

    Attributes:
        counts: how many were left in each way.
    """

    def __init__(self, device: TapeDevice, seed: int) -> None:
        self._device, self._random = device, random.Random(seed)
        self.counts: Counter[str] = Counter()

    def one(self) -> str:
        """Leave a random epoch in a random way; say what was done."""
        way = self._random.choice(list(WAYS))
        bad = self._random.randrange(EXAMPLES) if way == "the loader raises" else None
        loader, told = self._loader(bad)
        told = f"{way}, {told}"
        faulthandler.dump_traceback_later(_PATIENCE, exit=True)
        try:
            WAYS[way](self, loader)
        except (Broken, KeyboardInterrupt):
            pass
        except RuntimeError as error:  # a worker that the alarm has reached as well
            if way != "interrupted":
                raise
            told += f" ({error})"
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            faulthandler.cancel_dump_traceback_later()
        gc.collect()  # torch ends a loader that raised in 5 seconds: here, not in a thread that collects by chance
        self.counts[way] += 1
        return told

    def whole(self) -> None:
        """Run an epoch to its end.

        Raises:
            AssertionError: a batch is not the loader's.
        """
        loader, told = self._loader()
        if self._random.random() < 0.5:
            found = [_checked(*batch) for batch in self._queue(loader)]
        else:
            found = [each for group in accel.sink(_checked, 3, device="cpu")(loader) for each in group]
        assert torch.cat(found).tolist() == list(range(EXAMPLES)), told

    def _loader(self, bad: int | None = None) -> tuple[DataLoader[Any], str]:
        workers, images = self._random.choice((0, 1, 2)), self._random.random() < 0.3
        persistent = workers > 0 and self._random.random() < 0.3
        data = (Images if images else Examples)(bad)
        made: DataLoader[Any] = DataLoader(data, BATCH, num_workers=workers, persistent_workers=persistent)
        return made, f"{workers} workers{', persistent' * persistent}{', images' * images}"

    def _queue(self, loader: DataLoader[Any]) -> Any:
        return accel.device_queue(loader, "cpu", self._random.choice((1, 2, 3, 5)))

    def _some(self) -> int:
        return self._random.randrange(EXAMPLES // BATCH)

    def left(self, loader: DataLoader[Any]) -> None:
        """``break``."""
        for batch in islice(self._queue(loader), self._some()):
            _checked(*batch)

    def dropped(self, loader: DataLoader[Any]) -> None:
        """An iterator that nobody asks for a batch; perhaps when the queue is full."""
        iterator = iter(self._queue(loader))
        time.sleep(self._random.choice((0, 0.1)))
        del iterator

    def two(self, loader: DataLoader[Any]) -> None:
        """Two queues at once, left one behind the other; of the same loader, if its workers do not persist."""
        other = loader if not loader.persistent_workers else self._loader()[0]
        for _ in islice(zip(self._queue(loader), self._queue(other), strict=True), self._some()):
            pass

    def raises(self, loader: DataLoader[Any]) -> None:
        """An error in the loader, at any batch."""
        if self._random.random() < 0.5:
            for _ in self._queue(loader):
                pass
        else:
            self._sunk(loader, lambda: None)

    def step_raises(self, loader: DataLoader[Any]) -> None:
        """An error in a step; the next ``next()`` raises it."""
        self._sunk(loader, self._raising(Broken("step")))

    def interrupted(self, loader: DataLoader[Any]) -> None:
        """Ctrl-C, wherever the main thread is in an epoch. (In the start of workers, torch leaks by itself.)"""
        iterator = iter(self._queue(loader)) if self._random.random() < 0.5 else self._groups(loader, lambda: None)
        signal.setitimer(signal.ITIMER_REAL, self._random.uniform(0.001, 0.1))
        for _ in iterator:
            time.sleep(0.005)

    def in_the_step(self, loader: DataLoader[Any]) -> None:
        """Ctrl-C in a step."""
        self._sunk(loader, self._raising(KeyboardInterrupt()))

    def _raising(self, error: BaseException) -> Callable[[], None]:
        """What raises at one of the first calls: a replay calls nothing."""
        calls = iter(range(self._random.randrange(3), -1, -1))

        def on_call() -> None:
            if not next(calls, 0):
                raise error

        return on_call

    def in_the_body(self, loader: DataLoader[Any]) -> None:
        """An error in the loop's body, with a traceback that holds all its frames for a while."""
        for number, _ in enumerate(self._groups(loader, lambda: None)):
            if number >= 1:
                raise Broken("body")

    def _sunk(self, loader: DataLoader[Any], on_call: Callable[[], None]) -> None:
        for _ in self._groups(loader, on_call):
            pass

    def _groups(self, loader: DataLoader[Any], on_call: Callable[[], None]) -> Iterator[Any]:
        size = 3 * 16 * 16 if isinstance(loader.dataset, Images) else 6
        groups: Iterator[Any] = _training(self._device, size, self._random.choice((1, 3, -1)), on_call)(loader)
        return groups


def _training(device: TapeDevice, size: int, steps: int, on_call: Callable[[], None]) -> Any:
    """A sink of a small training; ``on_call``: called in each step that is not a replay."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(size, 4), nn.Dropout(0.2))
    optimizer, hidden = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), Hidden(device)

    def step(images: torch.Tensor, *labels: torch.Tensor) -> Any:
        on_call()
        with hidden.device.drawing():
            optimizer.zero_grad()
            loss = model(images).square().mean()
            loss.backward()
            optimizer.step()
        return loss

    return accel.sink(step, steps)


def _checked(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    assert images.dim() > 2 or torch.equal(images[:, 0].long(), labels), "other values"
    return labels.clone()


WAYS: dict[str, Callable[[Interruptions, DataLoader[Any]], None]] = {
    "break": Interruptions.left,
    "dropped": Interruptions.dropped,
    "two queues": Interruptions.two,
    "the loader raises": Interruptions.raises,
    "the step raises": Interruptions.step_raises,
    "interrupted": Interruptions.interrupted,
    "interrupted in the step": Interruptions.in_the_step,
    "the body raises": Interruptions.in_the_body,
}


def settled(before: Use) -> Use:
    """This process's use when what was left has ended, or after some seconds."""
    ends = time.monotonic() + _WAITING
    while True:
        gc.collect()
        use = Use.of(os.getpid())
        if time.monotonic() > ends or (
            not multiprocessing.active_children() and use.threads <= before.threads and use.files <= before.files
        ):
            return use
        time.sleep(0.05)


def _threads() -> str:
    return ", ".join(sorted(each.name for each in threading.enumerate()))


def interrupted(args: argparse.Namespace, device: TapeDevice) -> list[str]:
    """What grew, or went wrong, over random interruptions."""
    interruptions = Interruptions(device, args.seed)
    for _ in range(40):  # the first ones import, compile and start accel's own threads
        interruptions.one()
        interruptions.whole()
    before = settled(Use(0, 0, 0, 0, 0))
    screen.note(f"threads: {_threads()}")
    found, interruptions.counts = list[str](), Counter()
    with screen.Bar("interruptions", args.interruptions) as bar:
        for number in range(args.interruptions):
            told = interruptions.one()
            if number % 10 == 9:
                interruptions.whole()
                after = settled(before)
                if (after.threads, after.files, after.named) > (before.threads, before.files, before.named):
                    found.append(f"by interruption {number} ({told}): {before} to {after}; {_threads()}")
                    screen.fail("sink_soak", found[-1])
                    before = after
            bar.advance()
    left = [each.name for each in multiprocessing.active_children()]
    if left:
        found.append(f"processes were left: {left}")
        screen.fail("sink_soak", found[-1])
    show(Table("interruptions", ("", "number"), [(name, str(many)) for name, many in interruptions.counts.items()]))
    screen.note(f"MB in memory, of it shared; threads; files, in /dev/shm: before {before}, after {after}")
    return found


def batches(args: argparse.Namespace, device: TapeDevice) -> list[str]:
    """What grew over many batches of one queue and one sink."""
    wrong = []
    for name in ("device_queue", "sink"):
        uses = []
        data = torch.utils.data.TensorDataset(torch.randn(args.batches * BATCH // EPOCHS, 6))
        loader: DataLoader[Any] = DataLoader(data, BATCH, num_workers=1, persistent_workers=True)
        queue, sink = accel.device_queue(loader, "cpu"), _training(device, 6, 100, lambda: None)
        with screen.Bar(f"{name}, batches", EPOCHS) as bar:
            for _ in range(EPOCHS):
                for found in queue if name == "device_queue" else sink(loader):
                    found[0].sum()  # else its copy waits for ever
                gc.collect()
                uses.append(Use.of(os.getpid()))
                bar.advance()
        if name == "sink":
            screen.note(repr(sink))
        growth, grown = grew(uses, args.percent)
        screen.note(f"{name}: {growth:+.2%} after epoch 5 of {EPOCHS}, {len(loader)} batches each; {uses[-1]}")
        for each in grown:
            wrong.append(f"{name}: {each}")
            screen.fail("sink_soak", wrong[-1])
    return wrong


@command("sink_soak")
def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.sink_soak", description=str(__doc__).partition("\n")[0])
    parser.add_argument("--interruptions", type=at_least(10), default=500, metavar="N", help="[%(default)s]")
    parser.add_argument("--batches", type=at_least(100), default=10_000, metavar="N", help="[%(default)s]")
    parser.add_argument("--percent", type=float, default=2, help="growth allowed after epoch 5 [%(default)s]")
    parser.add_argument("--seed", type=int, default=0, help="[%(default)s]")
    args = parser.parse_args(argv)
    if not Path("/proc/self/status").exists():
        raise WrongUsage("needs /proc, that is, Linux")
    torch.set_num_threads(1)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    with stand_in() as device, accel.image_backend("cuda", device="cpu"):
        found = interrupted(args, device) + batches(args, device)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
