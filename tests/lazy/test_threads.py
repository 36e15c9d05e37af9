"""Hard use: threads, and pools of processes."""

import copy
import itertools
import multiprocessing
import os
import pickle
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torchvision import transforms as T
from torchvision.transforms import functional as F
from torchvision.transforms.v2.functional import to_image

import accel
from accel.backend import host_of
from accel.processes import switch
from tests.support import inside
from tests.support.helpers import Files, assert_same, open_rgb
from tests.support.processes import LARGE, TIMEOUT, finished, in_threads, loader, plain, started
from tests.support.tensors import MAKERS, both


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take turns as often as they can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


USES: list[Callable[[torch.Tensor], Any]] = [
    lambda lazy: lazy + 0,
    lambda lazy: lazy.numpy().copy(),
    lambda lazy: lazy.sum(),
    lambda lazy: lazy[..., 1].clone() + 0,
    lambda lazy: torch.stack([lazy, lazy]) + 0,
    lambda lazy: (lazy.shape, lazy.dtype, lazy.stride(), lazy.size(-1)),
    lambda lazy: lazy.half().float() + 0,
    lambda lazy: lazy.to(torch.float64, copy=True),
    lambda lazy: lazy.to("cpu").numpy().copy(),
    lambda lazy: lazy.contiguous().numpy().copy(),
    lambda lazy: pickle.loads(pickle.dumps(lazy)) + 0,
    lambda lazy: copy.deepcopy(lazy) + 0,
]


@pytest.mark.parametrize("kind", ["image", "batch", "tv"])
def test_one_lazy_tensor_in_many_threads(paths: list[str], kind: str, restless: None) -> None:
    def make() -> torch.Tensor:
        images = [open_rgb(path).resize((20, 24)) for path in paths[:4]]
        if kind == "tv":
            return to_image(images[0])
        tensors = list(map(F.to_tensor, images))
        return torch.stack(tensors) if kind == "batch" else tensors[0]

    reference = plain(make)
    expected = [use(reference) for use in USES]
    for turn in range(60):
        with accel.image_backend("cpu"):
            lazy = make()
        first = turn % len(USES)
        uses = USES[first:] + USES[:first]
        results = in_threads([lambda use=use, lazy=lazy: use(lazy) for use in uses])
        assert_same(results, expected[first:] + expected[:first])
        assert_same(lazy, reference)


def test_one_lazy_image_in_many_threads(paths: list[str], restless: None) -> None:
    reference = plain(lambda: open_rgb(paths[0]).resize((20, 24)))
    for _ in range(40):
        with accel.image_backend("cpu"):
            lazy = open_rgb(paths[0]).resize((20, 24))
        uses: list[Callable[[], Any]] = [
            lambda lazy=lazy: np.asarray(lazy),
            lambda lazy=lazy: np.asarray(lazy.copy()),
            lambda lazy=lazy: np.asarray(F.to_tensor(lazy) * 255).round().transpose(1, 2, 0).astype(np.uint8),
            lambda lazy=lazy: np.asarray(lazy.resize((20, 24))),
        ]
        for pixels in in_threads(uses * 2):
            assert_same(pixels, np.asarray(reference))


def test_pixels_are_kept_while_another_thread_opens_the_file(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with accel.image_backend("cpu"):
        image: Any = open_rgb(paths[0]).resize((20, 24))
    others = [image.keep_pixels]

    def open_late(original: Any, *args: Any) -> Any:
        while others:
            in_threads([others.pop()])
        return original(*args)

    inside.wrap(monkeypatch, type(image), "_file_of_pillow", open_late)
    assert image.info == plain(lambda: open_rgb(paths[0])).info
    assert not others


def test_many_threads_compute_different_batches_at_once() -> None:
    states = [both(MAKERS[name]) for name in ("batch", "crops", "single", "grey")] * 3
    results = in_threads([lambda lazy=lazy: lazy + 0 for lazy, _ in states])
    assert_same(results, [plain + 0 for _, plain in states])


def test_switching_while_others_load(paths: list[str], restless: None) -> None:
    """Whatever is in force when, the pixels are torchvision's."""
    dataset = Files(paths, T.Compose([T.Resize((24, 32)), T.CenterCrop(20), T.ToTensor()]))
    expected = plain(lambda: list(loader(dataset)))
    end = time.monotonic() + 2

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
    """In a process of its own: some libraries (filelock) refuse forks in two threads at once in which they are."""
    script = """
import os, sys, accel
from tests.support.processes import LARGE, loader, plain
from tests.support.helpers import Files, assert_same
from tests.support.processes import in_threads
paths = sys.argv[1].split(os.pathsep)
accel.set_image_backend("cpu")
expected = plain(lambda: list(loader(Files(paths, LARGE))))
works = [lambda workers=workers: list(loader(Files(paths, LARGE), workers)) for workers in (0, 0, 1, 0, 1, 0)]
for result in in_threads(works):
    assert_same(result, expected)
"""
    status, _, err = finished(started(script, os.pathsep.join(paths)))
    assert status == 0, err


def test_a_process_that_ends_with_loaders_open(paths: list[str]) -> None:
    """At exit, with lazy batches, an unfinished epoch and a thread that computes: no hang, no complaint."""
    script = """
import os, sys, threading, torch, accel
from tests.support import helpers
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
    host_of(switch.select("cpu", {})).prepare()  # that kernels are compiled, the first time, is told
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
