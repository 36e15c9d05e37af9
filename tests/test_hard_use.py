"""Hard use: mutated files, bombs, killed and interrupted loaders, kept and shared batches, leaks, threads."""

from __future__ import annotations

import copy
import gc
import itertools
import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import helpers
import numpy as np
import pytest
import torch
from helpers import Files, assert_same, open_rgb, outcome
from PIL import Image
from test_bad_input import sized
from torch.utils.data import DataLoader, Dataset, IterableDataset
from torchvision import transforms as T
from torchvision.datasets import ImageFolder
from torchvision.datasets.folder import default_loader
from torchvision.transforms import functional as F

import accel

TIMEOUT = 100
HERE = Path(__file__).parent
LARGE = T.Compose([T.Resize((300, 300)), T.ToTensor()])  # batches of more than 1 MB: their memory is used again

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, forks")


def loader(dataset: Any, workers: int = 0, **options: Any) -> DataLoader[Any]:
    options = {"batch_size": 3, "timeout": TIMEOUT * (workers > 0), **options}
    return DataLoader(dataset, num_workers=workers, **options)


def plain(function: Callable[[], Any]) -> Any:
    """What torchvision makes of it."""
    return helpers.run("torchvision", function)[0]


def started(script: str, *arguments: str) -> subprocess.Popen[str]:
    """A fresh interpreter that runs ``script`` with the tests' folder on its path, in a process group of its own."""
    # Ctrl-C works in it even where whoever runs the tests has been started with that signal ignored
    prelude = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{prelude}; sys.path.insert(0, {str(HERE)!r})\n{script}"
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finished(process: subprocess.Popen[str], timeout: float = 60) -> tuple[int, str, str]:
    """Exit status and output; a process that hangs is killed with its children, and the test fails."""
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        pytest.fail(f"it hangs; so far:\n{out}\n{err}")
    return process.returncode, out, err


# -- mutated files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("engine", "count"), [("auto", 1500), ("nvimgcodec", 150), ("pillow", 150)])
def test_mutants(engine: str, count: int) -> None:
    """In a process of its own: a crash is seen, and reported."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", str(HERE / "mutations.py"), f"--count={count}", f"--decode={engine}"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr[-4000:]
    report = json.loads(done.stdout)
    print(f"decode={engine}")
    for came, times in report["counts"].items():
        print(f"{times:6} {came}")
    assert report["counts"]["mutants"] == count
    assert not report["disagreements"], json.dumps(report["disagreements"][:9], indent=1)


# -- bombs --------------------------------------------------------------------------------------------------


BASELINE, PROGRESSIVE = helpers.jpeg(64, 48), helpers.jpeg(64, 48, progressive=True)


@pytest.mark.parametrize("limit", [None, 1000, 64 * 48, 64 * 48 - 1, 64 * 24, 64 * 24 - 1, Image.MAX_IMAGE_PIXELS])
@pytest.mark.parametrize("size", [(48, 64), (65_500, 65_500), (65_535, 1), (12_000, 8_000), (14_000, 14_000)])
@pytest.mark.parametrize("data", [BASELINE, PROGRESSIVE], ids=["baseline", "progressive"])
def test_bombs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, size: tuple[int, int], limit: int | None
) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    (tmp_path / "class").mkdir()
    path = tmp_path / "class" / "bomb.jpg"
    path.write_bytes(sized(data, *size))
    ways: list[Callable[[], Any]] = [
        lambda: Image.open(path).size,
        lambda: Image.open(BytesIO(path.read_bytes())).size,
    ]
    if size == (48, 64) or (limit is not None and size[0] * size[1] > 2 * limit):  # nothing large is decoded
        ways += [lambda: default_loader(str(path)).size, lambda: ImageFolder(str(tmp_path), np.asarray)[0][0].shape]
    for way in ways:
        found = []
        for backend in ("torchvision", "cpu"):
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                found.append(
                    (
                        helpers.run(backend, lambda way=way: outcome(way))[0],
                        [str(each.message) for each in warned if each.category is Image.DecompressionBombWarning],
                    )
                )
        assert found[0] == found[1]


@linux
def test_a_bomb_allocates_nothing(tmp_path: Path) -> None:
    (tmp_path / "bomb.jpg").write_bytes(sized(BASELINE, 65_500, 65_500))
    code = """
