"""Where /dev/shm is missing, tiny or full; and how much shared memory the workers of a loader take."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from accel.processes.arena import Arena
from accel.system import memory
from tests.support.processes import ROOT, finished, linux, started

SCRIPT = """
import sys
sys.path[:0] = {path!r}
import torch
import accel
from tests.support import helpers
from torch.utils.data import DataLoader
from torchvision import transforms as T
def main():
    start, *paths = sys.argv[1:]
    files = helpers.Files(paths, T.Compose([T.Resize((100, 100)), T.ToTensor()]))
    expected = [images for images, _ in DataLoader(files, batch_size=3)]
    accel.set_image_backend("cpu")
    workers = dict(num_workers=1, multiprocessing_context=start, timeout=60) if start else dict()
    for (images, _), wanted in zip(DataLoader(files, batch_size=3, **workers), expected, strict=True):
        assert torch.equal(images, wanted)
    print(accel.stats()["images"], accel.stats()["fallbacks"])
if __name__ == "__main__":
    main()
"""


def without_shm(
    tmp_path: Path, mount: str, start: str, paths: list[str], text: str = SCRIPT
) -> subprocess.CompletedProcess[str]:
    """Run a script where /dev/shm is another one; skips where that cannot be had."""
    namespace = ["unshare", "-m"] if os.getuid() == 0 else ["unshare", "-r", "-m"]
    works = shutil.which("unshare") and subprocess.run([*namespace, "sh", "-c", mount], capture_output=True, timeout=60)
    if not works or works.returncode:
        pytest.skip("no namespace of mounts can be made here")
    script = tmp_path / "script.py"
    script.write_text(text.replace("{path!r}", repr([str(ROOT), *sys.path])))
    command = [*namespace, "sh", "-c", f'{mount} && exec "$@"', "sh", sys.executable, "-W", "error", str(script), start]
    return subprocess.run([*command, *paths], capture_output=True, text=True, timeout=300)


@linux
@pytest.mark.parametrize(
    ("options", "start"),
    [
        ("size=1m", "fork"),
        *(
            pytest.param(*each, marks=pytest.mark.sweep)
            for each in (("ro", ""), ("size=64k", ""), ("size=1m", "spawn"))
        ),
    ],
)
def test_no_shared_memory_file_system(tmp_path: Path, paths: list[str], options: str, start: str) -> None:
    """A batch of 360 KB and accel's counters need none; torchvision's labels and DataLoader's locks take a little."""
    mount = f"mount -t tmpfs -o {options} tmpfs /dev/shm"
    done = without_shm(tmp_path, mount, start, paths)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{len(paths)} {{}}\n"
    assert not done.stderr


LARGE = """
import sys
sys.path[:0] = {path!r}
import torch
import accel
from torch.utils.data import DataLoader, Dataset
class Own(Dataset):
    def __len__(self):
        return 6
    def __getitem__(self, index):
        return torch.full((3, 256, 256), float(index))
def listed(samples):
    return [torch.stack(samples), samples[0]]
def pieces(samples):
    return [part.clone() for part in torch.stack(samples).reshape(-1, 4096)]
def main():
    with accel.image_backend("cpu"):
        for collate in (None, listed, list, pieces):
            for number, batch in enumerate(DataLoader(Own(), 2, num_workers=1, collate_fn=collate, timeout=60)):
                values = batch if collate is None else batch[0] if collate is listed else torch.stack(batch)
                expected = torch.stack([torch.full((3, 256, 256), 2.0 * number + each) for each in (0, 1)])
                assert torch.equal(values.reshape(expected.shape), expected)
    print("arrived")
if __name__ == "__main__":
    main()
"""


@linux
def test_tensors_of_the_users_own(tmp_path: Path) -> None:
    """Batches of 1.5 MB, where /dev/shm has 1 MB: torch's workers fail, some of its versions by a signal."""
    done = without_shm(tmp_path, "mount -t tmpfs -o size=1m tmpfs /dev/shm", "", [], LARGE)
    assert done.stdout == "arrived\n", done.stderr
    assert not done.stderr
    without = LARGE.replace('image_backend("cpu")', 'image_backend("torchvision")')
    assert without_shm(tmp_path, "mount -t tmpfs -o size=1m tmpfs /dev/shm", "", [], without).stdout != "arrived\n"


@pytest.fixture
def arena() -> Arena:
    made = Arena.make(torch.multiprocessing)
    assert made is not None
    return made


