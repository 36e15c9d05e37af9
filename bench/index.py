"""What the stream index brings: epochs of the cpu backend without it, that begin it, and that have it.

    python -m bench.index [PIPELINE...] [--data DIR] [--images N] [--rounds N] [--out FILE]

CPU time of one process and one thread, in turns, with equal random numbers; every batch is compared. A round has a
new store: its first epoch fills it, three more make it grow, the last of which is measured as well. Besides, what the
store takes of memory in all, when two workers and their parent use it.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as T
from torchvision.datasets.folder import default_loader

import accel
from accel.cli import samples, screen
from accel.cli.arguments import Red, command
from accel.cli.data import folder
from accel.cli.tables import Table, show
from accel.codec import store
from accel.system import memory
from bench.machine import known, parser, write
from bench.pipelines import MEAN, STD

_END = (T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize(MEAN, STD))
_STORE, _BATCH, _LARGE = 1 << 28, 32, 8


def _views(*transforms: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
    return lambda image: [transform(image) for transform in transforms]


def _crop(size: int, *scale: float) -> Any:
    return T.Compose([T.RandomResizedCrop(size, scale=scale), *_END])


def _ten(image: Any) -> torch.Tensor:
    return torch.stack([T.functional.to_tensor(crop) for crop in T.TenCrop(224)(T.Resize(256)(image))])


PIPELINES: dict[str, Callable[[Any], Any]] = {
    "train": _crop(224, 0.08, 1.0),
    "eval": T.Compose([T.Resize(256), T.CenterCrop(224), T.ToTensor(), T.Normalize(MEAN, STD)]),
    "two views": _views(*[_crop(224, 0.2, 1.0)] * 2),
    "multi-crop": _views(*[_crop(224, 0.4, 1.0)] * 2, *[_crop(96, 0.05, 0.4)] * 6),
    "ten-crop": _ten,
}
ON_LARGE = ("train",)
"""Those that are measured on photos of 4000 x 3000 as well."""


class Photos(Dataset[Any]):
    """Files, and what a pipeline makes of them."""

    def __init__(self, files: Sequence[str], transform: Callable[[Any], Any]) -> None:
        self.files, self.transform = files, transform

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        return self.transform(default_loader(self.files[index]))


def epoch(photos: Photos, seed: int, cache: str | None) -> tuple[float, str]:
    """Milliseconds of CPU time an image, and a digest of all values."""
    spent, digest = 0.0, hashlib.blake2b()
    torch.manual_seed(seed)
    with accel.image_backend("cpu", threads=1, cache=cache):
        begin = time.process_time()
        for batch in DataLoader(photos, _BATCH):
            values = [each.numpy() for each in (batch if isinstance(batch, list) else [batch])]
            spent += time.process_time() - begin
            for each in values:
                digest.update(each)
            begin = time.process_time()
    return 1000 * spent / len(photos), digest.hexdigest()


def measure(name: str, files: Sequence[str], rounds: int) -> dict[str, Any]:
    """Epochs of a pipeline, in turns."""
    photos = Photos(files, PIPELINES[name])
    epoch(photos, 0, None)
    found: list[dict[str, float]] = []
    for number in range(rounds):
        fresh()
        first = {"without": epoch(photos, number, None), "first": epoch(photos, number, "auto")}
        for more in (1, 2):
            epoch(photos, 1000 * more + number, "auto")
        later = {"later": epoch(photos, 3000 + number, "auto"), "without": epoch(photos, 3000 + number, None)}
        if any(len({digest for _, digest in some.values()}) > 1 for some in (first, later)):
            raise Red(f"{name}: the batches differ")
        found.append(
            {
                "without": (first["without"][0] + later["without"][0]) / 2,
                "first": first["first"][0],
                "later": later["later"][0],
                "first by without": first["first"][0] / first["without"][0],
                "without by later": later["without"][0] / later["later"][0],
            }
        )
    size, whole = kept(files)
    medians = {key: median(each[key] for each in found) for key in found[0]}
    return {"medians": medians, "images": len(files), "share of the files' bytes": size / whole, "rounds": found}


def fresh() -> int:
    """Begin a new store; its descriptor."""
    file = memory.anonymous_file(_STORE)
    store.share(file, _STORE)
    return file


def kept(files: Sequence[str]) -> tuple[int, int]:
    """The bytes of all entries, by whole segments, and of the files."""
    entries = store.current()
    assert entries is not None
    return entries.used()[0], sum(map(os.path.getsize, files))


def shared(files: Sequence[str]) -> dict[str, Any]:
    """The store's part of the memory of two workers and their parent (proportional set sizes), beside its entries."""
    inode = os.fstat(fresh()).st_ino
    with accel.image_backend("cpu"):
        loader = DataLoader(Photos(files, PIPELINES["train"]), _BATCH, num_workers=2, persistent_workers=True)
        for _ in range(2):
            for batch in loader:
                batch.numpy()
        workers = [worker.pid for worker in loader._iterator._workers]  # type: ignore[union-attr]
        used = [sum(_proportional(pid, inode, field) for pid in (os.getpid(), *workers)) for field in ("Pss", "Rss")]
    size, whole = kept(files)
    return {"processes": 3, "entries": size, "files": whole, "proportional": used[0], "resident, added up": used[1]}


def _proportional(pid: int, inode: int, field: str) -> int:
    """Bytes of a process's memory that is a file's, by a field of its maps."""
    total, inside = 0, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0] and not words[0].endswith(":"):
            inside = words[4] == str(inode)
        elif inside and words[0] == f"{field}:":
            total += 1024 * int(words[1])
    return total


@command("index")
def main() -> int:
    options = parser("bench.index", str(__doc__).partition("\n")[0], out="index.json", images=200, rounds=7)
    options.add_argument("pipelines", nargs="*", metavar="PIPELINE", help=f"of {', '.join(PIPELINES)} [all]")
    args = options.parse_args()
    chosen = known("pipeline", args.pipelines, PIPELINES)
    torch.set_num_threads(1)
    with folder(args.data) as (root, _), tempfile.TemporaryDirectory() as made:
        files = sorted(str(path) for path in root.rglob("*.jpg"))[: args.images]
        large = [f"{made}/{number}.jpg" for number in range(min(_LARGE, args.images))]
        for number, path in enumerate(large):
            samples.picture(number, (4000, 3000)).save(path, "JPEG", quality=92)
        time.sleep(memory.SETTLED + 0.1)  # what is younger has no key
        work = {name: partial(measure, name, files, args.rounds) for name in chosen}
        on_large = [name for name in ON_LARGE if name in chosen]
        work |= {f"{name}, 12 megapixels": partial(measure, name, large, args.rounds) for name in on_large}
        result: dict[str, Any] = {}
        with screen.Bar("index", len(work)) as bar:
            for name, run in work.items():
                result[name] = run()
                bar.advance()
        result["memory"] = shared(files)
    rows = []
    for name, each in result.items():
        if "medians" in each:
            numbers, share = each["medians"], each["share of the files' bytes"]
            figures = (f"{numbers[key]:.3f}" for key in ("without", "first", "later"))
            ratios = (f"{numbers[key]:.3f}" for key in ("first by without", "without by later"))
            rows.append((name, *figures, *ratios, f"{100 * share:.2f}%"))
    columns = ("", "without", "first epoch", "later", "first / without", "without / later", "of the bytes")
    show(Table("stream index: ms of CPU time an image", columns, rows))
    write(args.out, {"load": os.getloadavg(), **result})
    return 0


if __name__ == "__main__":
    sys.exit(main())
