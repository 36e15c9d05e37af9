"""Lazy tensors between threads and processes, and the memory that they use again."""

import copy
import gc
import pickle
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.multiprocessing as mp
from torchvision.transforms import functional as F

import accel
from tests.support import helpers
from tests.support.helpers import assert_same, is_lazy, outcome
from tests.support.tensors import MAKERS, both, make_batch, make_single

COLOUR, GREY = helpers.pictures()[0], helpers.pictures()[3]


# -- threads and processes ----------------------------------------------------------------------------------

FIRST_USES: list[Callable[[torch.Tensor], Any]] = [
    lambda tensor: tensor.numpy().copy(),
    lambda tensor: np.asarray(tensor).copy(),
    lambda tensor: (tensor + 0).numpy(),
    lambda tensor: tensor.to("cpu").numpy().copy(),
    lambda tensor: torch.stack([tensor, tensor])[1].numpy(),
    lambda tensor: tensor.clone().numpy(),
    lambda tensor: tensor.double().float().numpy(),
    lambda tensor: pickle.loads(pickle.dumps(tensor)).numpy(),
    lambda tensor: copy.deepcopy(tensor).numpy(),
    lambda tensor: tensor.contiguous().numpy().copy(),
]


def test_many_threads_use_one_tensor_at_once() -> None:
    _, plain = both(make_batch)
    expected, failures = plain.numpy(), []
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for turn in range(30):
            lazy, _ = both(make_batch)
            start = threading.Barrier(len(FIRST_USES))

            def work(use: Callable[[torch.Tensor], Any], lazy: torch.Tensor = lazy, start: Any = start) -> None:
                start.wait()
                try:
                    if not np.array_equal(use(lazy), expected):
                        failures.append("values differ")
                except Exception as error:
                    failures.append(f"{type(error).__name__}: {error}")

            threads = [
                threading.Thread(target=work, args=(use,)) for use in FIRST_USES[turn % 3 :] + FIRST_USES[: turn % 3]
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
    finally:
        sys.setswitchinterval(interval)
    assert not failures


def test_many_threads_compute_different_batches_at_once() -> None:
    makers = [MAKERS[name] for name in ("batch", "crops", "single", "grey")] * 3
    states = [both(make) for make in makers]
    results: list[Any] = [None] * len(states)

    def work(number: int) -> None:
        results[number] = outcome(lambda: states[number][0] + 0)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(states))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for result, (_, plain) in zip(results, states, strict=True):
        assert_same(result, plain + 0)


def send(queue: Any, received: Any) -> None:
    accel.set_image_backend("cpu")
    queue.put([make_batch(), make_single(), COLOUR.open().resize((9, 9))])
    received.wait(60)  # torch's shared memory needs its sender until it has arrived


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.sweep)])
def test_a_queue_between_processes(method: str) -> None:
    context = mp.get_context(method)
    queue, received = context.Queue(), context.Event()
    with accel.image_backend("cpu"):
        states = [make_batch(), make_single()]
    process = context.Process(target=send, args=(queue, received))
    process.start()
    batch, single, image = queue.get(timeout=100)
    assert_same([batch, single], [make_batch(), make_single()])
    assert_same(image, COLOUR.open().resize((9, 9)))
    received.set()
    process.join(60)
    assert process.exitcode == 0
    queue.put(states)
    assert_same(queue.get(timeout=60), [make_batch(), make_single()])


# -- memory that is used again ------------------------------------------------------------------------------


def test_memory_is_not_used_again_while_anything_looks_at_it() -> None:
    """Batches large enough that accel reuses their memory; views, arrays and casts keep it alive."""

    def make(number: int) -> torch.Tensor:
        images = [helpers.pictures()[0].open().crop((number, 0, 200, 150)).resize((300, 300)) for _ in range(2)]
        return torch.stack([F.to_tensor(image) for image in images])

    expected = [make(number) for number in range(12)]
    kept: list[Any] = []
    with accel.image_backend("cpu"):
        for number in range(12):
            batch = make(number)
            assert is_lazy(batch)
            keep = (
                lambda batch: batch[1, 2, 3:],
                lambda batch: batch.numpy()[1, 2, 3:],
                lambda batch: batch.flatten()[-300:],
                lambda batch: torch.from_numpy(batch.numpy()).view(-1)[-300:],
                lambda batch: batch.detach().permute(3, 2, 1, 0),
                lambda batch: None,
            )[number % 6]
            kept.append((number, keep, keep(batch)))
            del batch
            gc.collect()
    for number, keep, value in kept:
        if value is not None:
            assert np.array_equal(np.asarray(value), np.asarray(keep(expected[number])))


def test_a_file_read_into_reused_memory_stays_what_it_was(paths: list[str], tmp_path: Path) -> None:
    from torchvision.datasets.folder import default_loader

    expected = [F.to_tensor(default_loader(path).resize((30, 20))) for path in paths]
    with accel.image_backend("cpu"):
        for _ in range(5):
            images = [default_loader(path) for path in paths]
            small = [image.resize((30, 20)) for image in images]
            pickled = [pickle.dumps(image) for image in small]
            tensors = [F.to_tensor(image) for image in small]
            del images, small
            gc.collect()
            others = [default_loader(path) for path in reversed(paths)]
            assert_same(tensors, expected)
            assert_same([F.to_tensor(pickle.loads(each)) for each in pickled], expected)
            del others
