"""``python -m accel verify``: compare the user's own images through torchvision and through a backend."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.utils.data import default_collate
from torchvision import transforms
from torchvision.datasets import folder as torchvision_folder
from torchvision.transforms import functional as F
from torchvision.transforms import v2

import accel
from accel.cli import contact_sheet, pairs, screen
from accel.cli.arguments import WrongUsage
from accel.cli.data import open_folder
from accel.cli.error_stats import Different, ErrorStats
from accel.cli.harness import backend_of, compiling, computed, device, torch_threads
from accel.cli.pipelines import PIPELINES
from accel.cli.tables import Table, show
from accel.errors import attempt
from accel.ops import OPS, Op, Params
from accel.ops.row import KernelOp
from accel.testing import run_op

Side = tuple[str, dict[str, Any], torch.device]
"""A backend, its options, and where it computes."""
Pipeline = Sequence[Callable[[Any], Any]]
"""Functions from a PIL image to an image or a tensor, which are applied to a folder's images in turn."""

_LEAST, _SECONDS = 20, 120
"""The images that every op is tried on, and how long it is then tried on others."""
_NAMED = 8


class Failure(NamedTuple):
    """An image that failed on one side only, or whose result has another shape or dtype."""

    file: str
    pipeline: str
    reason: str


class Subject:
    """An op or a pipeline: its differences, and the images that it was tried on or is still to be tried on.

    Attributes:
        tried: the number of images that were compared; torchvision may refuse others.
        left: whether there are images left.
    """

    def __init__(self, name: str, ways: Pipeline, places: Iterator[int]) -> None:
        self.name, self.stats = name, ErrorStats(least=0)
        self.tried, self.left = 0, True
        self._ways, self._places, self._attempts = ways, places, 0

    def turn(self, files: Sequence[str], ours: Side, give_up: int) -> Failure | contact_sheet.Pictures | None:
        """Compare the next image; None: there is none, or both sides refuse it (or the first ``give_up``)."""
        place = next(self._places, None)
        if place is None or (not self.tried and self._attempts == give_up):
            self.left = False
            return None
        way = self._ways[pairs.sample(self._attempts, len(self._ways))]
        self._attempts += 1
        file, name = files[place], Path(files[place]).name
        plain = ("torchvision", dict[str, Any](), torch.device("cpu"))
        expected, found = (_outcome(file, place, way, side) for side in (plain, ours))
        if isinstance(expected, Exception) and isinstance(found, Exception):
            return None
        self.tried += 1
        if isinstance(found, Exception):
            return Failure(name, self.name, f"accel raises {type(found).__name__}: {found}")
        if isinstance(expected, Exception):
            return Failure(name, self.name, f"only torchvision raises {type(expected).__name__}: {expected}")
        try:
            highest = self.stats.add(expected, found, name)
        except Different as error:
            return Failure(name, self.name, error.what)
        if not highest and not torch.equal(
            *(each.contiguous().view(-1).view(torch.uint8) for each in (expected, found))
        ):
            return Failure(name, self.name, "zeros have another sign")
        return contact_sheet.Pictures(name, self.name, expected, found, highest)


class Outcome(NamedTuple):
    """What was found: the subjects that were tried, failures, and the pictures."""

    subjects: list[Subject]
    failures: list[Failure]
    worst: list[contact_sheet.Pictures]

    @property
    def different(self) -> list[str]:
        """The names of ops and pipelines that differ or fail."""
        failed = {failure.pipeline for failure in self.failures}
        return [subject.name for subject in self.subjects if subject.stats.largest or subject.name in failed]


