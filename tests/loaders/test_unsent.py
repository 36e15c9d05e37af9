"""What a worker cannot pack or pickle never leaves its parent waiting: it is sent in another way, or raised."""

import multiprocessing.queues
import pickle
from collections.abc import Callable
from io import BytesIO
from multiprocessing.reduction import ForkingPickler
from typing import Any

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as T

import accel
from accel.codec.files import batch_memory, reader
from accel.codec.files import fields as of
from accel.lazy.batch import Batch
from accel.processes import packing, sending, sent_files, slot_pool
from accel.processes.slot_pool import SlotPool
from accel.recipes import sources
from accel.system import counters, memory
from tests.support import inside
from tests.support.cuda import needs_compiler
from tests.support.helpers import Files, assert_same, is_lazy, jpeg
from tests.support.loaders import TIMEOUT
from tests.support.processes import linux

CROPS = T.Compose([T.RandomResizedCrop(40), T.ToTensor()])
pytestmark = [linux, needs_compiler]

FAILED = "a worker could not send a batch"
PLAIN = "a batch could not be packed and was sent as plain recipes"


class Custom(Exception):
    """An error that a message alone does not make."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first, second)

    def __str__(self) -> str:
        return " ".join(self.args)


class Values(Dataset[Any]):
    """Files by path; with ``also`` beside each."""

    def __init__(self, paths: list[str], also: Any = 0) -> None:
        self.paths, self.also = paths, also

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        with Image.open(self.paths[index]) as image:
            return CROPS(image.convert("RGB")), self.also


def together(samples: Any) -> Any:
    """A batch in which objects stay as they are."""
    return torch.stack([image for image, _ in samples]), [also for _, also in samples]


def epoch(dataset: Any, **options: Any) -> list[Any]:
    torch.manual_seed(3)
    options = {"collate_fn": together, "num_workers": 1, "timeout": TIMEOUT, **options}
    return [(images.to("cpu").clone(), labels) for images, labels in DataLoader(dataset, 4, **options)]


def failing(error: Exception, times: float = float("inf"), original: Any = None) -> Callable[..., Any]:
    """A function that raises so many times, and then is the original."""
    left = times

    def fails(*args: Any, **kwargs: Any) -> Any:
        nonlocal left
        if left <= 0:
            return original(*args, **kwargs)
        left -= 1
        raise error

    return fails


ERRORS = [OverflowError("too large"), MemoryError(), IndexError("no such"), Custom("not", "now")]
STEPS: dict[str, tuple[Any, str]] = {
    "the rows of files": (sent_files, "_files"),
    "the table of files": (sent_files, "known_of"),
    "the files' places": (batch_memory, "places_of"),
    "a slot": (slot_pool, "empty"),
    "filling it": (sent_files._SlotWriter, "take"),
    "what all have in common": (sent_files, "_dumped"),
    "counting it": (SlotPool, "send"),
    "all of it": (sent_files, "pack"),
}


SOME = [
    error if type(error) in (MemoryError, IndexError) else pytest.param(error, marks=pytest.mark.sweep)
    for error in ERRORS
]


@pytest.mark.parametrize("error", SOME, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("step", STEPS)
def test_what_cannot_be_packed_is_sent_plainly(
    paths: list[str], monkeypatch: pytest.MonkeyPatch, step: str, error: Exception
) -> None:
    with accel.image_backend("torchvision"):
        expected = epoch(Values(paths))
    before = accel.stats()["fallbacks"]
    monkeypatch.setattr(*STEPS[step], failing(error))
    with accel.image_backend("cuda", device="cpu"):
        assert_same(epoch(Values(paths)), expected)
    counted = {reason: count - before.get(reason, 0) for reason, count in accel.stats()["fallbacks"].items()}
    found = {reason: count for reason, count in counted.items() if count and reason.startswith(PLAIN)}
    (reason,) = found
    assert reason == f"{PLAIN}: {type(error).__name__}: {error}"
    assert found[reason] == 3 or step == "a slot"  # in which the files of later batches are read


def test_a_slot_whose_batch_was_sent_plainly_is_free(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It was counted as sent by then."""
    with accel.image_backend("torchvision"):
        expected = epoch(Files(paths, CROPS), collate_fn=None)
    monkeypatch.setattr(sent_files, "arrived", pickle)  # which cannot be pickled
    with accel.image_backend("cuda", device="cpu"):
        iterator = iter(DataLoader(Files(paths * 8, CROPS), 4, num_workers=1, timeout=TIMEOUT))
        *_, arena = (known.arena for known in inside.loaders().values())  # others' loaders may not be gone yet
        for images, _ in iterator:
            assert images.shape == expected[0][0].shape
        assert (arena.sent == arena.ended).all()
        assert 0 < (arena.taken_at > 0).sum() <= 12
        assert not arena.busy.any()


