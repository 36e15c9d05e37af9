"""``python -m accel verify``: compare the user's own images through torchvision and through a backend."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from heapq import nlargest
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torchvision import transforms
from torchvision.datasets import folder as torchvision_folder
from torchvision.transforms import v2

import accel
from accel.cli import contact_sheet, screen
from accel.cli.arguments import at_least, backend_of
from accel.cli.data import open_folder
from accel.cli.error_stats import Different, ErrorStats
from accel.cli.harness import computed, device
from accel.cli.pipelines import PIPELINES
from accel.cli.tables import Table, show
from accel.errors import attempt
from accel.ops import OPS
from accel.testing import run_op

Side = tuple[str, dict[str, Any], torch.device]
"""A backend, its options, and where it computes."""
Pipeline = Sequence[Callable[[Any], Any]]
"""Functions from a PIL image to an image or a tensor, which are applied to a folder's images in turn."""


def add_parser(commands: Any) -> None:
    """Add this command to the command line."""
    parser = commands.add_parser(
        "verify",
        help="compare a folder's images, through torchvision and through a backend",
        description="Run every image of a folder through torchvision and through an image backend: every op of "
        "accel's table, and the standard pipelines. Print the largest difference of each, and write a contact sheet "
        "of the worst images: torchvision, accel, and 32 times their difference.",
        epilog="Exit status: 0 all equal (with --inexact, any difference), 1 different, 2 wrong usage.",
    )
    add = parser.add_argument
    add("folder", type=Path, metavar="DIR", help="an ImageFolder tree or a flat folder of images")
    add("--backend", default="auto", metavar="NAME", help="what to compare with [%(default)s]")
    add("--device", metavar="DEVICE", help="where an accelerator's backend computes [the first GPU]")
    add("--inexact", action="store_true", help="let the backend differ (exact=False), and say by how much")
    add("--limit", type=at_least(1), metavar="N", help="use N images of the folder [all]")
    add("--worst", type=at_least(1), default=8, metavar="N", help="images on the sheet [%(default)s]")
    add("--sheet", type=Path, default=Path("verify.png"), metavar="FILE", help="the contact sheet [%(default)s]")
    add("--json", type=Path, metavar="FILE", help="write all figures to FILE")
    parser.set_defaults(run=run)


class Failure(NamedTuple):
    """An image that failed on one side only, or whose result has another shape or dtype."""

    file: str
    pipeline: str
    reason: str


def run(args: argparse.Namespace) -> int:
    options: dict[str, Any] = {"exact": False} if args.inexact else {}
    if args.device is not None:
        options["device"] = args.device
    backend = backend_of(args.backend, options)
    data = open_folder(args.folder, limit=args.limit)
    for text in data.notes:
        screen.note(text)
    pipelines = standard()
    rows = {name: ErrorStats(least=0) for name in pipelines}
    worst, failures = list[contact_sheet.Row](), list[Failure]()
    target = torch.device(args.device or device())
    with screen.Bar("comparing", len(data.files)) as bar:
        for number, file in enumerate(data.files):
            made = list(_compare(file, number, pipelines, rows, (backend, options, target)))
            failures += [each for each in made if isinstance(each, Failure)]
            shown = [each for each in made if isinstance(each, contact_sheet.Row)]
            worst = most(args.worst, [*worst, *most(1, shown)])
            bar.advance()
    _show(rows, failures, backend, data.name)
    if worst:
        args.sheet.parent.mkdir(parents=True, exist_ok=True)
        contact_sheet.make(worst, backend).save(args.sheet)
        screen.note(f"contact sheet written to {args.sheet}")
    if args.json:
        found = {
            name: {"images": row.images, "equal": row.equal, "worst": row.worst, **row.as_data()}
            for name, row in rows.items()
        }
        failed = [failure._asdict() for failure in failures]
        screen.write_json(args.json, {"backend": backend, "options": options, "rows": found, "failures": failed})
    same = all(row.largest == 0 for row in rows.values())
    return int(bool(failures) or not (same or args.inexact))


def most(count: int, rows: list[contact_sheet.Row]) -> list[contact_sheet.Row]:
    """The ``count`` rows with the largest differences, the largest first."""
    return nlargest(count, rows, key=lambda row: row.highest)


def standard() -> dict[str, Pipeline]:
    """The ops of the table, each with its samples in turn, and the standard pipelines."""
    crop, floats = transforms.RandomResizedCrop(224), transforms.ToTensor()
    jitter = transforms.ColorJitter(0.4, 0.4, 0.4, 0.1)
    to_floats = [v2.ToDtype(torch.float32, scale=True), v2.ToPureTensor()]
    pipelines = {
        **{f"{name} pipeline": make() for name, make in PIPELINES.items()},
        "train pipeline, v2 tensors": v2.Compose(
            [v2.ToImage(), v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip(), *to_floats]
        ),
        "ColorJitter pipeline": transforms.Compose([crop, jitter, floats]),
        "RandAugment pipeline": transforms.Compose([crop, transforms.RandAugment(), floats]),
    }
    ops = {name: [partial(run_op, op, params) for params in op.samples] for name, op in OPS.items()}
    return {"decode": [lambda image: image], **ops, **{name: [each] for name, each in pipelines.items()}}


def _compare(
    file: str, number: int, pipelines: dict[str, Pipeline], rows: dict[str, ErrorStats], ours: Side
) -> Iterator[Failure | contact_sheet.Row]:
    """Compare one file in all pipelines."""
    name, plain = Path(file).name, ("torchvision", dict[str, Any](), torch.device("cpu"))
    for pipeline, ways in pipelines.items():
        if not ways:
            continue
        wanted, found = (_outcome(file, number, ways[number % len(ways)], side) for side in (plain, ours))
        try:
            if isinstance(wanted, torch.Tensor) and isinstance(found, torch.Tensor):
                highest = rows[pipeline].add(wanted, found, name)
                yield contact_sheet.Row(name, pipeline, wanted, found, highest)
            elif isinstance(found, Exception) and not isinstance(wanted, Exception):
                yield Failure(name, pipeline, f"accel raises {type(found).__name__}: {found}")
            elif isinstance(wanted, Exception) and not isinstance(found, Exception):
                yield Failure(name, pipeline, f"only torchvision raises {type(wanted).__name__}: {wanted}")
        except Different as error:
            yield Failure(name, pipeline, error.what)


def _outcome(file: str, seed: int, function: Callable[[Any], Any], side: Side) -> torch.Tensor | Exception:
    """The result as a tensor on the host, or the exception."""
    backend, options, target = side
    with accel.image_backend(backend, **options):
        return attempt(computed, lambda: function(torchvision_folder.default_loader(file)), seed, target)


def _show(rows: dict[str, ErrorStats], failures: list[Failure], backend: str, folder: str) -> None:
    columns = ("", "images", "equal", "largest", "mean", "values that differ", "worst file")
    lines = []
    for name, row in rows.items():
        share = f"{row.differing / row.values:.3%}" if row.differing else "0"
        lines.append((name, str(row.images), str(row.equal), f"{row.largest:.4g}", f"{row.mean:.4g}", share, row.worst))
    show(Table(f"{folder}: torchvision and accel, {backend}; levels of uint8", columns, lines))
    for failure in failures:
        screen.fail("verify", f"{failure.file}, {failure.pipeline}: {failure.reason}")