def run(args: argparse.Namespace) -> int:
    options: dict[str, Any] = {"exact": False} if args.inexact else {}
    if args.device is not None:
        options["device"] = args.device
    with screen.Bar(f"preparing the backend {args.backend!r}"):
        backend = backend_of(args.backend, options)
        data = open_folder(args.folder, limit=args.limit)
        groups = pairs.kinds(data.files)
    for text in data.notes:
        screen.note(text)
    pipelines = standard()
    subjects = [
        Subject(name, ways, pairs.pictures(groups, number, len(pipelines)))
        for number, (name, ways) in enumerate(pipelines.items())
    ]
    ours = (backend, options, torch.device(args.device or device()))
    with torch_threads(1):  # as in a DataLoader's workers; more would wait for each other on these small tensors
        found = compare(subjects, data.files, ours, None if args.all else _SECONDS, args.worst)
    if not found.subjects:
        raise WrongUsage(f"nothing was compared: torchvision refuses all {len(data.files)} images in {args.folder}")
    _show(found, backend, data.name)
    if refused := [subject.name for subject in subjects if not subject.tried]:
        screen.note(f"torchvision itself refuses all images that were tried in: {', '.join(refused)}")
    shown = [each for each in found.worst if each.highest or args.picture]
    if shown:
        args.sheet.parent.mkdir(parents=True, exist_ok=True)
        contact_sheet.make(shown, backend).save(args.sheet)
        screen.note(f"picture written to {args.sheet}")
    tried, possible = sum(subject.tried for subject in subjects), len(subjects) * len(data.files)
    if args.json:
        _write(args.json, found, {"backend": backend, "options": options, "tried": tried, "of": possible})
    different = found.different
    fewest = min(subject.tried for subject in found.subjects)
    several = f"{tried} of {possible} (op, image) pairs tried, {fewest} or more of each op"
    if found.failures or (different and not args.inexact):
        screen.fail("verify", f"different: {', '.join(different)}")
        screen.say(f"DIFFERENT in {len(different)} of {len(found.subjects)}: {several}", "bold red")
        return 1
    largest = max(subject.stats.largest for subject in subjects)
    how = f"at most {largest:.4g} levels apart" if args.inexact else "equal in every bit"
    screen.say(f"{how}: {several}", "bold green")
    return 0


def compare(
    subjects: Sequence[Subject], files: Sequence[str], ours: Side, seconds: float | None, worst: int
) -> Outcome:
    """Try every subject on at least 20 images, and then on others until the seconds have passed; None: on all.

    Args:
        worst: how many pictures to keep.
    """
    found = Outcome([], [], [])
    least = len(files) if seconds is None else min(_LEAST, len(files))
    end = time.monotonic() + (seconds or 0)

    def turn(subject: Subject, bar: screen.Bar) -> None:
        before, made = subject.tried, subject.turn(files, ours, least)
        bar.advance(subject.tried - before)
        if isinstance(made, Failure):
            found.failures.append(made)
        elif made is not None:
            found.worst[:] = most(worst, [*found.worst, made])

    title = f"comparing, every op on {least} images"
    with screen.Bar(title, least * len(subjects)) as bar, compiling(bar, title):
        while some := [subject for subject in subjects if subject.left and subject.tried < least]:
            for subject in some:
                turn(subject, bar)
    if time.monotonic() < end and any(subject.left for subject in subjects):
        with screen.Bar("comparing more images until two minutes have passed") as bar:
            for subject in _in_turn(subjects):
                if time.monotonic() >= end:
                    break
                turn(subject, bar)
    found.subjects.extend(subject for subject in subjects if subject.tried)
    return found


def _in_turn(subjects: Sequence[Subject]) -> Iterator[Subject]:
    while some := [subject for subject in subjects if subject.left]:
        yield from some


def most(count: int, pictures: Sequence[contact_sheet.Pictures]) -> list[contact_sheet.Pictures]:
    """The ``count`` pictures with the largest differences, one of each op, the largest first."""
    ops: dict[str, contact_sheet.Pictures] = {}
    for each in sorted(pictures, key=lambda each: each.highest):
        ops[each.pipeline] = each
    return sorted(ops.values(), key=lambda each: -each.highest)[:count]