import sys, accel, torch
from PIL import Image
from torchvision.datasets.folder import default_loader
from torchvision.transforms import functional as F
def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
accel.set_image_backend("cpu")
before, refused = peak(), 0
for use in (Image.open, default_loader):
    try:
        use(sys.argv[1])
    except Image.DecompressionBombError:
        refused += 1
Image.MAX_IMAGE_PIXELS = None
image = Image.open(sys.argv[1])
assert image.size == (65500, 65500)
late = F.to_tensor(image.convert("RGB").crop((0, 0, 500, 500)).resize((10, 10)))
assert late.shape == (3, 10, 10)
print(refused, peak() - before)
"""
    refused, kilobytes = helpers.python(code, str(tmp_path / "bomb.jpg")).split()
    assert refused == "2"
    assert int(kilobytes) < 30_000


# -- loaders that are killed, interrupted and left ----------------------------------------------------------

ENDLESS = """
import os, signal, sys, time, torch, accel, helpers
from torch.utils.data import DataLoader
from torchvision import transforms as T
if __name__ == "__main__":
    torch.set_num_threads(1)
    accel.set_image_backend("cpu")
    large = T.Compose([T.Resize((300, 300)), T.ToTensor()])
    files = helpers.Files(sys.argv[1].split(os.pathsep) * 10_000, large)
    iterator = iter(DataLoader(files, batch_size=3, num_workers=2))
    for number, (images, _) in enumerate(iterator):
        if number == 5:
            print("going", flush=True)
            if sys.argv[2] == "kill":
                os.kill(iterator._workers[0].pid, signal.SIGKILL)
