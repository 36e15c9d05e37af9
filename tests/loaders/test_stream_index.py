"""What is kept of files from one epoch to the next: by whom it is shared, and that no pixel ever depends on it."""

import itertools
import mmap
import os
import random
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torchvision import transforms as T

import accel
from accel.codec import jpeg, store, store_fields, stream_index
from accel.lazy import jpeg_file
from accel.recipes.recipe import Source
from accel.runtime import picture_memory
from accel.system import memory
from tests.support import helpers, inside
from tests.support.helpers import Files, assert_same, open_rgb
from tests.support.loaders import check, epoch, started_by
from tests.support.processes import in_child, linux
from tests.support.shares import new_store

pytestmark = linux
COUNT = 6
CROPS = T.Compose([T.RandomResizedCrop(40, scale=(0.05, 0.6)), T.RandomHorizontalFlip(), T.ToTensor()])
COUNTED = "indexes", "indexed", "indexes dropped"


def encoded(number: int) -> bytes:
    options = ({"subsampling": 0}, {"subsampling": 2}, {"restart_marker_blocks": 7})[number % 3]
    return helpers.jpeg(420, 320 + 8 * number, "L" if number == 4 else "RGB", seed=number, **options)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Files of which an index pays, in every kind of stream that has one."""
    paths = [tmp_path / f"{number}.jpg" for number in range(COUNT)]
    for number, path in enumerate(paths):
        path.write_bytes(encoded(number))
    return [str(path) for path in paths]


@pytest.fixture(autouse=True)
def entries(monkeypatch: pytest.MonkeyPatch) -> Iterator[store.Store]:
    yield from new_store(monkeypatch)


def used(files: list[str], transform: Any = CROPS) -> Any:
    """The values of images of some files."""
    images = [transform(open_rgb(path)) for path in files]
    made = [image if isinstance(image, torch.Tensor) else T.functional.to_tensor(image) for image in images]
    return torch.stack(made).numpy()


class Counts:
    """How often what happened since this was asked last."""

    def __init__(self) -> None:
        self._before = self._now()

    def _now(self) -> list[int]:
        stats = accel.stats()
        return [stats[name] for name in COUNTED]

    def __call__(self) -> tuple[int, ...]:
        before, self._before = self._before, self._now()
        return tuple(now - then for now, then in zip(self._before, before, strict=True))


@pytest.fixture
def counts() -> Counts:
    return Counts()


# -- who shares it ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{}, {"num_workers": 2}, {"num_workers": 1, "persistent_workers": True}],
    ids=["none", "workers", "persistent"],
)
def test_later_epochs_begin_where_earlier_ones_have_been(
    files: list[str], counts: Counts, options: dict[str, Any]
) -> None:
    for number in range(3):
        check(Files(files, CROPS), **options)
        assert counts() == ((COUNT, 0, 0) if number == 0 else (0, COUNT, 0))


def test_loaders_share_it_and_so_do_later_workers(files: list[str], counts: Counts) -> None:
    train, validation = Files(files, CROPS), Files(files[2:], T.Compose([T.CenterCrop(100), T.ToTensor()]))
    check(train, num_workers=2)
    assert counts() == (COUNT, 0, 0)
    check(validation, num_workers=1)
    assert counts() == (0, COUNT - 2, 0)


def test_ranks_of_one_parent_share_it(files: list[str], counts: Counts) -> None:
    accel.set_image_backend("cpu")
    expected = [helpers.run("torchvision", lambda: epoch(Files(files, CROPS)), seed)[0] for seed in range(2)]

    def rank(seed: int, start: int) -> bool:
        own = Counts()
        assert_same(helpers.run("cpu", lambda: epoch(Files(files, CROPS)), seed)[0], expected[seed])
        return own() == (start, COUNT - start, 0)

    assert in_child(lambda: rank(0, COUNT))()
    assert in_child(lambda: rank(1, 0))()
    assert counts() == (COUNT, COUNT, 0)


@pytest.mark.parametrize("method", ["spawn", pytest.param("forkserver", marks=pytest.mark.sweep)])
def test_workers_that_are_not_forked_share_it(files: list[str], counts: Counts, method: str) -> None:
    time.sleep(2.1)  # until the files have settled, for there is no telling workers otherwise
    check(Files(files, CROPS))
    assert counts() == (COUNT, 0, 0)
    helpers.assert_equal_runs(lambda: epoch(Files(files, CROPS), num_workers=1, **started_by(method)))
    assert counts() == (0, COUNT, 0)


@pytest.mark.parametrize("kind", ["path", "open file", "large file"])
def test_images_that_pillow_opens_have_it_too(
    files: list[str], counts: Counts, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from PIL import Image

    inside.small_files_opened_as_large(monkeypatch, 1 if kind == "large file" else 1 << 30)

    def images() -> list[torch.Tensor]:
        made = []
        for path in files:
            with open(path, "rb") as file:
                made.append(CROPS(Image.open(file if kind == "open file" else path)))
        return [image.clone() for image in made]

    for expected in ((COUNT, 0, 0), (0, COUNT, 0)):
        helpers.assert_equal_runs(images)
        assert counts() == expected


def test_an_accelerators_sources_take_the_key_along(files: list[str]) -> None:
    with accel.image_backend("cpu"):
        source = open_rgb(files[0]).recipe.source  # type: ignore[attr-defined]
    made, arguments, _ = source.__reduce__()
    assert made(*arguments).key == source.key != None  # noqa: E711


def test_views_of_a_picture_that_cannot_be_kept_have_it_at_once(
    files: list[str], counts: Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is room, the picture is decoded once, as without an index."""

    def views(image: Any) -> list[torch.Tensor]:
        return [CROPS(image) for _ in range(3)]

    check(Files(files, views))
    assert counts()[1] == 0
    monkeypatch.setattr(picture_memory, "limit", lambda: 0)
    helpers.assert_equal_runs(lambda: epoch(Files(files, views)), threads=1)
    made, used, dropped = counts()
    assert (made, dropped) == (COUNT, 0)
    assert used >= 2 * COUNT


