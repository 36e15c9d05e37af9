"""Which file, which sample and which place in the batch an error came from: notes, and DecodeError's own text."""

import logging
import traceback
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch._utils import ExceptionWrapper
from torch.utils.data import ConcatDataset, Subset
from torchvision.datasets import ImageFolder
from torchvision.datasets.folder import default_loader
from torchvision.transforms import functional as F

import accel
from accel.system import notes
from tests.support import damage, helpers
from tests.support.backends import Backend
from tests.support.damage import KINDS
from tests.support.loaders import FIXED, epoch

LATE = "no-tables"
NAMED = ("half", "text", "short-header", "png-half", LATE)
IN_WORKERS = ("half", "fork"), (LATE, "fork")  # persistent ones take torch five seconds to end
WORKERS: dict[str, dict[str, Any]] = {
    "none": {},
    "fork": {"num_workers": 2, "multiprocessing_context": "fork"},
    "persistent": {"num_workers": 1, "persistent_workers": True},
}


def tree(root: Path, kind: str = LATE) -> tuple[list[str], str]:
    """Twelve files, of which number 6 is damaged; and the damaged one."""
    helpers.write_image_folder(root, broken={6: KINDS[kind]})
    files = sorted(map(str, root.rglob("*.jpg")), key=lambda path: path[-7:])
    return files, files[6]


class Files(helpers.Files):
    """Pillow leaves a broken file open where it opened it itself; torchvision's loader does not."""

    def __getitem__(self, index: int) -> Any:
        return self.transform(default_loader(self.paths[index])), index


class Stream(helpers.Stream):
    def __iter__(self) -> Iterator[Any]:
        yield from (self.transform(default_loader(path)) for path in self.paths)


def use(batch: Any) -> None:
    for value in batch if isinstance(batch, (list, tuple)) else [batch]:
        if isinstance(value, torch.Tensor):
            _ = value + 0
        elif isinstance(value, (list, tuple)):
            use(value)


def raised(dataset: Any, **options: Any) -> tuple[Exception, str]:
    """The error of an epoch, and all that is shown of it."""
    with pytest.raises(Exception) as caught:
        use(epoch(dataset, **options))
    return caught.value, "".join(traceback.format_exception_only(caught.value))


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        pytest.param(kind, how, marks=[] if (kind, how) in IN_WORKERS or how == "none" else pytest.mark.sweep)
        for kind in NAMED
        for how in WORKERS
    ],
)
def test_file_index_and_place(tmp_path: Path, backend: Backend, kind: str, how: str) -> None:
    _, broken = tree(tmp_path, kind)
    dataset = ImageFolder(str(tmp_path), FIXED)
    expected, _ = raised(dataset)
    with backend.chosen():
        found, shown = raised(dataset, **WORKERS[how])
    assert isinstance(found, type(expected))
    if how == "none" and kind != LATE:
        assert type(found) is type(expected)
        assert str(found) == str(expected)
    assert str(expected) in shown
    assert broken in shown
    assert "image 2 of a batch of 4" in shown
    assert "dataset index 6" in shown


@pytest.mark.sweep
def test_spawned_workers(tmp_path: Path) -> None:
    _, broken = tree(tmp_path, "half")
    with accel.image_backend("cpu"):
        _, shown = raised(ImageFolder(str(tmp_path), FIXED), num_workers=1, multiprocessing_context="spawn")
    assert f"accel: file {broken}, image 2 of a batch of 4, dataset index 6" in shown


# -- other datasets, samplers and collate functions ---------------------------------------------------------


class ByTheBatch(Files):
    """Gives the samples of a batch at once."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices]


class AllOrNothing(Files):
    """Does so in an order of its own."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        taken = sorted(indices)
        return [self[index] for index in taken]


def as_lists(samples: list[Any]) -> Any:
    return [image for image, _ in samples], [label for _, label in samples]


class Held:
    """A batch of a user's own class."""

    def __init__(self, samples: list[Any]) -> None:
        self.images = [image for image, _ in samples]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", ["half", LATE])
def test_the_index_is_the_outer_datasets(tmp_path: Path, kind: str, workers: int) -> None:
    files, broken = tree(tmp_path, kind)
    dataset = Files(files, FIXED)
    options: dict[str, Any] = {"num_workers": workers}
    parts: Any = ConcatDataset([Subset(dataset, [0, 1, 2]), Subset(dataset, [4, 6, 7])])
    with accel.image_backend("cpu"):
        for samples, place in ((Subset(dataset, [0, 1, 2, 3, 8, 6]), 1), (parts, 0)):
            _, shown = raised(samples, **options)
            assert broken in shown
            assert "dataset index 5" in shown if place else "dataset index 4" in shown
            assert f"image {place} of a batch of 2" in shown
        sampled = {"batch_size": 1, "batch_sampler": [[0, 1], [3, 5, 6], [7]]}
        _, shown = raised(dataset, **sampled, **options)
        assert broken in shown
        assert "dataset index 6" in shown
        assert "image 2 of a batch of 3" in shown


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", ["half", LATE])
def test_one_sample_at_a_time(tmp_path: Path, kind: str, workers: int) -> None:
    files, broken = tree(tmp_path, kind)
    with accel.image_backend("cpu"):
        _, shown = raised(Files(files, FIXED), batch_size=None, num_workers=workers)
    assert broken in shown
    assert "of a batch" not in shown
    assert "dataset index 6" in shown or kind == LATE


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", ["half", LATE])
def test_streams_have_places_and_no_indices(tmp_path: Path, kind: str, workers: int) -> None:
    files, broken = tree(tmp_path, kind)
    with accel.image_backend("cpu"):
        _, shown = raised(Stream(files, FIXED), num_workers=workers)
    assert broken in shown
    assert "image 2 of a batch of 4" in shown
    assert "dataset index" not in shown