"""


@linux
def test_a_killed_worker(paths: list[str]) -> None:
    status, out, err = finished(started(ENDLESS, os.pathsep.join(paths), "kill"))
    assert out == "going\n"
    assert status == 1
    # DataLoader's own error, or torch's where the worker was just handing over a file descriptor
    last = err.rstrip().splitlines()[-1]
    assert last.startswith(("RuntimeError: DataLoader worker (pid", "ConnectionResetError", "EOFError")), err


@linux
@pytest.mark.parametrize("whom", ["all", "main"])
def test_an_interrupted_script(paths: list[str], whom: str) -> None:
    """By Ctrl-C, which a terminal sends to the workers as well."""
    process = started(ENDLESS, os.pathsep.join(paths), "wait")
    assert process.stdout is not None
    assert process.stdout.readline() == "going\n"
    (os.killpg if whom == "all" else os.kill)(process.pid, signal.SIGINT)
    status, _, err = finished(process, 30)
    assert status in (-signal.SIGINT, 1, 130)
    assert "KeyboardInterrupt" in err
    assert "accel/" not in err.split("KeyboardInterrupt")[-1]
    with pytest.raises(ProcessLookupError):  # nobody is left
        os.killpg(process.pid, 0)


@pytest.mark.parametrize("workers", [0, 2])
def test_leaving_with_many_batches_on_their_way(paths: list[str], workers: int) -> None:
    accel.set_image_backend("cpu")
    options = {"prefetch_factor": 10} if workers else {}
    threads = threading.active_count()
    for _ in range(4):
        iterator = iter(loader(Files(paths * 20, LARGE), workers, **options))
        kept = next(iterator)
        del iterator
        gc.collect()
        assert_same(kept, plain(lambda: next(iter(loader(Files(paths, LARGE))))))
        assert threading.active_count() <= threads + os.cpu_count()  # type: ignore[operator]  # the pool's


@pytest.mark.parametrize("workers", [0, 2])
def test_an_exception_in_the_training_loop(paths: list[str], workers: int) -> None:
    accel.set_image_backend("cpu")

    def train() -> None:
        for images, _ in loader(Files(paths * 5, LARGE), workers):
            _ = images.sum() // 0 / (1 // 0)

    with pytest.raises(ZeroDivisionError):
        train()
    expected = plain(lambda: list(loader(Files(paths, LARGE))))
    assert_same(list(loader(Files(paths, LARGE), workers)), expected)


@pytest.mark.parametrize("on_error", ["raise", "replace"])
@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_over_good_and_corrupt_files(tmp_path: Path, workers: int, on_error: str) -> None:
    """Every good image of an epoch with many broken ones is right; each broken one raises, or is black."""
    broken = {number: helpers.undecodable(60 + 7 * number, 90 - 3 * number) for number in (1, 2, 7, 11)}
    root = helpers.write_image_folder(tmp_path, broken=broken)
    files = [str(path) for path in sorted(root.rglob("*.jpg"), key=lambda path: path.name)]
    dataset = Files(files, LARGE)
    good = plain(lambda: [None if number in broken else dataset[number][0] for number in range(12)])
    with accel.image_backend("cpu", on_error=on_error):
        for size in (1, 3):
            iterator = iter(loader(dataset, workers, batch_size=size))
            for first in range(0, 12, size):
                numbers = range(first, first + size)
                if on_error == "raise" and broken.keys() & numbers:
                    with pytest.raises(accel.DecodeError):
                        next(iterator)[0].sum()
                    continue
                for number, image in zip(numbers, next(iterator)[0].clone(), strict=True):
                    assert_same(image, torch.zeros(3, 300, 300) if good[number] is None else good[number])
            if workers:  # torch takes 10 s for it where the garbage collector finds an iterator that has raised
                iterator._shutdown_workers()


def test_many_loaders_at_once(paths: list[str]) -> None:
    accel.set_image_backend("cpu")
    orders = [paths[first:] + paths[:first] for first in range(6)]
    loaders = [iter(loader(Files(order, LARGE), number % 3, batch_size=2)) for number, order in enumerate(orders)]
    arrived = list(itertools.chain.from_iterable(zip(*loaders, strict=True)))
    expected = plain(
        lambda: list(itertools.chain.from_iterable(zip(*(loader(Files(o, LARGE), batch_size=2) for o in orders))))  # noqa: B905
    )
    assert_same(arrived, expected)


class Nested(IterableDataset[Any]):
    """Goes through a loader of its own, in the worker, and keeps what it gave."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths

    def __iter__(self) -> Iterator[Any]:
        kept = []
        for images, _ in DataLoader(Files(self.paths, LARGE), batch_size=2):
            kept.append(images)
            yield images, images[1], kept[0][:, :1], kept[len(kept) // 2]


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("batch_size", [None, 2])
def test_a_loader_inside_an_iterable_dataset(paths: list[str], workers: int, batch_size: int | None) -> None:
    def run() -> Any:
        return list(loader(Nested(paths), workers, batch_size=batch_size))

    assert_same(helpers.run("cpu", run)[0], plain(run))


# -- batches that somebody keeps ----------------------------------------------------------------------------

VIEWS: list[Callable[[torch.Tensor], Any]] = [
    lambda images: images,
    lambda images: images[1:, :, 5:9],
    lambda images: images.numpy()[0, :, 5:9],
    lambda images: images.data.permute(0, 2, 3, 1)[..., 1],
    lambda images: images.unbind()[1],
    lambda images: images.view(torch.int32)[2],
    lambda images: memoryview(images.numpy().reshape(-1)[7:99]),
    lambda images: np.asarray(images).reshape(-1)[::-1],
    lambda images: torch.from_dlpack(images)[:, 1],
    lambda images: torch.frombuffer(images.numpy(), dtype=torch.float32)[40:],
    lambda images: torch.empty(0, dtype=torch.uint8).set_(images.untyped_storage())[5:99],
    lambda images: copy.copy(images).expand(2, *images.shape)[1],
    lambda images: {"nested": [images[2], (images.real,)]},
    lambda images: pickle.loads(pickle.dumps(images[1:])),
    lambda images: copy.deepcopy(images),
    lambda images: torch.nn.Parameter(images).detach()[0],
    lambda images: images.requires_grad_().detach(),
]


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_what_is_kept_of_batches_stays_what_it_is(paths: list[str], workers: int) -> None:
    """While the batches themselves are dropped, and many more follow."""

    def run() -> list[Any]:
        kept = []
        for number, (images, _) in enumerate(loader(Files(paths * 10, LARGE), workers)):
            kept.append(VIEWS[number % len(VIEWS)](images))
            del images
        return kept

    with accel.image_backend("cpu"):
        arrived = run()
    for actual, expected in zip(arrived, plain(run), strict=True):
        if isinstance(expected, memoryview):
            assert bytes(actual) == bytes(expected)
        else:
            assert_same(actual, expected)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_an_epoch_kept_whole(paths: list[str], workers: int, persistent: bool) -> None:
    """Over several epochs with early ends in between; the consumer changes what it keeps."""
    accel.set_image_backend("cpu")
    train = loader(Files(paths * 4, LARGE), workers, persistent_workers=persistent and workers > 0)
    expected = plain(lambda: list(loader(Files(paths * 4, LARGE))))
    kept = []
    for epoch in range(3):
        part = []
        for images, labels in train:
            part.append([images, labels])
            if epoch == 1 and len(part) == 5:
                break
        assert_same(part, expected[: len(part)])
        for images, _ in part[::2]:
            images += 7
        kept.append(part)
    for part in kept:
        for number, (images, labels) in enumerate(part):
            assert_same([images - 7 if number % 2 == 0 else images, labels], _shifted(expected[number], number))


def _shifted(sample: Any, number: int) -> list[Any]:
    images, labels = sample
    return [images + 7 - 7 if number % 2 == 0 else images, labels]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["queue", "simple", "pipe"])