@linux
def test_what_there_is_no_memory_for_is_refused(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no signal ends the process when it is written to."""

    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    assert [arena.take(1 << 20), arena.take(1 << 20)] == [None, None]  # the slot of the first has no pages
    monkeypatch.undo()
    assert arena.take(1 << 20) is not None


@linux
def test_a_file_that_may_not_grow(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    """As under a limit of the size of files."""

    def limited(*_: int) -> None:
        raise OSError(27, "File too large")

    monkeypatch.setattr(os, "ftruncate", limited)
    assert arena.take(1 << 27) is None
    assert arena.take(1 << 20) is not None


@linux
def test_shared_memory_has_no_name() -> None:
    def names() -> set[str]:
        """Those of this process; others run beside it."""
        return {name for name in os.listdir("/dev/shm") if name.startswith(f"torch_{os.getpid()}_")}

    before = names()
    tensor = memory.shared((1000, 1000), torch.float32)
    assert tensor.is_shared()
    assert names() == before
    assert memory.shared((0,), torch.uint8).shape == (0,)


def pages(arena: Arena) -> int:
    """Bytes of memory that the arena takes."""
    return os.fstat(arena._file).st_blocks * 512


def written(arena: Arena, size: int) -> int:
    slot = arena.take(size)
    assert slot is not None
    arena.part(int(arena.offset[slot]), size)[:] = 1
    return slot


def freed(arena: Arena, slot: int) -> None:
    arena.busy[slot] = 0


SIZE = 1 << 20


@linux
def test_what_one_worker_had_the_next_one_takes(arena: Arena) -> None:
    for _ in range(50):
        slots = [written(arena, SIZE) for _ in range(5)]
        assert len(set(slots)) == 5
        arena.sent[slots[0]] += 1
        for slot in slots:
            freed(arena, slot)
        assert written(arena, SIZE) != slots[0]  # the parent has not seen the end of it
        arena.busy[:] = 0
        arena.ended[slots[0]] += 1
    assert pages(arena) <= 6 * SIZE + (1 << 16)


@linux
def test_pages_that_nobody_takes_go_back(arena: Arena) -> None:
    for slot in [written(arena, SIZE) for _ in range(20)]:
        freed(arena, slot)
    assert pages(arena) >= 20 * SIZE
    for _ in range(60):
        freed(arena, written(arena, SIZE))
    assert pages(arena) < 3 * SIZE


@linux
def test_slots_of_all_sizes_do_not_overlap(arena: Arena) -> None:
    order = torch.Generator().manual_seed(0)
    held: list[tuple[int, int, int]] = []
    for number in range(600):
        size = int(torch.randint(1, 1 << int(torch.randint(8, 24, (1,), generator=order)), (1,), generator=order))
        slot = arena.take(size)
        assert slot is not None
        arena.part(int(arena.offset[slot]), size)[:] = number % 251
        held.append((slot, size, number % 251))
        while len(held) > 12:
            slot, size, value = held.pop(int(torch.randint(len(held), (1,), generator=order)))
            assert (arena.part(int(arena.offset[slot]), size) == value).all()
            freed(arena, slot)
    large = written(arena, 200 << 20)  # more than the file's first part
    for slot, size, value in held:
        assert (arena.part(int(arena.offset[slot]), size) == value).all()
    freed(arena, large)


@linux
def test_as_many_slots_as_there_are_batches_kept(arena: Arena) -> None:
    slots = [arena.take(100) for _ in range(255)]
    assert len(set(slots)) == 255
    assert arena.take(100) is None
    freed(arena, slots[7] or 0)
    assert arena.take(100) == slots[7]


# -- the sharing strategy "file_system", the only one of macOS -------------------------------------------------------


FILE_SYSTEM = """
import gc, glob, os, signal, sys, time
import torch, accel
from tests.support import helpers
from torch.utils.data import DataLoader, IterableDataset
from torchvision import transforms as T
LARGE = T.Compose([T.Resize((300, 300)), T.ToTensor()])
class Stream(IterableDataset):
    def __init__(self, files):
        self.files = files
    def __iter__(self):
        return iter([self.files[index] for index in range(len(self.files))])
def left(pids, patience):  # bytes, of more than labels, which are torch's own
    gc.collect()
    end = time.monotonic() + patience
    while True:
        names = [name for pid in pids for name in glob.glob(f"/dev/shm/torch_{pid}_*")]
        sizes = [size for size in map(os.path.getsize, names) if size > 4096]
        if not sizes or time.monotonic() > end:
            return sum(sizes)
        time.sleep(0.1)
def run(mode, files, expected):
    data = Stream(files) if mode == "stream" else files
    loader = DataLoader(data, batch_size=3, num_workers=1, timeout=60, persistent_workers=mode == "persistent")
    pids = set()
    for _ in range(2):
        iterator = iter(loader)
        pids |= {worker.pid for worker in iterator._workers}
        try:
            for number, (images, _) in enumerate(iterator):
                assert torch.equal(images, expected[number])
                if number == 2 and mode == "break":
                    break
                if number == 2 and mode == "kill":
                    os.kill(iterator._workers[0].pid, signal.SIGKILL)
        except RuntimeError as error:
            assert mode == "kill", error
        del iterator, images
    del loader
    print(mode, left(pids, 3 if mode == "kill" else 20))
if __name__ == "__main__":
    start, modes, *paths = sys.argv[1:]
    torch.set_num_threads(1)
    torch.multiprocessing.set_sharing_strategy("file_system")
    torch.multiprocessing.set_start_method(start)
    files = helpers.Files(paths * 2, LARGE)
    expected = [images for images, _ in DataLoader(files, batch_size=3)]
    accel.set_image_backend("cpu")
    for mode in modes.split():
        run(mode, files, expected)
    print(os.getpid())
"""


@linux
@pytest.mark.parametrize(
    ("start", "modes"),
    [
        ("fork", "epochs break stream kill"),
        pytest.param("fork", "persistent", marks=pytest.mark.sweep),
        pytest.param("spawn", "epochs", marks=pytest.mark.sweep),
    ],
)
def test_workers_leave_nothing(paths: list[str], start: str, modes: str) -> None:
    status, out, err = finished(started(FILE_SYSTEM, start, modes, *paths[:6]), 200)
    assert status == 0, err
    *lines, pid = out.splitlines()
    bytes_left = {mode: int(number) for mode, number in map(str.split, lines)}
    in_flight = 2 * 2 * 3 * 3 * 300 * 300 * 4  # in two epochs, two batches each that the parent never took
    assert bytes_left.pop("kill", 0) <= in_flight
    assert set(bytes_left.values()) == {0}, bytes_left
    for _ in range(300):  # the counters' block goes with the process, when torch's manager of such files notices
        files = [name for name in os.listdir("/dev/shm") if name.startswith(f"torch_{pid}_")]
        if not files:
            break
        time.sleep(0.1)
    assert not files
