"""torch's sharing strategy "file_system", the only one of macOS: what workers leave in the file system."""

from __future__ import annotations

import os
import time

import pytest
from hard_support import finished, linux, started

import accel

SCRIPT = """
import gc, glob, os, signal, sys, time
import helpers, torch, accel
from torch.utils.data import DataLoader, IterableDataset
from torchvision import transforms as T
LARGE = T.Compose([T.Resize((300, 300)), T.ToTensor()])
class Stream(IterableDataset):
    def __init__(self, files):
        self.files = files
    def __iter__(self):
        return iter([self.files[index] for index in range(len(self.files))])
def left(pids):  # bytes, of more than labels, which are torch's own
    gc.collect()
    end = time.monotonic() + 20
    while True:
        names = [name for pid in pids for name in glob.glob(f"/dev/shm/torch_{pid}_*")]
        sizes = [size for size in map(os.path.getsize, names) if size > 4096]
        if not sizes or time.monotonic() > end:
            return sum(sizes)
        time.sleep(0.1)
if __name__ == "__main__":
    mode, *paths = sys.argv[1:]
    torch.set_num_threads(1)
    torch.multiprocessing.set_sharing_strategy("file_system")
    files = helpers.Files(paths * 2, LARGE)
    data = Stream(files) if mode == "stream" else files
    expected = [images for images, _ in DataLoader(data, batch_size=3)]
    accel.set_image_backend("cpu")
    context = "spawn" if mode == "spawn" else None
    options = {"persistent_workers": mode == "persistent", "multiprocessing_context": context}
    loader = DataLoader(data, batch_size=3, num_workers=1, timeout=60, **options)
    pids = set()
    for _ in range(2):
        iterator = iter(loader)
        pids |= {worker.pid for worker in iterator._workers}
        try:
            for number, (images, _) in enumerate(iterator):
                assert torch.equal(images, expected[number])
                if number == 3 and mode == "break":
                    break
                if number == 3 and mode == "kill":
                    os.kill(iterator._workers[0].pid, signal.SIGKILL)
        except RuntimeError as error:
            assert mode == "kill", error
        del iterator, images
    del loader
    print(left(pids))
"""


@linux
@pytest.mark.parametrize("mode", ["epochs", "break", "persistent", "spawn", "stream", "kill"])
def test_workers_leave_nothing(paths: list[str], mode: str) -> None:
    with accel.image_backend("cpu"):  # compiled, the first time on a machine, off the clock
        pass
    status, out, err = finished(started(SCRIPT, mode, *paths[:6]), 120)
    assert status == 0, err
    in_flight = 2 * 2 * 3 * 3 * 300 * 300 * 4  # in two epochs, two batches each that the parent never took
    assert int(out) <= (in_flight if mode == "kill" else 0)


@linux
def test_a_process_leaves_nothing(paths: list[str]) -> None:
    """The counters' block goes with it; torch's manager of such files needs a moment."""
    script = SCRIPT + """
    print(os.getpid())
"""
    status, out, err = finished(started(script, "epochs", *paths[:6]), 120)
    assert status == 0, err
    pid = out.split()[-1]
    for _ in range(200):
        files = [name for name in os.listdir("/dev/shm") if name.startswith(f"torch_{pid}_")]
        if not files:
            break
        time.sleep(0.1)
    assert not files
