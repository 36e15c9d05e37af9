"""Ray Data with and without accel: what recording elsewhere is worth, and what it sends over a slow link.

    python -m bench.ray [--data DIR] [--images N] [--rounds N] [--link MB] [--out FILE]

A cluster on this machine, which has all processes; pipelines run in turns. First everything is computed here: by
torchvision in Ray's workers, by accel in its place, and as recipes that Ray's workers record and this process computes.
All images must be equal in every bit. Then the trainer only sleeps, as long as a GPU takes for 110,000 images a second,
and a link (a token bucket over the bytes that arrive) carries recorded rows or uint8 crops that accel computes.
"""

from __future__ import annotations

import logging
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from io import BytesIO
from itertools import chain, cycle, islice
from pathlib import Path
from statistics import median
from typing import Any
from zlib import crc32

import torch
from PIL import Image
from torchvision import transforms as T

import accel
from accel import wire
from accel.cli.arguments import Red, command
from accel.cli.tables import Table, show
from accel.lazy.tensor_base import is_lazy
from accel.ray import MESSAGE, Recorder, draw_from
from accel.runtime import compute
from accel.system.imports import LazyModule
from bench import null_accelerator
from bench.epochs import photos
from bench.machine import parser, write
from bench.pipelines import MEAN, STD

_CROP = [T.RandomResizedCrop(224), T.RandomHorizontalFlip()]
_TRAIN, _UINT8 = T.Compose([*_CROP, T.ToTensor(), T.Normalize(MEAN, STD)]), T.Compose([*_CROP, T.PILToTensor()])
_RECORDER = Recorder(_TRAIN, seed=0, key="path", epoch=0)
_BATCH, _LARGE, _PER_SECOND = 128, 10, 110_000
_ray: Any = LazyModule("ray")
Columns = Mapping[str, Any]
_Arm = tuple[Callable[[Any], Any], Callable[[Any], Any]]  # for map_batches, and to collate


