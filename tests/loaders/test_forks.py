"""Hard use: forked children of the consumer, and nothing that grows."""

import gc
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset
from torchvision.transforms import functional as F

import accel
from accel.processes import slot_pool
from accel.system import counters
from tests.support import helpers, inside
from tests.support.cuda import needs_compiler
from tests.support.helpers import Files, assert_same, open_rgb
from tests.support.processes import LARGE, ROOT, finished, in_child, linux, loader, plain, started


@linux
@pytest.mark.parametrize("workers", [0, 1])
def test_a_child_that_drops_a_batch(paths: list[str], workers: int) -> None:
    accel.set_image_backend("cpu")
    iterator = iter(loader(Files(paths * 10, LARGE), workers))
    holder = [next(iterator)[0]]
    before = holder[0].numpy().copy()

    def drop() -> bool:
        holder.clear()
        gc.collect()
        return True

    assert in_child(drop)()
    for images, _ in iterator:
        images.sum()
        del images
    assert np.array_equal(holder[0].numpy(), before)


@linux
@pytest.mark.parametrize(("workers", "longer"), [(0, False), (1, False), (1, True)])
def test_a_child_that_keeps_a_batch(paths: list[str], workers: int, longer: bool) -> None:
    """As one that saves a batch beside the loop; ``longer`` than the loader lives."""
    accel.set_image_backend("cpu")
    iterator = iter(loader(Files(paths * 10, LARGE), workers))
    holder = [next(iterator)[0]]
    before = holder[0].numpy().copy()
    unchanged = in_child(lambda: np.array_equal(holder[0].numpy(), before))
    holder.clear()  # the child has its own
    for other, _ in iterator:
        other.sum()
        del other
    if longer:
        del iterator
        gc.collect()
    assert unchanged()


@linux
@pytest.mark.parametrize("lives", [True, False])
def test_what_children_looked_at_is_used_again_when_they_have_ended(lives: bool) -> None:
    with slot_pool.loader():
        known = inside.loaders()[slot_pool.loader_number()]
    arena = known.arena
    assert arena is not None
    looked_at = []
    taken = set()
    for _ in range(20):
        slot = arena.take(1 << 20)
        assert slot is not None
        taken.add(slot)
        arena.sent[slot], arena.busy[slot] = arena.sent[slot] + 1, 0
        lent = known.lend(slot, 1 << 20, int(arena.sent[slot]))
        looked_at.append(in_child(lambda: True))
        if not lives:
            assert looked_at.pop()()
        del lent
    assert len(taken) == 20 if lives else len(taken) < 4
    assert all(result() for result in looked_at)


@linux
def test_counts_are_read_while_a_child_counts() -> None:
    accel.stats()
    counts = counters._counts
    row = counts[(os.getpid() + 512) % len(counts)]

    def count() -> bool:
        for number in range(300_000):
            row[20:] = number % 2
        row[:] = 0
        return True

    with ThreadPoolExecutor(1) as pool:
        counting = pool.submit(in_child(count))
        while not counting.done():
            accel.stats()
        assert counting.result()


@linux
def test_a_child_that_drops_an_iterator(paths: list[str]) -> None:
    with slot_pool.loader():
        number = slot_pool.loader_number()
    known = inside.loaders()[number]
    assert known.arena is not None
    slot = known.arena.take(1 << 20)
    assert slot is not None
    known.arena.part(int(known.arena.offset[slot]), 1 << 20)[:] = 7

    def drop() -> bool:
        inside.end_loader(number)
        return True

    assert in_child(drop)()
    assert (known.arena.part(int(known.arena.offset[slot]), 1 << 20) == 7).all()


@linux
def test_a_child_that_changes_its_batch(paths: list[str]) -> None:
    """Computed here, not in a worker: then, as with torch, a child changes only its own copy."""
    accel.set_image_backend("cpu")
    images = next(iter(loader(Files(paths, LARGE))))[0]
    images.sum()
    before = images.numpy().copy()

    def change() -> bool:
        images.numpy().fill(0)
        return True

    assert in_child(change)()
    assert np.array_equal(images.numpy(), before)