def test_batches_sent_on(paths: list[str], workers: int, kind: str) -> None:
    """Through torch's queues, while the loader goes on; what was sent comes out at the end."""

    def run() -> list[Any]:
        arrived = []
        if kind == "pipe":
            receiver, sender = torch.multiprocessing.Pipe(duplex=False)
            put, get = sender.send, receiver.recv
        else:
            queue = torch.multiprocessing.Queue() if kind == "queue" else torch.multiprocessing.SimpleQueue()
            put, get = queue.put, queue.get
        count = 0
        for images, labels in loader(Files(paths * 4, LARGE), workers):
            put((images, labels, images[1]))
            del images
            count += 1
        for _ in range(count):
            arrived.append(get())
        return arrived

    assert_same(helpers.run("cpu", run)[0], plain(run))


class Caching(Dataset[Any]):
    """Keeps every tensor it made and returns the very same one again."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths
        self.cache: dict[int, torch.Tensor] = {}

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        if index not in self.cache:
            self.cache[index] = LARGE(open_rgb(self.paths[index]))
        return self.cache[index]


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("options", [{}, {"batch_size": None}, {"batch_size": 1}], ids=str)
def test_a_dataset_that_caches_tensors(paths: list[str], workers: int, options: dict[str, Any]) -> None:
    order = [0, 0, 1, 2, 0, 1, 5, 5, 5, 11, 0, 2] * 3

    def run() -> list[Any]:
        train = loader(Caching(paths), workers, sampler=order, persistent_workers=workers > 0, **options)
        return [list(train), list(train)]

    assert_same(helpers.run("cpu", run)[0], plain(run))


# -- what a collate function may return ---------------------------------------------------------------------


@dataclass
class Record:
    images: torch.Tensor
    again: Any = None


class Pair(NamedTuple):
    first: torch.Tensor
    second: Any


def _stacked(samples: list[Any]) -> torch.Tensor:
    return torch.stack([image for image, _ in samples])


KEPT: list[torch.Tensor] = []


def _kept_in_the_worker(batch: torch.Tensor) -> Any:
    KEPT.append(batch)
    return batch, KEPT[0], KEPT[len(KEPT) // 2][1:]


COLLATED: dict[str, Callable[[torch.Tensor], Any]] = {
    "tail": lambda batch: batch[1:],
    "one": lambda batch: batch[1],
    "channel": lambda batch: batch[:, 1:2],
    "corner": lambda batch: batch[1, :, 100:, 50:],
    "transposed": lambda batch: batch.permute(0, 2, 3, 1),
    "expanded": lambda batch: batch[:1].expand(3, -1, -1, -1),
    "bits": lambda batch: batch.view(torch.int32)[1:],
    "twice": lambda batch: (batch, batch),
    "with-views": lambda batch: (batch, batch[1:], batch[0], batch),
    "views-only": lambda batch: batch.split(2),
    "reversed": lambda batch: [batch[2], batch[0], batch[1]],
    "dict": lambda batch: {"a": batch, "b": {"c": [batch[1:], None, 3, "text"]}},
    "named": lambda batch: Pair(batch, [batch[1:]]),
    "lists": lambda batch: [[[batch[:, 2]]], (), {}],
    "grad": lambda batch: batch.requires_grad_(),
    "parameter": lambda batch: torch.nn.Parameter(batch),
    "half": lambda batch: batch.half()[1:],
    "numpy": lambda batch: batch.numpy()[1:],
    "empty": lambda batch: (batch[:0], batch),
    "kept": _kept_in_the_worker,
}


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("name", COLLATED)
def test_what_collate_returns(paths: list[str], workers: int, name: str) -> None:
    def collate(samples: list[Any]) -> Any:
        return COLLATED[name](_stacked(samples))

    def run() -> list[Any]:
        KEPT.clear()
        return list(loader(Files(paths * 5, LARGE), workers, collate_fn=collate))

    expected = plain(run)
    actual, _ = helpers.run("cpu", run)
    KEPT.clear()
    assert_same(actual, expected)
    if isinstance(expected[0], torch.Tensor):
        assert actual[0].requires_grad == expected[0].requires_grad
        assert isinstance(actual[0], type(expected[0]))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_users_dataclass(paths: list[str], workers: int) -> None:
    def collate(samples: list[Any]) -> Any:
        batch = _stacked(samples)
        return Record(batch, [batch[1:], {"images": batch}])

    def run() -> list[Any]:
        records = list(loader(Files(paths * 5, LARGE), workers, collate_fn=collate))
        return [(record.images, record.again) for record in records]

    assert_same(helpers.run("cpu", run)[0], plain(run))


@pytest.mark.parametrize("name", ["twice", "with-views", "named"])
def test_tensors_that_share_memory_still_do(paths: list[str], name: str) -> None:
    """What a consumer writes into one of them is seen in the others, as with torch."""

    def collate(samples: list[Any]) -> Any:
        return COLLATED[name](_stacked(samples))

    def run() -> list[Any]:
        batches = list(loader(Files(paths, LARGE), 1, collate_fn=collate))
        for batch in batches:
            batch[0][1:] = 5
        return [*batches, [batch[-1] is batch[0] for batch in batches]]

    assert_same(helpers.run("cpu", run)[0], plain(run))


# -- forked children of the consumer ------------------------------------------------------------------------


def in_child(function: Callable[[], bool]) -> Callable[[], bool]:
    """Fork; the child waits for the parent's sign, then runs the function. Gives what to call for its result."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads, since Python 3.12
        pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(60)
            os.read(reader, 1)
            os._exit(0 if function() else 3)
        finally:
            os._exit(4)

    def result() -> bool:
        os.write(writer, b"x")
        os.close(reader)
        os.close(writer)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

    return result


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
@pytest.mark.parametrize("workers", [0, 1])
def test_a_child_that_keeps_a_batch(paths: list[str], workers: int) -> None:
    accel.set_image_backend("cpu")
    iterator = iter(loader(Files(paths * 10, LARGE), workers))
    holder = [next(iterator)[0]]
    before = holder[0].numpy().copy()
    unchanged = in_child(lambda: np.array_equal(holder[0].numpy(), before))
    holder.clear()  # the child has its own
    for other, _ in iterator:
        other.sum()
        del other
    assert unchanged()


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