@command("ray")
def main(argv: Sequence[str] | None = None) -> int:
    description = (__doc__ or "").partition("\n")[0]
    arguments = parser("bench.ray", description, out="ray.json", rounds=3, images=1000)
    arguments.add_argument("--link", type=float, default=20.0, metavar="MB", help="MB a second [%(default)s]")
    args = arguments.parse_args(argv)
    os.environ["RAY_AUTH_MODE"] = "disabled"
    warnings.filterwarnings("ignore", "Passing a function to")
    with photos(args.data, args.images) as found, closing(_Cluster()):
        large = [*islice(cycle(found.large_files), max(args.images // _LARGE, 1))]
        files = [*islice(cycle(found.files), args.images)]
        computing = {name: partial(_computed, each) for name, each in _COMPUTING.items()}
        most = max(_over(path) for path in (*found.files, *found.large_files))
        both = _in_turns(computing, files, args.rounds)
        arms = {name: partial(_fed, each, _Link(1e6 * args.link)) for name, each in _SENDING.items()}
        with null_accelerator.installed():
            fed = {name: _in_turns(arms, these, args.rounds) for name, these in (("photos", files), ("large", large))}
    show(Table("images a second", ("", *both), [("both compute", *(f"{each:,.0f}" for each in both.values()))]))
    lines = [(name, *(f"{each:,.0f}" for each in found.values())) for name, found in fed.items()]
    show(Table(f"a sleeping trainer behind {args.link:,.0f} MB/s", ("", *_SENDING), lines))
    times = {name: speed / both["torchvision"] for name, speed in both.items()}
    over = {name: found["recorded"] / found["uint8"] for name, found in fed.items()}
    speeds = {"per second": both, "times torchvision": times, "fed per second": fed, "times uint8": over}
    bytes_ = {"link": args.link, "at most over the smaller": most}
    write(args.out, {"images": args.images, "rounds": args.rounds, **speeds, **bytes_})
    return 0


def _over(path: str) -> int:
    """The bytes of a recorded row more than those of its file, or of its uint8 crop."""
    data = Path(path).read_bytes()
    row: Any = {"bytes": [data], "path": [path]}
    (message,) = _RECORDER(row)[MESSAGE]
    return len(message) - min(len(data), 3 * 224 * 224)


class _Cluster:
    def __init__(self) -> None:
        _ray.init(include_dashboard=False, log_to_driver=False, logging_level="error")
        _ray.data.DataContext.get_current().enable_progress_bars = False
        logging.getLogger("ray.data").setLevel(logging.WARNING)

    def close(self) -> None:
        _ray.shutdown()


class _Link:
    """Bytes go through one after another, at so many a second."""

    def __init__(self, speed: float) -> None:
        self._speed, self._free = speed, 0.0

    def carry(self, size: int) -> None:
        self._free = max(time.monotonic(), self._free) + size / self._speed
        time.sleep(max(self._free - time.monotonic(), 0))


def _in_turns(arms: Mapping[str, Callable[[Any], Any]], files: Sequence[str], rounds: int) -> dict[str, float]:
    """Images a second of each arm; the first round, which starts Ray's workers, is not counted, but compared."""
    spent: dict[str, list[float]] = {name: [] for name in arms}
    seen = []
    for _ in range(1 + rounds):
        for name, arm in arms.items():
            rows = _ray.data.read_binary_files([*files], include_paths=True)
            begin = time.perf_counter()
            seen.append(arm(rows))
            spent[name].append(time.perf_counter() - begin)
            if seen[-1] != seen[0] or sum(seen[0].values()) != len(files):
                raise Red(f"{name}: images are missing, or differ")
    return {name: len(files) / median(each[1:]) for name, each in spent.items()}


# -- both compute ------------------------------------------------------------------------------------------


def _crops(batch: Columns, backend: str, transform: Callable[[Any], Any]) -> dict[str, Any]:
    """The crops of a batch of rows, computed by a backend in one of Ray's workers."""
    options = {"threads": 1, "cache": None} if backend == "cpu" else {}
    with accel.image_backend(backend, **options):
        images = []
        for path, data in zip(batch["path"], batch["bytes"], strict=True):
            draw_from(0, 0, (path,))
            images.append(transform(Image.open(BytesIO(data)).convert("RGB")))
        return {"image": torch.stack(images).numpy()}


def _computed(rows: Callable[[Any], Any], read: Any) -> Counter[Any]:
    """How often each image came: torchvision's own values, wherever they were computed."""
    accel.set_image_backend("cpu", cache=None)
    return Counter(crc32(image.numpy().data) for image in chain.from_iterable(rows(read)))


def _of_workers(backend: str, read: Any) -> Iterator[torch.Tensor]:
    crops = read.map_batches(partial(_crops, backend=backend, transform=_TRAIN), batch_size=_BATCH)
    return (batch["image"] for batch in crops.iter_torch_batches(batch_size=_BATCH))


def _recorded(read: Any) -> Iterator[torch.Tensor]:
    messages = read.map_batches(_RECORDER, batch_size=_BATCH)
    return (batch["image"].add(0) for batch in messages.iter_torch_batches(batch_size=_BATCH, collate_fn=wire.collate))


_COMPUTING: dict[str, Callable[[Any], Iterator[torch.Tensor]]] = {
    "torchvision": partial(_of_workers, "torchvision"),
    "accel": partial(_of_workers, "cpu"),
    "recorded": _recorded,
}

# -- a trainer that only sleeps ----------------------------------------------------------------------------


def _fed(
    arm: tuple[Callable[[Columns], dict[str, Any]], Callable[[Columns], Any]], link: _Link, read: Any
) -> Counter[Any]:
    accel.set_image_backend(null_accelerator.NAME, cache=None)
    function, collate = arm
    count = 0

    def carried(columns: Columns) -> Any:
        (values,) = columns.values()
        link.carry(sum(map(len, values)) if values.dtype == object else values.nbytes)
        return collate(columns)

    for images in read.map_batches(function, batch_size=_BATCH).iter_torch_batches(
        batch_size=_BATCH, collate_fn=carried
    ):
        if is_lazy(images):
            compute.tensors_on(torch.device("meta"), images.lazy.recipes, interleaved=False)
        time.sleep(len(images) / _PER_SECOND)
        count += len(images)
    return Counter({"any": count})


_SENDING: dict[str, _Arm] = {
    "recorded": (_RECORDER, lambda columns: wire.collate(columns)["image"]),
    "uint8": (partial(_crops, backend="cpu", transform=_UINT8), lambda columns: torch.tensor(columns["image"])),
}

if __name__ == "__main__":
    sys.exit(main())