def test_values_in_slots(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a backend of the host, whose workers compute them."""
    large = T.Compose([T.Resize((300, 300)), T.ToTensor()])
    with accel.image_backend("torchvision"):
        expected = epoch(Files(paths, large), collate_fn=None)
    monkeypatch.setattr(SlotPool, "message", failing(MemoryError()))
    with accel.image_backend("cpu"):
        assert_same(epoch(Files(paths, large), collate_fn=None), expected)
    assert f"{PLAIN}: MemoryError: " in accel.stats()["fallbacks"]


LAST: dict[str, list[tuple[Any, str, float]]] = {
    "the plain recipes": [(sent_files, "pack", 1e9), (packing, "_of_source", 1e9)],
    "the batch": [(Batch, "_current", 1e9)],
    "the pickler": [(sending.Outgoing, "_pickled", 1e9)],
    "counting it": [(sent_files, "pack", 1e9), (counters, "fallback", 1e9)],
    "the error": [(sending.Outgoing, "_pickled", 1e9), (torch._utils.ExceptionWrapper, "__init__", 1e9)],
    "the queue's thread": [(ForkingPickler, "dumps", 1)],
}


@pytest.mark.parametrize("error", SOME, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("step", LAST)
def test_what_cannot_be_sent_is_raised(
    paths: list[str], monkeypatch: pytest.MonkeyPatch, step: str, error: Exception
) -> None:
    """With the traceback of the worker, if there is memory for one."""
    if step == "the queue's thread" and type(error) is IndexError:  # which Python's queue takes for its own
        error = RecursionError("too deep")

    def inject(_: int) -> None:
        for owner, name, times in LAST[step]:
            original = getattr(owner, name)
            monkeypatch.setattr(owner, name, failing(error, times, original))

    with accel.image_backend("cuda", device="cpu"):
        iterator = iter(DataLoader(Values(paths), 4, num_workers=1, timeout=TIMEOUT, worker_init_fn=inject))
        with pytest.raises(RuntimeError, match="in DataLoader worker process 0") as raised:
            next(iterator)
        iterator._shutdown_workers()  # type: ignore[attr-defined]
    text = str(raised.value)
    if step == "the error":
        assert "had no memory to say why" in text
    elif step == "counting it":
        assert type(error).__name__ in text
    else:
        assert f"{FAILED}: {type(error).__name__}: {error}" in text
        assert "in fails" in text


@pytest.mark.parametrize("step", ["again", "writing"])
def test_if_no_error_can_be_sent_either_the_worker_ends(
    paths: list[str], monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Which torch notices."""

    def inject(_: int) -> None:
        if step == "again":
            monkeypatch.setattr(ForkingPickler, "dumps", failing(MemoryError()))
        else:
            monkeypatch.setattr(multiprocessing.connection.Connection, "_send_bytes", failing(MemoryError()))

    with accel.image_backend("cuda", device="cpu"):
        iterator = iter(DataLoader(Values(paths), 4, num_workers=1, timeout=TIMEOUT, worker_init_fn=inject))
        with pytest.raises(RuntimeError, match=r"DataLoader worker \(pid.* exited unexpectedly"):
            next(iterator)
        iterator._shutdown_workers()  # type: ignore[attr-defined]


class Unpicklable:
    """An object of the user's own, which can be sent to a worker, but not back."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __reduce__(self) -> Any:
        if torch.utils.data.get_worker_info() is None:
            return Unpicklable, (self.error,)
        raise self.error


class Alone(Values):
    """Nothing of accel's."""

    def __getitem__(self, index: int) -> Any:
        return self.also


@pytest.mark.parametrize("start", ["fork", pytest.param("spawn", marks=pytest.mark.sweep)])
@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (Values, Custom("not", "today")),
        (Values, IndexError("no")),
        (Values, SystemExit(3)),
        (Alone, Custom("not", "now")),
    ],
)
def test_a_users_object_is_raised_where_torch_would_wait(
    paths: list[str], kind: Any, error: BaseException, start: str
) -> None:
    with accel.image_backend("cuda", device="cpu"):
        loader = DataLoader(
            kind(paths, Unpicklable(error)),
            4,
            num_workers=1,
            timeout=TIMEOUT,
            collate_fn=list if kind is Alone else together,
            multiprocessing_context=start,
        )
        iterator = iter(loader)
        with pytest.raises(RuntimeError, match="in DataLoader worker process 0") as raised:
            next(iterator)
        iterator._shutdown_workers()  # type: ignore[attr-defined]
    assert f"{FAILED}: {type(error).__name__}: {error}\n" in str(raised.value)