class WithBatch(Dataset[Any]):
    """Carries a batch into its workers, drops it there, and computes much."""

    def __init__(self, batch: torch.Tensor, paths: list[str]) -> None:
        self.batch: Any = batch
        self.files = Files(paths, LARGE)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        self.batch = None
        wide = F.to_tensor(open_rgb(self.files.paths[index]).resize((700, 700)))
        return self.files[index][0] + 0, wide.numpy()[:, :9, :9].copy()


@linux
@pytest.mark.parametrize("workers", [0, 1])
def test_a_second_loader_whose_workers_drop_a_batch_of_the_first(paths: list[str], workers: int) -> None:
    accel.set_image_backend("cpu")
    first = iter(loader(Files(paths * 8, LARGE), workers))
    expected = plain(lambda: list(loader(Files(paths * 8, LARGE))))
    batch = next(first)[0]
    batch.sum()
    second = iter(loader(WithBatch(batch, paths * 2), 1))
    arrived = []
    for (images, _), other in zip(first, second, strict=False):
        arrived.append(images)
        del other
    assert_same(batch, expected[0][0])
    for images, (reference, _) in zip(arrived, expected[1:], strict=False):
        assert_same(images, reference)


@pytest.mark.sweep
@linux
@pytest.mark.parametrize(
    "options",
    [
        ("--epochs", "12"),
        ("--mixed", "--epochs", "8", "--workers", "0"),
        pytest.param(
            ("--epochs", "12", "--backend", "cuda", "--device", "cpu", "--start", "fork"), marks=needs_compiler
        ),
    ],
    ids=" ".join,
)
def test_epochs_do_not_grow(tmp_path: Path, options: tuple[str, ...]) -> None:
    """Memory, threads and open files of main process and workers: a short run of bench/soak.py, on small files."""
    helpers.write_image_folder(tmp_path, 24)
    command = [sys.executable, "-m", "bench.soak", "--data", str(tmp_path), "--batch-size", "6", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    print(done.stdout, done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr


GIANT = """
import os, sys, torch, accel, gc, io
from tests.support import helpers
from tests.support.cuda import needs_compiler
import numpy as np
from PIL import Image
from torch.utils.data import DataLoader
from torchvision import transforms as T
from torchvision.transforms import functional as F
def held(pid):
    fields = dict(line.split(":", 1) for line in open(f"/proc/{pid}/status"))
    return int(fields["VmRSS"].split()[0]) // 1024
class Sizes(torch.utils.data.Dataset):
    def __len__(self):
        return 120
    def __getitem__(self, index):
        image = Image.open(sys.argv[1]).convert("RGB")
        return F.to_tensor(image if index == 30 else image.crop((0, 0, 400, 400)))
if __name__ == "__main__":
    torch.set_num_threads(1)
    accel.set_image_backend("cpu")
    with accel.image_backend("torchvision"):
        whole = np.asarray(Image.open(sys.argv[1]))
    workers = int(sys.argv[2])
    loader = DataLoader(Sizes(), batch_size=1, num_workers=workers, prefetch_factor=1 if workers else None)
    iterator = iter(loader)
    before = after = None
    for number, images in enumerate(iterator):
        images = images + 0
        pids = [os.getpid(), *(worker.pid for worker in getattr(iterator, "_workers", []))]
        if number == 20:
            before = [held(pid) for pid in pids]
        if number == 30:
            assert images.shape == (1, 3, 3000, 4000)
            assert np.array_equal((images[0] * 255).round().to(torch.uint8).numpy().transpose(1, 2, 0), whole)
        if number == 110:
            after = [held(pid) for pid in pids]
    print(*(b - a for a, b in zip(before, after)))
"""


@linux
@pytest.mark.parametrize("workers", [0, 1])
def test_a_giant_image_gives_its_memory_back(tmp_path: Path, workers: int) -> None:
    path = tmp_path / "giant.jpg"
    helpers.picture(500, 375).resize((4000, 3000)).save(path, quality=80)
    status, out, err = finished(started(GIANT, str(path), str(workers)), 120)
    assert status == 0, err
    print(f"MB more than before (main, workers): {out}")
    assert max(map(int, out.split())) < 100, out