# -- nothing grows ------------------------------------------------------------------------------------------


@linux
def test_epochs_do_not_grow(tmp_path: Path) -> None:
    """Memory, threads and open files of main process and workers: a short run of bench/soak.py, on small files."""
    helpers.write_image_folder(tmp_path, 24)
    command = [sys.executable, "-m", "bench.soak", "--data", str(tmp_path), "--epochs", "12", "--batch-size", "6"]
    done = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True, timeout=300, check=False)
    print(done.stdout, done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr


GIANT = """
import os, sys, torch, accel, helpers, gc, io
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
            assert images.shape == (1, 3, 5000, 6000)
            assert np.array_equal((images[0] * 255).round().to(torch.uint8).numpy().transpose(1, 2, 0), whole)
        if number == 110:
            after = [held(pid) for pid in pids]
    print(*(b - a for a, b in zip(before, after)))
"""


@linux
@pytest.mark.parametrize("workers", [0, 1])
def test_a_giant_image_gives_its_memory_back(tmp_path: Path, workers: int) -> None:
    path = tmp_path / "giant.jpg"
    helpers.picture(750, 625).resize((6000, 5000)).save(path, quality=80)
    status, out, err = finished(started(GIANT, str(path), str(workers)), 120)
    assert status == 0, err
    print(f"MB more than before (main, workers): {out}")
    assert max(map(int, out.split())) < 100, out


# -- threads ------------------------------------------------------------------------------------------------


def in_threads(functions: list[Callable[[], Any]]) -> list[Any]:
    """What each gives, run at once; an exception is raised here."""
    results: list[Any] = [None] * len(functions)
    barrier = threading.Barrier(len(functions))

    def run(number: int) -> None:
        barrier.wait(60)
        try:
            results[number] = functions[number]()
        except BaseException as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(len(functions))]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + TIMEOUT
    for thread in threads:
        thread.join(max(deadline - time.monotonic(), 0))
        assert not thread.is_alive(), "it hangs"
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take turns as often as they can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


