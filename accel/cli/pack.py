"""``python -m accel pack``: write a pack, check one, or unpack it."""

from __future__ import annotations

import argparse
import os
import time

from accel.cli import screen
from accel.cli.arguments import Red, WrongUsage
from accel.errors import PackError
from accel.packs import unpacking, writing

_SHOWN = 20


def run(args: argparse.Namespace) -> int:
    begun = time.monotonic()
    if (args.check or args.unpack) and args.lossless:
        raise WrongUsage("--lossless is for packing")
    if args.check:
        _check(args.source, args.workers)
    elif args.unpack:
        try:
            done = unpacking.unpack(args.source, args.target, screen.Bar)
        except PackError as error:
            raise Red(str(error)) from error
        screen.say(f"{done.files} files, {_speed(done.files, done.size, begun)}: {_shown(args.target)}")
    else:
        _pack(args, begun)
    return 0


def _pack(args: argparse.Namespace, begun: float) -> None:
    options = {name: getattr(args, name) for name in ("shard_size", "workers", "lossless", "idx", "wids")}
    try:
        done = writing.pack(args.source, args.target, screen.Bar, skip=args.on_error == "skip", **options)
    except PackError as error:
        raise WrongUsage(str(error)) from error
    _list(done.left_out, "left out, as ImageFolder does")
    _list(done.skipped, "skipped")
    if args.lossless:
        saving = done.saving
        sizes = f"{saving.size / 1e6:.1f} to {saving.new_size / 1e6:.1f} MB"
        times = f"{saving.seconds:.2f} to {saving.new_seconds:.2f} s of decoding by Pillow"
        note = "; of these --unpack gives the pixels, not the bytes" if saving.files else ""
        screen.say(f"{saving.files} JPEG files rewritten, {sizes}, {times}{note}; {saving.refused} refused by jpegtran")
    counts = f"{done.files} files of {done.classes} classes in {done.shards} shards"
    rest = f"{len(done.left_out)} left out, {len(done.skipped)} skipped"
    screen.say(f"{counts}, {_speed(done.files, done.size, begun)}, verified; {rest}: {_shown(args.target)}")


def _check(place: str, workers: int | None) -> None:
    try:
        faults = writing.check(place, screen.Bar, workers)
    except PackError as error:
        raise Red(str(error)) from error
    for text in faults[:_SHOWN]:
        screen.note(text)
    if faults:
        raise Red(f"{len(faults)} of the pack's files are not what its index says: {_shown(place)}")
    screen.say(f"all is as the index says: {_shown(place)}")


def _list(names: list[str], why: str) -> None:
    for name in names[:_SHOWN]:
        screen.note(f"{why}: {_shown(name)}")
    if len(names) > _SHOWN:
        screen.note(f"{why}: {len(names) - _SHOWN} more")


def _speed(files: int, size: int, begun: float) -> str:
    seconds = time.monotonic() - begun
    return f"{size / 1e6:.1f} MB: {seconds:.1f} s, {files / seconds:.0f} files/s"


def _shown(name: str) -> str:
    """A name that can be printed, whatever its bytes are."""
    return os.fsencode(name).decode(errors="replace")
