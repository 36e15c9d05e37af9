"""Nothing is left of batches that were drawn in one go when they are gone."""

import gc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder

import accel
from accel.hooks.compiled.program import Outcome
from accel.hooks.compiled.random_numbers.tape import Tape
from accel.hooks.compiled.transforms.draws import Piece, Run
from accel.lazy.tensor_base import LazyTensorBase
from accel.recipes.recipe import Recipe, Source
from accel.recipes.rows import Rows
from tests.hooks.compiled.support import PIPELINES

_KINDS = (Piece, Run, Outcome, Tape, LazyTensorBase, Recipe, Source, Rows)


def _living() -> Counter[str]:
    gc.collect()
    return Counter(type(each).__name__ for each in gc.get_objects() if issubclass(type(each), _KINDS))


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
@pytest.mark.parametrize("name", ["train", "warped", "two views", "contrast of tensors"])
def test_nothing_is_left(name: str, backend: str, root: Path) -> None:
    options: dict[str, Any] = {"device": "cpu"} if backend == "cuda" else {}
    loader = DataLoader(ImageFolder(str(root), PIPELINES[name]()), 4, drop_last=True, shuffle=True)
    living = []
    with accel.image_backend(backend, **options):
        for _ in range(7):
            for images, _ in loader:
                assert images.to("cpu").isfinite().all()
            del images
            living.append(_living())
    more = living[-1] - living[2]
    assert more.keys() <= {"Piece", "Tape"}
    assert more["Tape"] <= 1  # the next batch may go on with the last one
    assert more["Piece"] <= 24  # one for each order of colours is kept