def read_in_collate(paths: list[str]) -> Any:
    return torch.stack([FIXED(default_loader(path)) for path in paths])


def touched(image: Image.Image) -> torch.Tensor:
    return F.to_tensor(image.resize((8, 8))) + 0


OTHERS: dict[str, tuple[Callable[[list[str]], Any], dict[str, Any], str]] = {
    "whole batches": (lambda files: ByTheBatch(files, FIXED), {}, "image 2 of a batch of 4, dataset index 6"),
    "in another order": (lambda files: AllOrNothing(files, FIXED), {}, "one of the dataset indices 4, 5, 6, 7"),
    "touched": (lambda files: Files(files, touched), {}, "image 2 of a batch of 4, dataset index 6"),
    "in collating": (list, {"collate_fn": read_in_collate}, ""),
}


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("name", OTHERS)
def test_other_datasets(tmp_path: Path, name: str, workers: int) -> None:
    """That give batches; whose pixels are asked for before there is one; read in a collate function."""
    (make, options, place), (files, broken) = OTHERS[name], tree(tmp_path, "half")
    with accel.image_backend("cpu"):
        _, shown = raised(make(files), num_workers=workers, **options)
    assert f"accel: file {broken}{place and ', ' + place}\n" in shown


@pytest.mark.parametrize("collate", [as_lists, Held])
@pytest.mark.parametrize("workers", [0, 1])
def test_batches_that_nobody_stacks(tmp_path: Path, backend: Backend, workers: int, collate: Any) -> None:
    if collate is Held and (not workers or backend.name != "cpu"):
        pytest.skip("nobody looks into it")
    files, broken = tree(tmp_path)
    with backend.chosen():
        found, shown = raised(Files(files, FIXED), collate_fn=collate, num_workers=workers)
    assert isinstance(found, accel.DecodeError)
    assert broken in shown
    assert "image 2 of a batch of 4" in shown
    assert "dataset index 6" in shown


def decoded(stream: bytes) -> Any:
    return FIXED(Image.open(BytesIO(stream)).convert("RGB"))


def test_without_a_file_the_sample_is_said() -> None:
    with accel.image_backend("cpu"):
        _, shown = raised(helpers.Each([damage.GOOD, KINDS["half"], damage.GOOD], decoded))
    assert "accel: image 1 of a batch of 3, dataset index 1" in shown


# -- what is left alone -------------------------------------------------------------------------------------


def test_errors_of_the_users_own_have_no_note() -> None:
    def fail(_: Any) -> Any:
        raise KeyError("label")

    for backend in ("torchvision", "cpu"):
        with accel.image_backend(backend):
            found, _ = raised(helpers.Each(range(3), fail))
        assert not hasattr(found, "__notes__")


def test_under_torchvision_there_is_no_note(tmp_path: Path) -> None:
    files, _ = tree(tmp_path, "half")
    with accel.image_backend("cpu"), accel.image_backend("torchvision"):
        found, _ = raised(Files(files, FIXED))
    assert not hasattr(found, "__notes__")


def test_a_collate_functions_own_error_is_no_samples(tmp_path: Path) -> None:
    helpers.write_image_folder(tmp_path)
    with accel.image_backend("cpu"):
        found, shown = raised(Files(sorted(map(str, tmp_path.rglob("*.jpg"))), F.to_tensor))
    assert "equal size" in str(found)
    assert "dataset ind" not in shown
    assert "of a batch" not in shown


def test_one_note_however_often_an_error_is_raised() -> None:
    error = OSError("image file is truncated")
    error.__notes__ = ["mine"]

    def fail(_: Any) -> None:
        with Image.new("RGB", (2, 2)) as image:
            image.point(lambda _: throw(error))

    def throw(error: Exception) -> int:
        raise error

    with accel.image_backend("cpu"):
        for _ in range(3):
            raised(helpers.Each(range(3), fail))
    assert error.__notes__ == ["mine", "accel: image 0 of a batch of 3, dataset index 0"]


def test_indices_are_a_list() -> None:
    indices = notes.Indices([5, 7, 9])
    assert indices == [5, 7, 9]
    assert isinstance(indices, list)
    assert indices.place is None
    for place, index in enumerate(indices):
        assert (indices.place, index) == (place, [5, 7, 9][place])
    assert indices.place is None


# -- Python 3.10, which does not show notes -----------------------------------------------------------------


def test_where_python_shows_no_notes_they_are_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(notes, "SHOWN_BY_PYTHON", False)
    files, broken = tree(tmp_path, "half")
    with accel.image_backend("cpu"):
        found, _ = raised(Files(files, FIXED))
    assert found.__notes__ == [f"accel: file {broken}, image 2 of a batch of 4, dataset index 6"]
    logged = [record for record in caplog.records if broken in record.message]
    assert [record.levelno for record in logged] == [logging.WARNING]
    assert "dataset index 6" in logged[0].message


def test_where_python_shows_no_notes_workers_send_them(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = ExceptionWrapper.__init__
    monkeypatch.setattr(notes, "SHOWN_BY_PYTHON", False)
    monkeypatch.setattr(traceback, "format_exception", lambda *_: ["as Python 3.10 has it\n"])
    with accel.image_backend("cpu"):
        error = OSError("truncated")
        error.__notes__ = ["accel: file a.jpg"]
        wrapped = ExceptionWrapper((OSError, error, None), where="in a worker")
        with pytest.raises(OSError, match=r"as Python 3.10 has it\naccel: file a.jpg"):
            wrapped.reraise()
    assert ExceptionWrapper.__init__ is plain