# -- when there is none -------------------------------------------------------------------------------------


def test_cache_none_keeps_nothing(files: list[str], counts: Counts, entries: store.Store) -> None:
    for _ in range(2):
        helpers.assert_equal_runs(lambda: epoch(Files(files, CROPS)), cache=None)
    assert counts() == (0, 0, 0)
    assert entries.used()[0] == 0


@pytest.mark.parametrize("value", ["64", "0GB", "", ":64GB", 0, False, "/tmp"])
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(ValueError if isinstance(value, str) else TypeError, match="cache must be"):
        accel.set_image_backend("cpu", cache=value)
    with pytest.raises(TypeError):
        accel.set_image_backend("torchvision", cache=None)


def test_young_files_have_none(files: list[str], counts: Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "SETTLED", 600.0)
    for _ in range(2):
        check(Files(files, CROPS))
    assert counts() == (0, 0, 0)


def test_without_shared_memory_it_is_off_and_counted(
    files: list[str], counts: Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(size: int, name: str) -> int:
        raise OSError("no such memory")

    monkeypatch.setattr(memory, "anonymous_file", none)
    inside.no_store(monkeypatch, tried=False)
    check(Files(files, CROPS))
    assert counts() == (0, 0, 0)
    assert any("no such memory" in reason for reason in accel.stats()["fallbacks"])
    with accel.image_backend("cpu"):
        assert "no memory that processes share" in accel.explain(CROPS(open_rgb(files[0])))


def test_a_full_store_is_counted_and_slows_nobody(files: list[str], counts: Counts, entries: store.Store) -> None:
    entries.layout.places[store_fields.SEGMENTS] = 0
    before = accel.stats()["fallbacks"].get(stream_index.FULL, 0)
    for _ in range(2):
        helpers.assert_equal_runs(lambda: epoch(Files(files, CROPS)), threads=1)
    assert counts() == (0, 0, 0)
    assert accel.stats()["fallbacks"][stream_index.FULL] == before + 1, "only the first was noted"


def test_a_key_whose_slots_are_taken_is_no_full_store(files: list[str], entries: store.Store) -> None:
    keys = [memory.key_of(os.stat(path)) for path in files]
    layout = entries.layout
    slots = layout.words[store_fields.PAGE : layout.places[store_fields.DATA]]
    with accel.image_backend("cpu"):
        slots[:] = 1  # of other keys
        used(files[:1])
        slots[:] = 0
        used(files[1:])
    assert [entries.has(key) for key in keys if key is not None] == [False] + [True] * (COUNT - 1)


def test_it_is_told(files: list[str]) -> None:
    with accel.image_backend("cpu"):
        assert "stream index: kept of 0 of 1 files" in accel.explain(CROPS(open_rgb(files[0])))
        used(files[:1])
        both = torch.stack([CROPS(open_rgb(path)) for path in files[:2]])
        assert "stream index: kept of 1 of 2 files" in accel.explain(both)
    with accel.image_backend("cpu", cache=None):
        assert "stream index: none is kept (cache=None)" in accel.explain(CROPS(open_rgb(files[0])))


# -- files that change --------------------------------------------------------------------------------------


def rewritten(path: str, content: bytes) -> None:
    """Another content of the same size and time of writing, as far as anybody can make it so."""
    before = os.stat(path)
    assert len(content) <= before.st_size
    Path(path).write_bytes(content + bytes(before.st_size - len(content)))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = os.stat(path)
    assert (after.st_size, after.st_mtime_ns, after.st_ino) == (before.st_size, before.st_mtime_ns, before.st_ino)


def replaced(path: str, content: bytes) -> None:
    Path(path).with_suffix(".new").write_bytes(content)
    Path(path).with_suffix(".new").replace(path)


def another(path: str) -> bytes:
    """A picture of the same size whose file is smaller."""
    number = int(Path(path).stem)
    return helpers.jpeg(420, 320 + 8 * number, "L" if number == 4 else "RGB", seed=99, quality=70, optimize=False)


@pytest.mark.parametrize("by", ["key", "content"])
@pytest.mark.parametrize("change", [rewritten, replaced])
def test_files_that_change_between_epochs(
    files: list[str],
    counts: Counts,
    change: Callable[[str, bytes], None],
    by: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their keys tell; and where a file system's times do not, their contents."""
    if by == "content":
        numbers: dict[Any, int] = {path: number for number, path in enumerate(files)}
        monkeypatch.setattr(jpeg_file, "key_of", lambda status: (1, sizes[status.st_size], 1, 1, 1))
        sizes: Any = {}
        for path in files:
            sizes[os.path.getsize(path)] = sizes[len(another(path))] = numbers[path]
        assert len(set(sizes.values())) == COUNT
    check(Files(files, CROPS))
    assert counts() == (COUNT, 0, 0)
    for path in files:
        change(path, another(path))
    check(Files(files, CROPS))
    assert counts() == ((COUNT, 0, 0) if by == "key" else (0, 0, COUNT))
    check(Files(files, CROPS))
    assert counts() == (0, COUNT, 0)


@pytest.mark.parametrize("known", [False, True])
def test_damaged_files_have_none_and_are_helped_by_none(
    files: list[str], counts: Counts, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut off in the middle, which Pillow fills with grey, and undecodable; under the key of the file before."""
    monkeypatch.setattr(jpeg_file, "key_of", lambda status: (1, 1, 1, 1, 1))
    file, whole = files[:1], T.Compose([T.CenterCrop(300), T.ToTensor()])
    if known:
        check(Files(file, whole))
    counts()
    content = Path(file[0]).read_bytes()
    Path(file[0]).write_bytes(content[: len(content) // 2] + b"\xff\xd9")
    check(Files(file, whole))
    Path(file[0]).write_bytes(helpers.undecodable(420, 320))
    with accel.image_backend("cpu"), pytest.raises(accel.DecodeError, match=r"0\.jpg"):
        used(file, whole)
    with accel.image_backend("cpu", on_error="replace"):
        assert not used(file, whole).any()
    assert counts()[:2] == (0, 0)
    Path(file[0]).write_bytes(content)
    check(Files(file, whole))
    assert counts() == ((0, 1, 0) if known else (1, 0, 0))


def test_indexes_of_other_files_are_dropped(files: list[str], counts: Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    """All files have one key."""
    monkeypatch.setattr(jpeg_file, "key_of", lambda status: (1, 1, 1, 1, 1))
    for _ in range(2):
        helpers.assert_equal_runs(lambda: epoch(Files(files, CROPS)), threads=1)
    kept, used, dropped = counts()
    assert kept == 1
    assert dropped == 2 * COUNT - 1 - used
    assert used < 2, "only where a file comes twice in a row"


# -- damage -------------------------------------------------------------------------------------------------


def crop(source: Source, drawn: random.Random) -> tuple[int, int, int, int]:
    header = source.header
    height, width = drawn.randrange(1, header.height + 1), drawn.randrange(1, header.width + 1)
    return drawn.randrange(header.height - height + 1), drawn.randrange(header.width - width + 1), height, width


def sources(files: list[str]) -> list[Source]:
    with accel.image_backend("cpu"):
        return [open_rgb(path).recipe.source for path in files]  # type: ignore[attr-defined]


def decodes_right(source: Source, drawn: random.Random) -> bool:
    """Whether a region is what it is without any index."""
    box, channels = crop(source, drawn), 1 if source.header.mode == "L" else 3
    found = stream_index.decoded(source.data, source.header, box, channels, "auto", source.key)
    expected = jpeg.decode(source.data, box, channels=channels)
    assert expected is not None
    stream_index.flush()
    return np.array_equal(found, expected)


@pytest.mark.parametrize(
    "flips", [pytest.param(300, id="some"), pytest.param(10_000, id="all", marks=pytest.mark.sweep)]
)
def test_flipped_bits_change_no_pixel(
    files: list[str], flips: int, counts: Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    accel.set_image_backend("cpu")
    file, drawn = memory.anonymous_file(1 << 21), random.Random(3)
    store.share(file, 1 << 21)
    block = mmap.mmap(file, 1 << 21)
    os.close(file)
    every = sources(files)
    for source in every:
        assert all(decodes_right(source, drawn) for _ in range(4))
    touched = np.flatnonzero(np.frombuffer(block, np.uint8)).tolist()
    for number in range(flips):
        block[drawn.choice(touched)] ^= 1 << drawn.randrange(8)
        assert decodes_right(every[number % COUNT], drawn)
    _, used, _ = counts()
    assert used > flips / 10, "nothing was in use any more"


@pytest.mark.parametrize("times", [pytest.param(3, id="some"), pytest.param(200, id="all", marks=pytest.mark.sweep)])
def test_workers_that_are_killed_as_they_write(files: list[str], times: int, entries: store.Store) -> None:
    accel.set_image_backend("cpu")
    every, drawn = sources(files), random.Random(5)
    assert decodes_right(every[0], drawn)  # what is compiled is there before the first fork
    for time_ in range(times):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads, since Python 3.12
            pid = os.fork()
        if pid == 0:
            try:
                own = random.Random(time_)
                for source in itertools.cycle(every):
                    index = jpeg.Index()
                    jpeg.decode(source.data, crop(source, own), index=index)
                    for _ in range(5):
                        entries.put(source.key, index.bytes)  # type: ignore[arg-type]
            finally:
                os._exit(1)
        time.sleep(0.001 * drawn.randrange(5, 60))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        assert all(decodes_right(source, drawn) for source in every)


# -- bounds -------------------------------------------------------------------------------------------------


def test_it_takes_two_percent_of_the_files_at_most(files: list[str], entries: store.Store) -> None:
    accel.set_image_backend("cpu")
    used(files, T.Resize((30, 40)))
    for source in sources(files):
        index = stream_index.known(source.key)
        assert index is not None
        assert 0 < len(index) + 8 * store_fields.HEAD <= len(source.data) / 50


def test_children_fill_memory_once(files: list[str], entries: store.Store) -> None:
    accel.set_image_backend("cpu")
    used(files)
    before = entries.used()
    assert in_child(lambda: bool(used(files).any()))()
    assert entries.used() == before
