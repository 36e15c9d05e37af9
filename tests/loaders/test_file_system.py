"""torch's sharing strategy "file_system", the only one of macOS: what workers leave in the file system."""

import os
import time

import pytest

from tests.support.processes import finished, linux, started

SCRIPT = """
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
    status, out, err = finished(started(SCRIPT, start, modes, *paths[:6]), 200)
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