USES: list[Callable[[torch.Tensor], Any]] = [
    lambda late: late + 0,
    lambda late: late.numpy().copy(),
    lambda late: late.sum(),
    lambda late: late[..., 1].clone() + 0,
    lambda late: torch.stack([late, late]) + 0,
    lambda late: (late.shape, late.dtype, late.stride(), late.size(-1)),
    lambda late: late.half().float() + 0,
    lambda late: late.to(torch.float64, copy=True),
]


@pytest.mark.parametrize("batch", [False, True])
def test_one_late_tensor_in_many_threads(paths: list[str], batch: bool, restless: None) -> None:
    def make() -> torch.Tensor:
        tensors = [F.to_tensor(open_rgb(path).resize((20, 24))) for path in paths[:4]]
        return torch.stack(tensors) if batch else tensors[0]

    reference = plain(make)
    expected = [use(reference) for use in USES]
    for turn in range(60):
        with accel.image_backend("cpu"):
            late = make()
        uses = USES[turn % 8 :] + USES[: turn % 8]
        results = in_threads([lambda use=use, late=late: use(late) for use in uses])
        assert_same(results, expected[turn % 8 :] + expected[: turn % 8])
        assert_same(late, reference)


def test_one_late_image_in_many_threads(paths: list[str], restless: None) -> None:
    reference = plain(lambda: open_rgb(paths[0]).resize((20, 24)))
    for _ in range(40):
        with accel.image_backend("cpu"):
            late = open_rgb(paths[0]).resize((20, 24))
        uses: list[Callable[[], Any]] = [
            lambda late=late: np.asarray(late),
            lambda late=late: np.asarray(late.copy()),
            lambda late=late: np.asarray(F.to_tensor(late) * 255).round().transpose(1, 2, 0).astype(np.uint8),
            lambda late=late: np.asarray(late.resize((20, 24))),
        ]
        for pixels in in_threads(uses * 2):
            assert_same(pixels, np.asarray(reference))


