"""Forks while other threads hold locks of ours, or numba's: the child computes, whatever they were doing."""

import ast
import itertools
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numba.core.compiler_lock import global_compiler_lock
from PIL import Image
from torchvision.transforms import functional as F

import accel
from accel import backend as registry
from accel.codec import engines
from accel.lazy import batch as companions
from accel.lazy import shell
from accel.processes import switch
from accel.runtime import prefetch, task
from accel.system import counters, fork, imports
from tests.support import helpers
from tests.support.helpers import assert_same
from tests.support.processes import finished, in_child, linux, plain, started

pytestmark = linux
DATA = helpers.jpeg(64, 48)


def opened() -> Image.Image:
    return Image.open(BytesIO(DATA))


def batch() -> torch.Tensor:
    return torch.stack([F.to_tensor(opened()) for _ in range(3)])


@contextmanager
def held(lock: Any) -> Iterator[threading.Event]:
    """Another thread holds the lock, until the event is set."""
    locked, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            locked.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    assert locked.wait(30)
    try:
        yield done
    finally:
        done.set()
        thread.join(30)


_numbers = itertools.count(2)


def computes() -> bool:
    """Everything that takes these locks, from a switch to a backend that there was not on."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        accel.set_image_backend("cpu", threads=next(_numbers))
        made = batch()
        result = accel.submit([F.to_tensor(opened())]).result()[0]
        accel.stats()
        return bool((made == result).all())


LOCKS: dict[str, Any] = {
    "instances": registry._instances_lock,
    "queues": prefetch._lock,
    "pools": task._lock,
}
WAITED_FOR: dict[str, Any] = {
    "switch": switch._lock,
    "counters": counters._lock,
    "imports": imports.importing,
    "swaps": shell.swapping,
    "numba's": global_compiler_lock,
}


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_that_another_thread_holds_is_new_in_the_child(name: str) -> None:
    accel.set_image_backend("cpu")
    assert batch().shape == (3, 3, 48, 64)
    with held(LOCKS[name]):
        assert in_child(computes)()
    assert computes()  # here it is as before


@pytest.mark.parametrize("name", WAITED_FOR)
def test_a_fork_waits_for_what_may_be_half_made(name: str) -> None:
    accel.set_image_backend("cpu")
    assert batch().shape == (3, 3, 48, 64)
    with held(WAITED_FOR[name]) as done:
        threading.Timer(0.5, done.set).start()
        result = in_child(computes)
        assert done.is_set()
    assert result()
    assert computes()


def test_a_lock_that_the_thread_that_forks_holds_is_held_in_the_child() -> None:
    lock = fork.Lock()

    def in_another_thread() -> bool:
        taken: list[bool] = []
        thread = threading.Thread(target=lambda: taken.append(lock._inner.acquire(timeout=0.2)))
        thread.start()
        thread.join(30)
        return taken[0]

    with lock, lock:
        assert in_child(lambda: not in_another_thread())()
        assert not in_another_thread()
    assert in_another_thread()


def test_backend_preparing() -> None:
    from accel.backends.cpu import backend

    accel.set_image_backend("cpu")
    with held(backend._preparing):
        assert in_child(computes)()


def held_decoding(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Have this process, and not its children, wait in the decoder: (that it has begun there, that it may go on)."""
    begun, done = threading.Event(), threading.Event()
    decode, parent = engines.pillow, os.getpid()

    def slowly(*arguments: Any) -> Any:
        if os.getpid() == parent:
            begun.set()
            done.wait(60)
        return decode(*arguments)

    monkeypatch.setattr(engines, "pillow", slowly)
    return begun, done


@pytest.mark.parametrize("grouped", [False, True])
def test_what_another_thread_computes_is_computed_by_the_child(monkeypatch: pytest.MonkeyPatch, grouped: bool) -> None:
    expected = plain(lambda: F.to_tensor(opened()))
    accel.set_image_backend("cpu", decode="pillow")
    assert batch().shape == (3, 3, 48, 64)
    tensors = [F.to_tensor(opened()) for _ in range(2)]
    if grouped:
        companions.compute_together([tensor.lazy for tensor in tensors])  # type: ignore[attr-defined]
    begun, done = held_decoding(monkeypatch)
    thread = threading.Thread(target=lambda: tensors[0].sum())
    thread.start()
    assert begun.wait(30)
    result = in_child(lambda: all(torch.equal(tensor + 0, expected) for tensor in tensors))
    try:
        assert result()
    finally:
        done.set()
        thread.join(30)
    assert_same([tensor + 0 for tensor in tensors], [expected] * 2)


def test_what_was_submitted_is_computed_by_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    accel.set_image_backend("cpu", decode="pillow")
    expected = batch() + 0
    begun, done = held_decoding(monkeypatch)
    future = accel.submit(batch())
    assert begun.wait(30)
    try:
        assert in_child(lambda: torch.equal(future.result(), expected) and future.exception() is None)()
    finally:
        done.set()
    assert_same(future.result(60), expected)


