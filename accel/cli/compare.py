"""``python -m accel compare``: the standard ImageNet pipeline, with and without accel."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

from accel.cli import harness, machine, screen
from accel.cli.arguments import Red, at_least, backend_of
from accel.cli.data import Data, folder, open_folder
from accel.cli.error_stats import ANOTHER_PICTURE, ErrorStats
from accel.cli.harness import Contestant, from_loader
from accel.cli.pipelines import LEVELS, PIPELINES
from accel.cli.tables import Table, show
from accel.system.cores import cores


def add_parser(commands: Any) -> None:
    """Add this command to the command line."""
    parser = commands.add_parser(
        "compare",
        help="run the standard ImageNet pipeline with and without accel",
        description="Run the standard ImageNet pipeline through ImageFolder and DataLoader under torchvision and "
        "under an image backend, in turns. Check that all tensors and labels are equal, then show the speeds.",
        epilog="Exit status: 0 all equal, 1 different (no speeds are shown), 2 wrong usage.",
    )
    add = parser.add_argument
    add("--data", type=Path, metavar="DIR", help="an ImageFolder tree or a flat folder of images [made for the run]")
    add(
        "--pipeline",
        choices=PIPELINES,
        default="train",
        help="train: RandomResizedCrop(224), RandomHorizontalFlip; eval: Resize(256), CenterCrop(224); "
        "then ToTensor, Normalize [%(default)s]",
    )
    add("--backend", default="auto", metavar="NAME", help="what to compare with [%(default)s]")
    workers = "DataLoader's num_workers, for both [%(default)s]"
    add("--workers", type=at_least(0), default=min(2, cores()), metavar="N", help=workers)
    add("--batch-size", type=at_least(1), default=50, metavar="N", help="[%(default)s]")
    add("--rounds", type=at_least(1), default=3, metavar="N", help="epochs of each; medians are shown [%(default)s]")
    add("--limit", type=at_least(1), metavar="N", help="use N images of the folder [all]")
    threads = "threads of torch and of the backend in this process [one for each core]"
    add("--threads", type=at_least(1), metavar="N", help=threads)
    add(
        "--exact",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="the backend's option; --no-exact: all tensors may differ a little, and by how much is shown [--exact]",
    )
    add("--json", type=Path, metavar="FILE", help="write all figures to FILE")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    options: dict[str, Any] = {} if args.threads is None else {"threads": args.threads}
    if not args.exact:
        options["exact"] = False
    backend = backend_of(args.backend, options)
    with folder(args.data) as (root, name):
        data = open_folder(root, PIPELINES[args.pipeline](), args.limit)._replace(name=name)
        return _compare(args, data, backend, options)


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
    with screen.Bar("checking that all tensors are " + ("equal" if args.exact else "alike"), len(epoch.order)) as bar:
        different = harness.check([plain, ours], bar.advance).get(ours.name)
    if different is None:
        try:
            with screen.Bar("measuring", 2 * args.rounds) as bar:
                harness.measure([plain, ours], args.rounds, lambda name: bar.advance())
        except Red as error:
            (different,) = error.args
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
