"""Lazy tensors between threads and processes, and the memory that they use again."""

import gc
import pickle
from pathlib import Path

from torchvision.transforms import functional as F

import accel
from tests.support import helpers
from tests.support.helpers import assert_same
from tests.support.processes import in_threads
from tests.support.tensors import MAKERS, both

COLOUR, GREY = helpers.pictures()[0], helpers.pictures()[3]


# -- threads and processes ----------------------------------------------------------------------------------


def test_many_threads_compute_different_batches_at_once() -> None:
    makers = [MAKERS[name] for name in ("batch", "crops", "single", "grey")] * 3
    states = [both(make) for make in makers]
    results = in_threads([lambda lazy=lazy: lazy + 0 for lazy, _ in states])
    for result, (_, plain) in zip(results, states, strict=True):
        assert_same(result, plain + 0)


# -- memory that is used again ------------------------------------------------------------------------------


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