class Unprintable(Exception):
    """An error that has no text."""

    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize("kind", [Values, Alone])
def test_an_error_without_a_text_is_raised_with_its_traceback(paths: list[str], kind: Any) -> None:
    with accel.image_backend("cuda", device="cpu"):
        collate = list if kind is Alone else together
        dataset = kind(paths, Unpicklable(Unprintable()))
        iterator = iter(DataLoader(dataset, 4, num_workers=1, timeout=TIMEOUT, collate_fn=collate))
        with pytest.raises(RuntimeError, match=f"{FAILED}: Unprintable: <exception str\\(\\) failed>") as raised:
            next(iterator)
        iterator._shutdown_workers()  # type: ignore[attr-defined]
    assert "in __reduce__" in str(raised.value)


@pytest.mark.parametrize("value", ["tensor", "image"])
def test_a_queue_of_the_users_own(paths: list[str], monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """Its receiver raises what its thread would lose."""
    queue: Any = torch.multiprocessing.get_context("fork").Queue()
    with accel.image_backend("cuda", device="cpu"):
        image = Image.open(BytesIO(jpeg(50, 40))).convert("RGB")
        sent = CROPS(image) if value == "tensor" else image
        monkeypatch.setattr("accel.lazy.loader_batch.pack", failing(MemoryError()))
        monkeypatch.delattr("accel.lazy.image_base._restore_lazy")
        queue.put(sent)
        with pytest.raises(RuntimeError, match=r"a value could not be sent: (MemoryError|NameError)"):
            queue.get(timeout=60)
        queue.close()
        queue.join_thread()


# -- keys of 64 bits ------------------------------------------------------------------------------------------


class InMemory(Dataset[Any]):
    """Images that come as bytes."""

    def __init__(self) -> None:
        self.files = [jpeg(200, 150 + number, seed=number) for number in range(12)]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        return CROPS(Image.open(BytesIO(self.files[index])).convert("RGB")), index


def test_bytes_with_a_cache(tmp_path: Any) -> None:
    pytest.importorskip("xxhash")
    with accel.image_backend("torchvision"):
        expected = epoch(InMemory())
    before = accel.stats()["fallbacks"]
    with accel.image_backend("cuda", device="cpu", cache=f"{tmp_path / 'cache'}:64MB"):
        for _ in range(2):
            assert_same(epoch(InMemory()), expected)
    assert accel.stats()["fallbacks"] == before


@pytest.mark.parametrize("inode", [(1 << 63) + 5, (1 << 64) - 1])
def test_large_inodes(paths: list[str], monkeypatch: pytest.MonkeyPatch, inode: int) -> None:
    """Of file systems that hash 64 bits: the parent has the same key of a file as its worker."""
    described, read = sources.known_of, reader.read_one_to

    def known_of(source: Any, header: Any) -> Any:
        source.key = (source.key[0], inode, *source.key[2:])
        return described(source, header)

    def read_to(*place: Any) -> Any:
        row = read(*place)
        if row is not None:
            row[of.INODE] = inode - (1 << 64)
        return row

    monkeypatch.setattr(memory, "SETTLED", -1.0)
    with accel.image_backend("torchvision"):
        expected = epoch(Values(paths))
    before = accel.stats()["fallbacks"]
    monkeypatch.setattr(sent_files, "known_of", known_of)
    monkeypatch.setattr(reader, "read_one_to", read_to)
    with accel.image_backend("cuda", device="cpu"):
        torch.manual_seed(3)
        for (images, labels), wanted in zip(
            DataLoader(Values(paths), 4, num_workers=1, timeout=TIMEOUT, collate_fn=together), expected, strict=True
        ):
            assert is_lazy(images)
            for source in images.lazy.recipes.sources:  # type: ignore[attr-defined]
                assert source.key[1] == inode
            assert_same((images.to("cpu"), labels), wanted)
    assert accel.stats()["fallbacks"] == before
