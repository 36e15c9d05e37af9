"""Logging: nobody waits for it who may be waited for, and nothing is lost. What may hang runs in its own process."""

import ast
import io
import logging
import threading
from pathlib import Path

import pytest

import accel
from accel.system import counters, fork, log
from tests.support.processes import finished, linux, started

ROOT = Path(accel.__file__).parent
FILES = set(ROOT.rglob("*.py"))


def test_one_file_logs() -> None:
    for path in FILES - {ROOT / "system" / "log.py"}:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [name.name for name in node.names] if isinstance(node, ast.Import) else []
            module = node.module if isinstance(node, ast.ImportFrom) else None
            assert "logging" not in {*names, module}, f"{path}, line {getattr(node, 'lineno', 0)}: use accel.system.log"


PRELUDE = """
import io, logging, os, sys, threading, time
import torch, accel
from tests.support import helpers
from accel.codec import engines
from accel.runtime import read
from PIL import Image
from torchvision import transforms as T
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(threadName)s: %(message).50s")
accel.set_image_backend("cpu", threads=4)
data = helpers.jpeg(64, 48)
def opened():
    return Image.open(io.BytesIO(data))
T.ToTensor()(opened()).sum()
engines.accel = lambda *_: None  # from now on it declines every file
read.only_decodes = lambda source: False
"""
DECLINED = "accel fell back: accel declined a JPEG; Pillow dec"


def logged(script: str) -> list[str]:
    status, out, err = finished(started(PRELUDE + script), 60)
    assert status == 0, err
    return [line.split("\n")[0] for line in out.splitlines() if "fell back" in line or "first batch" in line]


def test_a_batch_that_is_logged() -> None:
    """The handler formats it in its lock; a thread of accel's has something to say meanwhile."""
    script = """
images = torch.stack([T.ToTensor()(opened()) for _ in range(8)])
logging.info("first batch: %s", images)
"""
    lines = logged(script)
    assert lines[0] == f"MainThread: {DECLINED}"
    assert lines[1].startswith("MainThread: first batch: tensor(")


def test_a_value_that_is_logged_while_another_thread_falls_back() -> None:
    script = """
inside = threading.Event()
class Shown:
    def __str__(self):
        inside.set()
        time.sleep(0.5)
        return str(T.ToTensor()(opened()).mean())
def other():
    inside.wait()
    opened().crop((1, 1, 9, 9)).getpixel((0, 0))
thread = threading.Thread(target=other, name="other")
thread.start()
logging.info("first batch: %s", Shown())
thread.join()
"""
    assert len(logged(script)) == 3


def test_two_threads_that_fall_back_each_in_another_handler() -> None:
    """One formats in the handler of warnings, the other in that of all else; what accel says goes to both."""
    script = """
both_inside = threading.Barrier(2)
class Formatter(logging.Formatter):
    def format(self, record):
        if record.name != "accel":
            both_inside.wait(30)
        return super().format(record)
warnings, all_else = handlers = logging.StreamHandler(sys.stdout), logging.StreamHandler(sys.stdout)
warnings.setLevel(logging.WARNING)
all_else.addFilter(lambda record: record.name == "accel" or record.levelno < logging.WARNING)
logging.getLogger().handlers[:] = handlers
for handler in handlers:
    handler.setFormatter(Formatter("%(message).50s"))
class Shown:
    def __init__(self, ask):
        self.ask = ask
    def __str__(self):
        return str(self.ask(opened().crop((1, 1, 9, 9))))
def one(image):
    return image.getpixel((0, 0))
def other(image):
    return image.getpixel((0, 0))
threads = [
    threading.Thread(target=logging.warning, args=("first batch of one: %s", Shown(one))),
    threading.Thread(target=logging.info, args=("first batch of other: %s", Shown(other))),
]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""
    lines = logged(script)
    assert sum("first batch" in line for line in lines) == 2
    assert len(lines) - 2 >= 4, "both handlers have what is said of both"


def test_what_only_threads_of_ours_have_seen_is_logged_at_the_end() -> None:
    script = """
future = accel.submit([T.ToTensor()(opened()), T.ToTensor()(opened())])
while not future.done():
    time.sleep(0.01)
time.sleep(0.5)
"""
    assert logged(script) == [f"MainThread: {DECLINED}"]


@linux
def test_what_a_worker_falls_back_to_is_logged_once() -> None:
    script = """
class Files(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        return T.ToTensor()(opened())
options = {"num_workers": 1, "timeout": 50, "multiprocessing_context": "fork"}
for images in torch.utils.data.DataLoader(Files(), batch_size=2, **options):
    pass
"""
    assert logged(script) == [f"MainThread: {DECLINED}"]


def test_it_waits_for_the_end_of_what_holds_a_lock(caplog: pytest.LogCaptureFixture) -> None:
    with fork.Lock():
        counters.fallback("tried under a lock")
        log.flush()
        assert not caplog.records
    log.flush()
    assert [record.getMessage() for record in caplog.records] == ["accel fell back: tried under a lock"]


def test_it_waits_for_a_thread_of_a_user(caplog: pytest.LogCaptureFixture) -> None:
    def ours() -> None:
        log.is_ours()
        log.note(log.WARNING, "from a thread of %s", "ours")
        log.flush()

    def _pin_memory_loop() -> None:
        log.flush()

    for target in (ours, _pin_memory_loop):
        thread = threading.Thread(target=target)
        thread.start()
        thread.join(30)
        assert not caplog.records
    accel.stats()
    assert [record.getMessage() for record in caplog.records] == ["from a thread of ours"]


def test_at_once_means_unless_a_handler_is_in_use(caplog: pytest.LogCaptureFixture) -> None:
    log.at_once(log.WARNING, "now")
    assert [record.getMessage() for record in caplog.records] == ["now"]
    handler = logging.StreamHandler(io.StringIO())
    logging.getLogger("accel").addHandler(handler)
    locked, done = threading.Event(), threading.Event()

    def use() -> None:
        with handler.lock:  # type: ignore[union-attr]
            locked.set()
            done.wait(30)

    thread = threading.Thread(target=use)
    thread.start()
    try:
        locked.wait(30)
        log.at_once(log.WARNING, "later")
        assert len(caplog.records) == 1
    finally:
        done.set()
        thread.join(30)
        logging.getLogger("accel").removeHandler(handler)
    log.flush()
    assert [record.getMessage() for record in caplog.records] == ["now", "later"]