def test_switching_while_others_load(paths: list[str], restless: None) -> None:
    """Whatever is in force when, the pixels are torchvision's."""
    dataset = Files(paths, T.Compose([T.Resize((24, 32)), T.CenterCrop(20), T.ToTensor()]))
    expected = plain(lambda: list(loader(dataset)))
    end = time.monotonic() + 4

    def load() -> int:
        count = 0
        while time.monotonic() < end:
            assert_same([(images + 0, labels) for images, labels in loader(dataset)], [tuple(e) for e in expected])
            count += 1
        return count

    def switch() -> int:
        count = 0
        while time.monotonic() < end:
            for name in ("cpu", "torchvision"):
                accel.set_image_backend(name)
                time.sleep(0.002)
            with accel.image_backend("cpu", decode="pillow"):
                time.sleep(0.002)
            count += 1
        return count

    assert min(in_threads([load, load, switch, switch])) > 0


@pytest.mark.parametrize("workers", [0, 2])
def test_switching_while_a_loader_iterates(paths: list[str], workers: int) -> None:
    expected = plain(lambda: list(loader(Files(paths * 5, LARGE))))
    arrived = []
    accel.set_image_backend("cpu")
    names = itertools.cycle(["torchvision", "cpu"])
    for images, labels in loader(Files(paths * 5, LARGE), workers):
        arrived.append([images, labels])
        in_threads([lambda: accel.set_image_backend(next(names))])
    assert_same(arrived, expected)


def test_many_threads_each_with_a_loader(paths: list[str]) -> None:
    accel.set_image_backend("cpu")
    expected = plain(lambda: list(loader(Files(paths, LARGE))))

    def load(workers: int) -> list[Any]:
        return list(loader(Files(paths, LARGE), workers))

    for result in in_threads([lambda w=w: load(w) for w in (0, 0, 1, 0, 1, 0)]):
        assert_same(result, expected)


def test_a_process_that_ends_with_loaders_open(paths: list[str]) -> None:
    """At exit, with late batches, an unfinished epoch and a thread that computes: no hang, no complaint."""
    script = """
import os, sys, threading, torch, accel, helpers
from torch.utils.data import DataLoader
from torchvision import transforms as T
torch.set_num_threads(1)
accel.set_image_backend("cpu")
large = T.Compose([T.Resize((300, 300)), T.ToTensor()])
files = helpers.Files(sys.argv[1].split(os.pathsep) * 30, large)
first = iter(DataLoader(files, batch_size=3, num_workers=2, persistent_workers=True))
second = iter(DataLoader(files, batch_size=3))
kept = [next(first), next(second), next(second)]
threading.Thread(target=lambda: kept[2][0].sum()).start()
print("end")
"""
    status, out, err = finished(started(script, os.pathsep.join(paths)))
    assert (status, out, err) == (0, "end\n", "")


def test_a_pool_of_processes(paths: list[str]) -> None:
    """Forked processes that open, compute and send back, while this one goes on."""
    accel.set_image_backend("cpu")
    expected = plain(lambda: [LARGE(open_rgb(path)) for path in paths])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pool = multiprocessing.get_context("fork").Pool(2)
    with pool:
        pending = pool.map_async(_opened_large, paths)
        here = [LARGE(open_rgb(path)) for path in paths]
        there = pending.get(TIMEOUT)
    assert_same(here, expected)
    assert_same([torch.from_numpy(array) for array in there], expected)


def _opened_large(path: str) -> Any:
    return LARGE(open_rgb(path)).numpy()
