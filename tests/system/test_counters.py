"""What accel counts: it adds up over all processes, and is said once."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from accel.system import counters, log
from tests.support import helpers, inside

SCRIPT = """
import os, signal, sys
import accel
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from torchvision import datasets, transforms as T

class Own(Dataset):
    def __init__(self, root, transform):
        self.inner, self.transform = datasets.ImageFolder(root), transform
    def __len__(self):
        return len(self.inner)
    def __getitem__(self, index):
        image, label = self.inner[index]
        return self.transform(image), label

def as_array(image):
    return np.array(image)

FIXED = [T.Resize((40, 40)), T.ToTensor()]

if __name__ == "__main__":
    root, method, persistent = sys.argv[1], sys.argv[2] or None, sys.argv[3] == "True"
    accel.set_image_backend("cpu")
    own = T.Compose([FIXED[0], as_array, FIXED[1]])
    sets = {
        "drawn together": datasets.ImageFolder(root, T.Compose(FIXED)),
        "alone, ": Own(root, T.Compose(FIXED)),
        "one by one: the function as_array is not compiled (": datasets.ImageFolder(root, own),
    }
    options = {"multiprocessing_context": method, "persistent_workers": persistent} if method else {}
    options["num_workers"] = {"": 0, "fork": 2, "spawn": 1}[sys.argv[2]]
    done = 0
    for way, dataset in sets.items():
        loader = DataLoader(dataset, 4, **options)
        for _ in range(2):  # new workers each time, unless they are persistent
            for images, _ in loader:
                images.sum()
        done += 2 * len(dataset)
        stats = accel.stats()
        assert stats["images"] == sum(stats["ways"].values()) == done, (done, stats)
        assert stats["computed early"] == sum(stats["computed early by"].values()), stats
        own = [n for name, n in stats["ways"].items() if name.startswith(way)]
        assert sum(own) == 2 * len(dataset), (way, stats["ways"])
    if method == "fork":
        loader = iter(DataLoader(sets["drawn together"], 4, num_workers=2))
        next(loader)
        os.kill(loader._workers[0].pid, signal.SIGKILL)
        try:
            list(loader)
        except RuntimeError:
            pass
        stats = accel.stats()
        assert stats["images"] == sum(stats["ways"].values()) > done, stats
    print(accel.summary())
"""


@pytest.mark.parametrize(("method", "persistent"), [("", False), ("fork", False), ("fork", True), ("spawn", True)])
def test_it_adds_up_and_is_said_once(tmp_path: Path, method: str, persistent: bool) -> None:
    root, script = helpers.write_image_folder(tmp_path / "images"), tmp_path / "script.py"
    script.write_text(SCRIPT)
    words = [sys.executable, str(script), str(root), method, str(persistent)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("accel fell back")]
    assert len(said) == 1, "by no worker again, in no epoch"
    assert "as_array (script.py:" in said[0]
    assert "not everything was done the fast way:\n  24 times: as_array (script.py:" in done.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="forks")
@pytest.mark.parametrize("lives", [True, False])
def test_living_processes_count_in_rows_of_their_own(lives: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever their numbers are; the row of one that has ended is used again."""
    block = counters.share()
    assert block is not None
    shared, step = torch.zeros_like(block), 10 << 22  # beyond all numbers of processes, and of the same row
    first, second = os.getpid() + (0 if lives else step), os.getpid() + 2 * step
    try:
        for process in (first, second):
            monkeypatch.setattr(os, "getpid", lambda process=process: process)
            counters.join(shared)
            counters.count(counters.IMAGES)
    finally:
        counters.join(block)
    owners = shared.numpy().view(np.int64)[:1024]
    assert set(owners[owners > 0].tolist()) == ({first, second} if lives else {second})


def test_what_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    inside.forget_messages()
    for number in range(3):
        counters.fallback("said by this test", f"{number}.jpg")
    assert [record.getMessage() for record in caplog.records] == [
        "accel fell back: said by this test (the first one: 0.jpg)"
    ]
    pid = os.fork()
    if pid == 0:
        inside.forget_messages()
        os._exit(log.first("said by this test"))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, "a child says it again"


def test_what_other_threads_do_meanwhile_is_counted() -> None:
    before = counters.stats()[counters.KEPT]
    with counters.uncounted():
        thread = threading.Thread(target=counters.count, args=(counters.KEPT,))
        thread.start()
        thread.join()
        counters.count(counters.KEPT, 10)
    assert counters.stats()[counters.KEPT] == before + 1