def standard() -> dict[str, Pipeline]:
    """The ops of the table, each with its samples in turn, and pipelines, which have the ops without samples."""
    crop, floats = transforms.RandomResizedCrop(224), transforms.ToTensor()
    jitter, contrast = transforms.ColorJitter(0.4, 0.4, 0.4, 0.1), transforms.ColorJitter(contrast=0.4)
    to_floats = [v2.ToDtype(torch.float32, scale=True), v2.ToPureTensor()]
    linear = transforms.LinearTransformation(torch.eye(48) * 2, torch.ones(48))
    part = transforms.RandomCrop(40, pad_if_needed=True)
    pipelines = {
        **{f"{name} pipeline": make() for name, make in PIPELINES.items()},
        "train pipeline, v2 tensors": v2.Compose(
            [v2.ToImage(), v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip(), *to_floats]
        ),
        "crop of floats pipeline": transforms.Compose([floats, part, contrast]),
        "ColorJitter pipeline": transforms.Compose([crop, jitter, floats]),
        "RandAugment pipeline": transforms.Compose([crop, transforms.RandAugment(), floats]),
        "AugMix pipeline": transforms.Compose([crop, transforms.AugMix(), floats]),
        "grey pipeline": transforms.Compose([transforms.Grayscale(), floats, _rotated, part, contrast]),
        "grey pipeline, v2 tensors": v2.Compose([v2.ToImage(), v2.Grayscale(), v2.RGB()]),
        "GaussianNoise pipeline": v2.Compose([v2.ToImage(), *to_floats, v2.GaussianNoise()]),
        "LinearTransformation pipeline": transforms.Compose([transforms.Resize((4, 4)), floats, linear]),
        "MixUp pipeline": partial(_of_two, v2.MixUp(num_classes=2)),
        "CutMix pipeline": partial(_of_two, v2.CutMix(num_classes=2)),
    }
    ops = {name: ways for name, op in OPS.items() if (ways := list(_ways(op)))}
    return {"decode": [lambda image: image], **ops, **{name: [each] for name, each in pipelines.items()}}


def _ways(op: Op) -> Iterator[Callable[[Any], Any]]:
    """An op with its samples; one of torchvision's functions also behind another one, where it is run as it is."""
    for params in op.samples:
        yield partial(_run_op, op, params)
    if isinstance(op, KernelOp) and op.samples:
        yield partial(
            _run_op, replace(op, reference=lambda image, params: op.reference(_rotated(image), params)), params
        )


def _rotated(image: Any) -> Any:
    return F.rotate(image, 20.0)


def _run_op(op: Op, params: Params, image: Any) -> Any:
    """Run an op with a sample, of which a displacement is enlarged to the image's size."""
    if op.params[:1] == ("displacement",):
        grid = params[0].permute(0, 3, 1, 2)
        grid = torch.nn.functional.interpolate(grid, image.size[::-1], mode="bilinear")
        params = (grid.permute(0, 2, 3, 1), *params[1:])
    return run_op(op, params, image)


def _of_two(mix: Callable[..., Any], image: Any) -> Any:
    """A batch of two parts of an image, mixed, side by side."""
    steps = transforms.Compose([transforms.RandomResizedCrop(64), transforms.ToTensor()])
    mixed, _ = mix(*default_collate([(steps(image), 0), (steps(image), 1)]))
    return torch.cat(list(mixed.contiguous(memory_format=torch.channels_last)), dim=-1)


def _outcome(file: str, seed: int, function: Callable[[Any], Any], side: Side) -> torch.Tensor | Exception:
    """The result as a tensor on the host, or the exception."""
    backend, options, target = side
    with accel.image_backend(backend, **options):
        return attempt(computed, lambda: function(torchvision_folder.default_loader(file)), seed, target)


def _write(file: Path, found: Outcome, of: dict[str, Any]) -> None:
    subjects = {
        subject.name: {
            "images": subject.stats.images,
            "equal": subject.stats.equal,
            "worst": subject.stats.worst,
            **subject.stats.as_data(),
        }
        for subject in found.subjects
    }
    screen.write_json(file, {**of, "rows": subjects, "failures": [failure._asdict() for failure in found.failures]})


def _show(found: Outcome, backend: str, folder: str) -> None:
    columns = ("", "images", "equal", "largest", "mean", "values that differ", "worst file")
    lines = []
    for subject in found.subjects:
        stats = subject.stats
        share = f"{stats.share:.3%}" if stats.differing else "0"
        figures = (str(stats.images), str(stats.equal), f"{stats.largest:.4g}", f"{stats.mean:.4g}", share)
        lines.append((subject.name, *figures, stats.worst))
    show(Table(f"{folder}: torchvision and accel, {backend}; levels of uint8", columns, lines))
    for failure in found.failures[:_NAMED]:
        screen.fail("verify", f"{failure.file}, {failure.pipeline}: {failure.reason}")
    if found.failures[_NAMED:]:
        screen.fail("verify", f"and {len(found.failures) - _NAMED} failures more")
