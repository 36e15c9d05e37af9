"""``python -m accel compare``: the standard ImageNet pipeline, with and without accel."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.utils.data import DataLoader

import accel
from accel.cli import harness, machine, screen
from accel.cli.arguments import Red
from accel.cli.data import Data, folder, open_folder
from accel.cli.error_stats import ANOTHER_PICTURE, ErrorStats
from accel.cli.harness import Contestant, backend_of, compiling, from_loader
from accel.cli.pipelines import LEVELS, PIPELINES
from accel.cli.tables import Table, show


def run(args: argparse.Namespace) -> int:
    options: dict[str, Any] = {} if args.threads is None else {"threads": args.threads}
    if not args.exact:
        options["exact"] = False
    with screen.Bar(f"preparing the backend {args.backend!r}"):
        backend = backend_of(args.backend, options)
    with folder(args.data) as (root, name):
        data = open_folder(root, PIPELINES[args.pipeline](), args.limit)._replace(name=name)
        if args.digest:
            return _digest(args, data, backend, options)
        return _compare(args, data, backend, options)


def _digest(args: argparse.Namespace, data: Data, backend: str, options: dict[str, Any]) -> int:
    """Show the content digest of an epoch with a fixed seed, which is the same on every machine with the same data."""
    loader = DataLoader(data.dataset, args.batch_size, sampler=data.order, num_workers=args.workers)
    with screen.Bar(f"recording {len(data.order)} images"), accel.image_backend(backend, **options):
        torch.manual_seed(0)
        found = accel.digest(loader)
    settings = (
        f"{args.pipeline} pipeline, {len(data.order)} images, {args.workers} workers, batches of {args.batch_size}"
    )
    print(f"{found}  {settings}")
    if args.json:
        screen.write_json(args.json, {"digest": found, "settings": settings, "versions": machine.versions()})
    return 0


def _compare(args: argparse.Namespace, data: Data, backend: str, options: dict[str, Any]) -> int:
    for text in data.notes:
        screen.note(text)
    epoch = data.repeated()
    stats = None if args.exact else ErrorStats(LEVELS, ANOTHER_PICTURE)
    how = {"batch_size": args.batch_size, "num_workers": args.workers}
    plain = from_loader("torchvision", epoch, "torchvision", {}, how, threads=args.threads)
    more = {"threads": args.threads, "reference": plain, "compare": partial(harness.compare, stats=stats)}
    ours = from_loader(f"accel, {backend}", epoch, backend, options, how, **more)
    result: dict[str, Any] = {
        "versions": machine.versions(),
        "machine": machine.machine(),
        "data": {"name": data.name, "images": len(data.order), "images per epoch": len(epoch.order)},
        "settings": {
            "pipeline": args.pipeline,
            "backend": backend,
            "workers": args.workers,
            "batch size": args.batch_size,
            "rounds": args.rounds,
            "torch threads": args.threads or torch.get_num_threads(),
            "options": options,
        },
    }
    images, times = len(epoch.order), len(epoch.order) // len(data.order)
    if times > 1:
        screen.note(f"an epoch has each image {times} times, so that it is long enough to be measured")
    checking = f"checking {len(data.order)} images{f', each {times} times' * (times > 1)}"
    with screen.Bar(checking, 2 * images * (1 + args.rounds), counted=False) as bar:
        with compiling(bar, checking):
            different = harness.check([plain, ours], lambda count: bar.advance(2 * count)).get(ours.name)
        if different is None:
            different = _measure(plain, ours, args.rounds, images, bar)
    result["equal"] = different is None and (stats is None or not stats.largest)
    if stats is not None:
        result["apart"] = {"largest": stats.largest, "mean": stats.mean, "share": stats.share}
    if different is not None:
        screen.fail("compare", str(different))
        result["difference"] = different._asdict() | {"file": Path(different.file).name}
    else:
        result["contestants"] = [_figures(contestant, len(epoch.order)) for contestant in (plain, ours)]
        _show(result, "all tensors and labels equal" if stats is None else f"all labels equal; {stats}")
    if args.json:
        screen.write_json(args.json, result)
    return int(different is not None)


def _measure(
    plain: Contestant, ours: Contestant, rounds: int, images: int, bar: screen.Bar
) -> harness.Difference | None:
    turns = (f"measuring {each.name}, round {n + 1} of {rounds}" for n in range(rounds) for each in (plain, ours))
    bar.say(next(turns))

    def on_turn(name: str) -> None:
        bar.advance(images)
        bar.say(next(turns, "done"))

    try:
        harness.measure([plain, ours], rounds, on_turn)
    except Red as error:
        difference: harness.Difference = error.args[0]
        return difference
    return None


def _figures(contestant: Contestant, images: int) -> dict[str, Any]:
    return {
        "name": contestant.name,
        "images per second": images / median(cost.seconds for cost in contestant.rounds),
        "host CPU ms per image": 1000 * median(cost.cpu_seconds for cost in contestant.rounds) / images,
        "first epoch seconds": contestant.first,
        "rounds": [cost._asdict() for cost in contestant.rounds],
    }


def _show(result: dict[str, Any], outcome: str) -> None:
    settings, data = result["settings"], result["data"]
    title = (
        f"{settings['pipeline']} pipeline, {data['images']} images ({data['name']}), {settings['workers']} workers, "
        f"batches of {settings['batch size']}, medians of {settings['rounds']} rounds"
    )
    rows = []
    for row in result["contestants"]:
        name, speed, cpu, first, _ = row.values()
        ratio = speed / result["contestants"][0]["images per second"]
        rows.append((name, f"{speed:.0f}", f"{ratio:.2f}x", f"{cpu:.2f}", f"{first:.1f}"))
    show(Table(title, ("", "img/s", "ratio", "host CPU ms/image", "first epoch s"), rows, [outcome]))
    screen.note("the first epoch, in which all tensors were compared, includes loading and compiling")