def test_a_fork_while_others_make_their_first_batch() -> None:
    """numba is imported, kernels are loaded or compiled, in threads; the children do so, too."""
    script = """
import io, os, signal, sys, threading, time, warnings
import torch, accel
from tests.support import helpers
from PIL import Image
from torchvision import transforms as T
warnings.simplefilter("ignore", DeprecationWarning)
torch.set_num_threads(1)
accel.set_image_backend("cpu")
data = helpers.jpeg(64, 48)
transform = T.Compose([T.ColorJitter(hue=0.1), T.Resize(20), T.CenterCrop(16), T.ToTensor()])
def compute():
    return float(torch.stack([transform(Image.open(io.BytesIO(data))) for _ in range(4)]).sum())
threads = [threading.Thread(target=compute) for _ in range(3)]
for thread in threads:
    thread.start()
for number in range(6):
    time.sleep(0.15)
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        compute()
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    assert status == 0, f"child {number} ended with {status}"
for thread in threads:
    thread.join()
"""
    with accel.image_backend("cpu"):  # compiled, the first time on a machine, off the clock
        np.asarray(F.adjust_hue(opened(), 0.1))
    status, _, err = finished(started(script), 180)
    assert status == 0, err


ROOT = Path(accel.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))


def _nodes(node: ast.AST, gated: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """Nodes inside functions, and whether imports are held where they stand."""
    if isinstance(node, ast.With):
        gated |= any(getattr(item.context_expr, "id", "") == "importing" for item in node.items)
    yield node, gated
    for child in ast.iter_child_nodes(node):
        yield from _nodes(child, gated)


def test_what_is_imported_late_is_imported_in_no_fork() -> None:
    before_accel = (
        ROOT / "processes/launch/child.py"
    )  # runs where nothing of accel's is yet, and the import is somebody else's
    for path in {*FILES} - {before_accel}:
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                for node, gated in _nodes(function):
                    late_import = isinstance(node, (ast.Import, ast.ImportFrom)) and not gated
                    assert not late_import, f"{path}: in {function.name}: use accel.system.imports"


PLAIN = {
    "accel/system/fork.py": "what a Lock is made of",
    "accel/system/memory.py": "made anew in a child",
    "accel/system/counters.py": "waited for by forks",
    "accel/lazy/shell.py": "waited for by forks",
    "accel/profiling/sampler.py": "made anew for each thread",
    "accel/runtime/prefetch.py": "a queue is its process's",
    "accel/runtime/torch_ops.py": "made for one call",
    "accel/sinking/device_queue.py": "torch sets it, in the process whose it is",
}


def test_locks_know_of_forks() -> None:
    made: Callable[[ast.AST], bool] = lambda node: (  # noqa: E731
        isinstance(node, ast.Attribute)
        and getattr(node.value, "id", "") == "threading"
        and node.attr in ("Lock", "RLock", "Condition", "Semaphore", "Event", "Barrier")
    )
    for path in FILES:
        name = path.relative_to(ROOT.parent).as_posix()
        if name not in PLAIN and any(map(made, ast.walk(ast.parse(path.read_text())))):
            pytest.fail(f"{name}: use fork.Lock")


def test_no_property_has_a_lock() -> None:
    """Those of functools had one before Python 3.12, for all objects of the class."""
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "functools" and path.name != "fork.py":
                names = [name.name for name in node.names]
                assert "cached_property" not in names, f"{path}: use fork.cached_property"


def test_a_property_that_another_thread_computes_is_computed_by_the_child() -> None:
    begun, done, parent = threading.Event(), threading.Event(), os.getpid()

    class Slow:
        @fork.cached_property
        def value(self) -> object:
            if os.getpid() == parent:
                begun.set()
                done.wait(60)
            return object()

    slow, found = Slow(), []
    threads = [threading.Thread(target=lambda: found.append(slow.value)) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert begun.wait(30)
    try:
        assert in_child(lambda: Slow().value is not slow.value)()
    finally:
        done.set()
    for thread in threads:
        thread.join(30)
    assert len(found) == 2
    assert slow.value is slow.value
    assert slow.value in found


def test_an_interrupt_while_a_fork_waits_reaches_who_forks() -> None:
    script = """
import os, signal, threading, time
from accel.system import imports
inside, forking = threading.Event(), threading.Event()
os.register_at_fork(before=forking.set)  # what is registered last is called first
def compile():
    with imports.importing:
        inside.set()
        forking.wait()
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)
thread = threading.Thread(target=compile, daemon=True)
thread.start()
inside.wait()
try:
    if os.fork() == 0:
        os._exit(0)
    time.sleep(1)
except KeyboardInterrupt:
    print("interrupted")
if os.fork() == 0:  # is not interrupted once more
    os._exit(0)
print("forked")
"""
    status, out, err = finished(started(script), 60)
    assert (status, out.split()) == (0, ["interrupted", "forked"]), err
