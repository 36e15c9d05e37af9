"""Plans of rows on the host: the same values as the plans of their recipes, one by one."""

from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import functional as F

import accel
from accel.backends.cpu import passes, stages
from accel.backends.cpu.shares import Share
from accel.errors import DecodeError
from accel.processes.switch import active
from accel.recipes.recipe import Recipe, Source
from accel.recipes.rows import Form, Pictures, Rows, Slot, Structure
from accel.runtime import compute
from accel.system import memory
from tests.support import helpers
from tests.support.rows import lacking, random_rows
from tests.support.shares import IN_BANDS, bands_from

SIZES = [(90, 61), (500, 375), (33, 48), (64, 64), (16, 9), (120, 40)]
FILES = [helpers.jpeg(*size) for size in SIZES]
GREY = helpers.jpeg(50, 70, mode="L")


def sources(files: Sequence[bytes]) -> list[Source]:
    """Sources of files, each opened anew."""
    return [F.pil_to_tensor(Image.open(BytesIO(data))).lazy.recipes[0].source for data in files]


def poisoned(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    made = memory.results.empty(shape, dtype)
    made.view(torch.uint8).fill_(0xA5)
    return made


def values(recipes: Sequence[Recipe], **options: Any) -> torch.Tensor:
    return compute.tensors(recipes, allocate=poisoned, **options)


@pytest.mark.parametrize(("threads", "in_bands"), [(1, IN_BANDS), (1, 0), (3, 0)])
@pytest.mark.parametrize("seed", range(30))
def test_files(seed: int, threads: int, in_bands: int, monkeypatch: pytest.MonkeyPatch) -> None:
    bands_from(monkeypatch, in_bands)
    with accel.image_backend("cpu", threads=threads):
        rng = np.random.default_rng(seed)
        rows = random_rows(rng, sources([*FILES, GREY]))
        again = Rows(sources([*FILES, GREY]), rows.structure, rows.numbers)
        for interleaved in (False, True):
            found, wanted = (values(each, interleaved=interleaved) for each in (rows, list(again)))
            assert found.stride() == wanted.stride()
            assert torch.equal(found, wanted)  # the second time of pictures that were kept


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("seed", range(40))
def test_pictures(seed: int, threads: int) -> None:
    rng = np.random.default_rng(seed)
    shape = ((40, 32, 32, 3), (50, 28, 28), (3, 77, 50, 3), (1, 5, 9))[seed % 4]
    with accel.image_backend("cpu", threads=threads):
        selection = active()
        assert selection is not None
        pictures = Pictures(rng.integers(0, 256, shape, np.uint8), "pictures", selection)
        rows = random_rows(rng, pictures)
        if len(shape) == 3 and seed % 8 >= 4:  # no convert: they stay grey
            rows = Rows(pictures, Structure.of(*rows.structure.forms[1:]), rows.numbers)
        for interleaved in (False, True):
            found, wanted = (values(each, interleaved=interleaved) for each in (rows, list(rows)))
            assert found.stride() == wanted.stride()
            assert torch.equal(found, wanted)


CROP = Structure.of(Form("crop", (Slot(0), Slot(1), 9, 9)), Form("hflip", (), 2), Form("to_tensor", (torch.float32,)))


def cropped(files: Sequence[bytes]) -> Rows:
    numbers = np.array([(0, n % 5, n % 2) for n in range(len(files))])
    return Rows(sources(files), CROP, numbers)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ways in which the kernel was called."""
    found: list[str] = []
    for name in ("run", "run_ordered"):
        original = getattr(passes, name)

        def called(*given: Any, name: str = name, original: Any = original, **more: Any) -> None:
            found.append(name)
            original(*given, **more)

        monkeypatch.setattr(passes, name, called)
    share = Share.run

    def run(*given: Any) -> list[int]:
        found.append("shares")
        return share(*given)

    monkeypatch.setattr(Share, "run", run)
    return found


def test_there_is_no_object_for_an_image(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with accel.image_backend("cpu", threads=1):
        files = cropped(FILES)
        pictures = Pictures(np.zeros((50, 20, 20, 3), np.uint8), "pictures", files.sources[0].selection)
        monkeypatch.setattr(Rows, "__getitem__", None)
        monkeypatch.setattr(Rows, "__iter__", None)
        monkeypatch.setattr("accel.runtime.compute.selection_of", lambda recipes: pictures.selection)
        values(files)
        assert calls == ["shares"]
        calls.clear()
        monkeypatch.setattr(Pictures, "__getitem__", None)
        values(Rows(pictures, CROP, np.zeros((50, 3))))
        assert calls == ["shares"]


def test_where_pillow_resizes_in_another_way(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "resizes_as_pillow", lambda: False)
    with accel.image_backend("cpu", threads=1):
        selection = active()
        assert selection is not None
        pixels = np.random.default_rng(0).integers(0, 256, (5, 20, 30, 3), np.uint8)
        structure = Structure.of(Form("resize", (7, 8, 2)), Form("pil_to_tensor"))
        found = values(Rows(Pictures(pixels, "pictures", selection), structure, np.zeros((5, 0))))
    assert "shares" not in calls
    for image, own in zip(pixels, found, strict=True):
        wanted = np.asarray(Image.fromarray(image).resize((8, 7), Image.Resampling.BILINEAR))
        assert np.array_equal(own.permute(1, 2, 0), wanted)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_damaged_file(threads: int) -> None:
    broken = helpers.undecodable()
    files = [*FILES[:3], broken, *FILES[3:], broken]

    def outcome(recipes: Any) -> str:
        with pytest.raises(DecodeError) as caught:
            compute.tensors(recipes)
        assert caught.value.position == 3
        return str(caught.value)

    with accel.image_backend("cpu", threads=threads):
        assert outcome(cropped(files)) == outcome(list(cropped(files)))
    with accel.image_backend("cpu", threads=threads, on_error="replace"):
        before = accel.stats()["replaced"]
        found, wanted = values(cropped(files)), values(list(cropped(files)))
        assert accel.stats()["replaced"] == before + 4
    assert torch.equal(found, wanted)
    assert not found[[3, 7]].any()
    assert found[2].any()


def test_steps_that_some_images_lack(calls: list[str]) -> None:
    files = [data for data, size in zip(FILES, SIZES, strict=True) if size != (16, 9)] * 2 + [GREY, GREY]
    with accel.image_backend("cpu", threads=1):
        found = values(lacking(sources(files)))
        assert calls == ["shares"]
        wanted = values(list(lacking(sources(files))))
    assert torch.equal(found, wanted)
