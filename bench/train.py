"""``python -m bench.train``: training end to end, with and without accel, and the time that the model waits for data.

An unchanged torchvision training loop: ImageFolder, transforms, DataLoader, a model, SGD; on CUDA with automatic mixed
precision and channels_last. Backends take turns, an epoch each, from the same seeds; their losses must be equal if a
backend is exact and the device's own arithmetic is deterministic.

With ``--sink``, the same loop beside ``accel.device_queue`` and ``accel.sink``, with bfloat16 and a fused optimizer.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import models

import accel
from accel.cli import screen
from accel.cli.arguments import Red, WrongUsage, at_least, command
from accel.cli.costs import ratio, take_turns
from accel.cli.data import Data, folder, open_folder
from accel.cli.harness import Contestant, backend_of, check, device, from_loader
from accel.cli.pipelines import PIPELINES
from accel.cli.tables import show
from accel.system.cores import cores
from bench.machine import comma_separated, known, parser, write
from bench.measure import Fed, fed
from bench.tables import tables

MODELS = {
    "resnet18": models.resnet18,
    "resnet50": models.resnet50,
    "shufflenet": models.shufflenet_v2_x1_0,
    "mobilenet": models.mobilenet_v3_large,
}
"""The models, by name."""


class Training:
    """A model in training.

    Args:
        seed: of its initial weights. scaled: float16 with a scaler on CUDA, as usual; else bfloat16 and a fused
            optimizer, which can be captured.

    Attributes:
        losses: of the last epoch. sink: which ran it, if one did.
    """

    def __init__(self, name: str, classes: int, target: torch.device, seed: int = 0, scaled: bool = True) -> None:
        torch.manual_seed(seed)
        self._device = target
        self._amp = target.type == "cuda"
        self._dtype = torch.float16 if scaled else torch.bfloat16
        self._model = MODELS[name](num_classes=classes).to(target, memory_format=torch.channels_last).train()
        self._optimizer = torch.optim.SGD(
            self._model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4, fused=not scaled
        )
        self._scaler = torch.amp.GradScaler(target.type, enabled=self._amp and scaled)
        self._criterion = nn.CrossEntropyLoss()
        self.losses: list[float] = []
        self.sink: Any = None

    def step(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Forward, backward, update; return the loss, still on the device."""
        self._optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self._device.type, self._dtype) if self._amp else nullcontext():
            loss = self._criterion(self._model(images), labels)
        self._scaler.scale(loss).backward()
        self._scaler.step(self._optimizer)
        self._scaler.update()
        return loss.detach()  # type: ignore[no-any-return]

    def epoch(self, batches: Iterable[Any], warm_up: int = 1) -> Fed:
        """Train on all batches, without measuring the first ones; waiting ends when a batch is on the device."""
        losses: list[torch.Tensor] = []

        def use(batch: Sequence[torch.Tensor]) -> int:
            losses.append(self.step(*batch))
            return len(batch[1])

        moved = ([tensor.to(self._device, non_blocking=True) for tensor in batch] for batch in batches)
        found = fed(moved, use, warm_up, self._settle)
        self.losses = [float(loss) for loss in losses]
        return found

    def sunk(self, batches: DataLoader[Any], steps: int) -> Fed:
        """Train on all batches by ``accel.sink``, without measuring the first group; no waiting is seen."""
        losses: list[torch.Tensor] = []

        def use(group: torch.Tensor) -> int:
            losses.append(group)
            return len(group) * (batches.batch_size or 1)

        self.sink = accel.sink(self.step, steps, device=self._device)
        found = fed(self.sink(batches), use, 1, self._settle)
        self.losses = torch.cat(losses).tolist()
        return found

    def _settle(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


@command("train")
def main(argv: Sequence[str] | None = None) -> int:
    """Train. Exit status: 0 measured, 1 tensors differ (nothing is reported), 2 wrong usage."""
    options = _parser()
    args = options.parse_args(argv)
    if args.sink and args.out == options.get_default("out"):
        args.out = args.out.with_name("sink.json")
    known("model", args.models, MODELS)
    for backend in args.backend:
        backend_of(backend, {})
    with folder(args.data) as (root, name):
        data = open_folder(root, PIPELINES["train"](), args.images)._replace(name=name)
        if device().type == "cuda":
            data = data.repeated()  # not on the CPU, which takes long enough
        if len(data.order) < 2 * args.batch_size:
            raise WrongUsage(f"{len(data.order)} images are less than two batches of {args.batch_size}")
        part = (_sink if args.sink else _train)(args, data)
    given = [*args.models, f"--workers {args.workers}", *(["--sink"] if args.sink else [])]
    result = {
        "command": "python -m bench.train " + " ".join(given),
        "data": {"name": data.name, "images": len(data.dataset.samples)},
        "rounds": args.rounds,
        "workloads": {"sinking" if args.sink else "training": part},
    }
    for table in tables(part):
        show(table)
    write(args.out, result)
    return 0


def _train(args: argparse.Namespace, data: Data) -> dict[str, Any]:
    """Check that all backends make the same batches, then train under each in turns.

    Raises:
        Red: they do not.
    """
    target = device()
    how = {"batch_size": args.batch_size, "num_workers": args.workers, "drop_last": True}
    plain = from_loader("torchvision", data, "torchvision", {}, how)
    backends = [each for each in args.backend if each != "torchvision"]
    contestants = [plain, *(from_loader(backend, data, backend, {}, how, reference=plain) for backend in backends)]
    with screen.Bar("checking that all tensors are equal", len(data.order)) as bar:
        for difference in check(contestants, bar.advance).values():
            raise Red(difference)

    def turn(number: int, contestant: Contestant, model: str) -> dict[str, Any]:
        training = Training(model, max(len(data.dataset.classes), 2), target)
        with contestant.in_force():
            return {**training.epoch(contestant.epoch(number))._asdict(), "losses": training.losses}

    rows = []
    with screen.Bar("training", len(args.models) * args.rounds * len(contestants)) as bar:
        for model in args.models:
            turns = {each.name: partial(turn, contestant=each, model=model) for each in contestants}
            epochs = take_turns(turns, args.rounds, lambda name: bar.advance())
            plain_ones = epochs["torchvision"]
            rows += [_row(model, "backend", each, some, plain_ones, "torchvision's") for each, some in epochs.items()]
    return {
        "title": f"training end to end on {_where(target)}, {args.workers} workers, batches of {args.batch_size}",
        "images": len(data.order),
        "training": rows,
    }


WAYS = ("plain loop", "accel.device_queue", "accel.sink")


def fed_by(way: str, training: Training, batches: DataLoader[Any], target: torch.device, steps: int) -> Fed:
    """Train on all batches in one of ``WAYS``, without measuring the first ``steps``."""
    if way == "accel.sink":
        return training.sunk(batches, steps)
    return training.epoch(accel.device_queue(batches, target) if way == "accel.device_queue" else batches, steps)


def _sink(args: argparse.Namespace, data: Data) -> dict[str, Any]:
    """Train in all ways under the first backend, in turns.

    Raises:
        Red: on the host, losses differ from the plain loop's.
    """
    target, backend = device(), backend_of(args.backend[0], {})
    batches = len(data.order) // args.batch_size
    steps = min(100, batches // 2)
    options = {"device": str(target)} if backend == "cuda" else {}

    def turn(number: int, way: str, model: str) -> dict[str, Any]:
        training = Training(model, max(len(data.dataset.classes), 2), target, scaled=False)
        with accel.image_backend(backend, **options):
            how = {"num_workers": args.workers, "drop_last": True, "pin_memory": target.type == "cuda"}
            torch.manual_seed(number)
            loader = DataLoader(data.dataset, args.batch_size, sampler=data.order, **how)
            found = fed_by(way, training, loader, target, steps)
        told = {name: getattr(training.sink, name, None) for name in ("reason", "replayed")}
        return {**found._asdict(), "losses": training.losses, **told}

    rows = []
    with screen.Bar("training", len(args.models) * args.rounds * len(WAYS)) as bar:
        for model in args.models:
            turns = {way: partial(turn, way=way, model=model) for way in WAYS}
            epochs = take_turns(turns, args.rounds, lambda way: bar.advance())
            first = epochs[WAYS[0]]
            rows += [_row(model, "way", way, some, first, "the plain loop's") for way, some in epochs.items()]
    if target.type == "cpu" and not all(row["losses are the plain loop's"] for row in rows):
        raise Red("losses differ from the plain loop's")
    return {
        "title": f"training on {_where(target)}, {args.workers} workers, batches of {args.batch_size}; "
        f"groups of {steps} steps, of which the first is not measured",
        "images": len(data.order),
        "sinking": rows,
    }


def _where(target: torch.device) -> str:
    return torch.cuda.get_device_name(target) if target.type == "cuda" else f"{cores()} CPU cores"


def _row(
    model: str, kind: str, name: str, epochs: list[dict[str, Any]], first: list[dict[str, Any]], whose: str
) -> dict[str, Any]:
    return {
        "model": model,
        kind: name,
        "images per second": median(epoch["rate"] for epoch in epochs),
        "ratio": ratio([epoch["rate"] for epoch in first], [epoch["rate"] for epoch in epochs]),
        "waiting": median(epoch["waiting"] for epoch in epochs),
        "CPU ms": 1000 * median(epoch["cpu_seconds"] for epoch in epochs),
        f"losses are {whose}": all(a["losses"] == b["losses"] for a, b in zip(epochs, first, strict=True)),
        "rounds": epochs,
    }


def _parser() -> argparse.ArgumentParser:
    options = parser(
        "bench.train",
        "Train models on an ImageFolder under torchvision and under accel's backends, in turns. All batches are "
        "compared first: where one differs, nothing is reported and the exit status is 1.",
        out="train.json",
        rounds=3,
        least=(4, 1),
    )
    models, backends = f"{', '.join(MODELS)} [resnet18]", "accel's backends, beside torchvision [auto]"
    options.add_argument("models", nargs="*", default=["resnet18"], metavar="MODEL", help=models)
    options.add_argument("--backend", type=comma_separated, default=["auto"], metavar="NAME,...", help=backends)
    options.add_argument("--workers", type=at_least(0), default=2, metavar="N", help="DataLoader's [%(default)s]")
    options.add_argument("--batch-size", type=at_least(2), default=50, metavar="N", help="[%(default)s]")
    sink = "instead, under the first backend: the plain loop, accel.device_queue, and accel.sink [results/sink.json]"
    options.add_argument("--sink", action="store_true", help=sink)
    return options


if __name__ == "__main__":
    sys.exit(main())
