"""A pack that lies elsewhere: each shard is fetched once, compared, and removed for others if there is a bound."""

import os
import shutil
import signal
import time
from multiprocessing import get_context
from pathlib import Path
from threading import Thread
from typing import Any

import fsspec
import pytest
import torch
from fsspec.implementations.local import LocalFileSystem
from torch.utils.data import ConcatDataset, DataLoader, Subset
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

import accel
from accel.codec.files import pack_index
from accel.errors import PackError
from accel.system.file_locks import locked, unlock
from tests.support import helpers, packs
from tests.support.cached import TRAIN
from tests.support.processes import linux

pytestmark = linux

BOUND = 45_000  # bytes, of two shards


class Elsewhere(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Local files, by ``elsewhere://``, which notes what is fetched; a test may have a fetch do something else."""

    protocol = "elsewhere"
    log: Path
    instead: Any = None

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return super()._strip_protocol(path.removeprefix("elsewhere://"))  # type: ignore[no-any-return]

    def get_file(self, path: str, target: str, **options: Any) -> None:
        with open(self.log, "a") as log:
            log.write(f"{os.path.basename(path)}\n")
        if Elsewhere.instead is not None and Elsewhere.instead(path, target):
            return
        super().get_file(path, target, **options)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec.register_implementation("elsewhere", Elsewhere, clobber=True)
    monkeypatch.setattr(Elsewhere, "log", tmp_path / "log", raising=False)
    monkeypatch.setattr(Elsewhere, "instead", None)


@pytest.fixture
def made(tree: Path, tmp_path: Path) -> Path:
    """A pack of many shards: two fit into ``BOUND``."""
    place = packs.made(tree, tmp_path / "pack")
    sizes = pack_index.read(str(place)).sizes
    assert len(sizes) > 3
    assert 2 * max(sizes) <= BOUND < sum(sizes)
    return place


def fetched(tmp_path: Path) -> list[str]:
    return [name for name in (tmp_path / "log").read_text().split() if name != "index.sqlite"]


def remote(made: Path, folder: Path, transform: Any = None, **options: Any) -> accel.PackDataset:
    return accel.PackDataset(f"elsewhere://{made}", transform, folder=folder, **options)


def in_blocks(made: Path, folder: Path, bound: int | None = BOUND) -> accel.PackDataset:
    """With a bound, and a sampler that allows it."""
    dataset = remote(made, folder, bound=bound)
    accel.BlockShuffle(dataset, block=1)
    return dataset


def firsts(made: Path) -> list[int]:
    """The number of the first sample in each shard."""
    index = pack_index.read(str(made))
    return [index.places[:, 0].tolist().index(shard) for shard in range(len(index.shards))]


def shards(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("shard-*"))


@pytest.mark.parametrize("backend", ["torchvision", "cpu"])
@pytest.mark.parametrize("workers", [0, 2])
def test_the_tensors_of_the_tree(tree: Path, made: Path, tmp_path: Path, backend: str, workers: int) -> None:
    def batches(dataset: Any) -> list[Any]:
        torch.manual_seed(0)
        return [*DataLoader(dataset, 5, shuffle=True, num_workers=workers)]

    expected = batches(ImageFolder(tree, TRAIN))
    with accel.image_backend(backend):
        dataset = remote(made, tmp_path / "here", TRAIN)
        assert fetched(tmp_path) == []
        found = batches(dataset)
        again = batches(remote(made, tmp_path / "here", TRAIN))
    for each, other, wanted in zip(found, again, expected, strict=True):
        assert torch.equal(torch.as_tensor(each[0]), wanted[0])
        assert torch.equal(torch.as_tensor(other[0]), wanted[0])
        assert torch.equal(each[1], wanted[1])
    assert sorted(fetched(tmp_path)) == sorted(pack_index.read(str(made)).shards)
    assert dataset.classes == ImageFolder(tree).classes


def test_image_folder_reads_the_folder(tree: Path, made: Path, tmp_path: Path) -> None:
    here = tmp_path / "here"
    with accel.image_backend("cpu"):
        dataset = remote(made, here)  # kept: it fetches
        for (image, label), (expected, its_label) in zip(ImageFolder(here), ImageFolder(tree), strict=True):
            assert (image.tobytes(), label) == (expected.tobytes(), its_label)
        assert len(dataset) == len(ImageFolder(here))
        packs.forget()
        ImageFolder(here)  # all shards are here
        os.remove(here / shards(here)[0])
        packs.forget()
        with pytest.raises(ValueError, match=r"a part of a remote pack: use accel.PackDataset\(url, folder=...\)"):
            ImageFolder(here)
        with pytest.raises(PackError, match="a part of a remote pack: give PackDataset its url as well"):
            accel.PackDataset(here)


def test_a_bound(tree: Path, made: Path, tmp_path: Path) -> None:
    here = tmp_path / "here"
    values = T.PILToTensor()
    dataset = remote(made, here, T.Compose([T.Resize((20, 20)), values]), bound=BOUND)
    wanted = ImageFolder(tree, T.Compose([T.Resize((20, 20)), values]))
    with pytest.raises(ValueError, match=r"read in blocks: give the loader sampler=accel.BlockShuffle"):
        dataset[0]
    sampler = accel.BlockShuffle(Subset(dataset, range(len(dataset))), block=4, window=1)
    seen = 0
    for index in sampler:
        assert torch.equal(dataset[index][0], wanted[index][0])
        assert sum(os.path.getsize(here / name) for name in shards(here)) <= BOUND
        seen += 1
    assert seen == len(wanted)
    assert len(fetched(tmp_path)) > len(set(fetched(tmp_path)))  # some came again
    assert 1 < len(fetched(tmp_path)) < seen
    with accel.image_backend("cpu"), pytest.raises(ValueError, match="a part of a remote pack"):
        ImageFolder(here)


def test_those_that_were_read_last_stay(made: Path, tmp_path: Path) -> None:
    here = tmp_path / "here"
    dataset = in_blocks(made, here)
    index, first = pack_index.read(str(made)), firsts(made)
    for number in (first[0], first[1], first[0], first[2]):
        dataset[number]
    assert shards(here) == [index.shards[0], index.shards[2]]


def test_workers_within_a_bound(tree: Path, made: Path, tmp_path: Path) -> None:
    transform = T.Compose([T.Resize((20, 20)), T.PILToTensor()])
    dataset = remote(made, tmp_path / "here", transform, bound=BOUND)
    sampler = accel.BlockShuffle(dataset, block=4, window=2)
    wanted = ImageFolder(tree, transform)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        order = [*sampler]
        images = torch.cat([batch for batch, _ in DataLoader(dataset, 4, sampler=sampler, num_workers=2)])
        assert torch.equal(images, torch.stack([wanted[index][0] for index in order]))
    assert not [*(tmp_path / "here").glob("*.partial")]


def first_values(dataset: Any, start: Any, results: Any) -> None:
    start.wait()
    results.put([image.tobytes() for image, _ in dataset])


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_fetch_each_shard_once(tree: Path, made: Path, tmp_path: Path, method: str) -> None:
    context = get_context(method)
    dataset = remote(made, tmp_path / "here") if method == "fork" else local(made, tmp_path / "here")
    start, results = context.Event(), context.Queue()
    processes = [context.Process(target=first_values, args=(dataset, start, results)) for _ in range(3)]
    for process in processes:
        process.start()
    start.set()
    found = [results.get() for _ in processes]
    for process in processes:
        process.join()
    assert found == 3 * [[image.tobytes() for image, _ in ImageFolder(tree)]]
    if method == "fork":
        assert sorted(fetched(tmp_path)) == sorted(pack_index.read(str(made)).shards)


def local(made: Path, folder: Path) -> accel.PackDataset:
    return accel.PackDataset(f"file://{made}", folder=folder)


# -- bad input ----------------------------------------------------------------------------------------------


def flipped(path: str, target: str) -> bool:
    data = bytearray(Path(path).read_bytes())
    data[len(data) // 2] ^= 1
    Path(target).write_bytes(data)
    return True


def cut(path: str, target: str) -> bool:
    Path(target).write_bytes(Path(path).read_bytes()[:-1024])
    return True


def of_another(path: str, target: str) -> bool:
    shutil.copy(Path(path).with_name("shard-000001.tar"), target)
    return True


def fails(path: str, target: str) -> bool:
    Path(target).write_bytes(b"begun")
    raise RuntimeError("no route to host")


@pytest.mark.parametrize(
    ("instead", "why"),
    [
        (flipped, "shard-000000.tar is not the shard that .*/index.sqlite describes: "),
        (cut, "shard-000000.tar is not the shard that .*/index.sqlite describes: "),
        (of_another, "shard-000000.tar is not the shard that .*/index.sqlite describes; has the pack changed"),
        (fails, "shard-000000.tar cannot be fetched: no route to host"),
    ],
)
def test_wrong_shards(made: Path, tmp_path: Path, instead: Any, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = remote(made, tmp_path / "here")
    monkeypatch.setattr(Elsewhere, "instead", staticmethod(instead))
    for _ in range(2):
        with pytest.raises(PackError, match=why):
            dataset[0]
        assert shards(tmp_path / "here") == []
    monkeypatch.setattr(Elsewhere, "instead", None)
    dataset[0]


def test_what_is_left_of_a_killed_fetch(tree: Path, made: Path, tmp_path: Path) -> None:
    dataset = remote(made, tmp_path / "here")
    (tmp_path / "here" / "shard-000000.tar.partial").write_bytes(bytes(1000))
    assert dataset[0][0].tobytes() == ImageFolder(tree)[0][0].tobytes()
    assert shards(tmp_path / "here") == ["shard-000000.tar"]


def test_what_others_left_takes_no_room(made: Path, tmp_path: Path) -> None:
    """A shard that nobody fetches any more goes; one that somebody fetches counts."""
    here = tmp_path / "here"
    dataset = in_blocks(made, here)
    index, first = pack_index.read(str(made)), firsts(made)
    partial = here / f"{index.shards[3]}.partial"
    partial.write_bytes(bytes(1000))
    dataset[first[0]], dataset[first[1]]
    assert not partial.exists()
    assert shards(here) == index.shards[:2]
    partial.write_bytes(bytes(1000))
    others = locked(here / ".nv-meta" / f"{index.shards[3]}.lock", exclusive=True)
    assert others is not None
    dataset[first[2]]
    assert shards(here) == [index.shards[2], partial.name]
    unlock(others)


@pytest.mark.parametrize("bound", [None, BOUND])
@pytest.mark.parametrize("harm", ["cut", "exchanged"])
def test_shards_that_change_here(made: Path, tmp_path: Path, bound: int | None, harm: str) -> None:
    here = tmp_path / "here"
    dataset = in_blocks(made, here, bound)
    dataset[0]
    packs.forget()
    dataset = in_blocks(made, here, bound)
    if harm == "cut":
        os.truncate(here / "shard-000000.tar", 9000)
    else:
        shutil.copy(made / "shard-000001.tar", here / "shard-000000.tar")
    descriptors = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(PackError, match=r"shard-000000.tar: this is not the shard that the pack"):
            dataset[0]
    assert len(os.listdir("/proc/self/fd")) == descriptors


@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_nothing_is_left_of_a_fetch_that_fails(
    made: Path, tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    dataset = in_blocks(made, tmp_path / "here")
    descriptors = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        for _ in range(3):
            with pytest.raises(PackError, match=r"shard-000000.tar: the shard cannot be opened: No space left"):
                dataset[0]
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert shards(tmp_path / "here") == []
    dataset[0]


def test_wrong_folders(tree: Path, made: Path, tmp_path: Path) -> None:
    with pytest.raises(PackError, match=r"^elsewhere://.*/tree: .nv-meta/index.sqlite cannot be fetched: "):
        remote(tree, tmp_path / "here")
    remote(made, tmp_path / "here")  # nothing is left of the other url
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "mine").write_text("kept")
    with pytest.raises(PackError, match=r"^/.*/used: the folder is not empty, and has no part of a pack"):
        remote(made, tmp_path / "used")
    with pytest.raises(PackError, match="/pack: the folder has a whole pack, which is not fetched: leave out the url"):
        remote(made, made)
    with pytest.raises(PackError, match="/here: the folder is of another url"):
        remote(made.parent / "other", tmp_path / "here")
    with pytest.raises(PackError, match=r"/mine: the folder cannot be used for a remote pack: .*Not a directory"):
        remote(made, tmp_path / "used" / "mine")


def test_a_pack_that_changes_elsewhere(tree: Path, made: Path, tmp_path: Path) -> None:
    dataset = remote(made, tmp_path / "here")
    first = dataset[0][0]
    for path in tree.rglob("*.jpg"):
        helpers.picture(40, 30).save(path)
    shutil.rmtree(made)
    packs.made(tree, made)
    assert remote(made, tmp_path / "here")[0][0].tobytes() == first.tobytes()
    with pytest.raises(PackError, match=r"/pack: shard-\d+.tar is not the shard that .*/here/.nv-meta/index.sql"):
        list(dataset)


def test_a_wrong_index_is_not_kept(made: Path, tmp_path: Path) -> None:
    index = Path(pack_index.file_of(str(made)))
    good = index.read_bytes()
    index.write_bytes(good[: len(good) // 2])
    with pytest.raises(PackError, match=r"elsewhere://.*/pack: .*the pack's index cannot be used"):
        remote(made, tmp_path / "here")
    index.write_bytes(good)
    remote(made, tmp_path / "here")


def test_without_the_url(tree: Path, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is here is read, even from a folder that cannot be written to; the rest is an error."""
    here = tmp_path / "here"
    [*remote(made, here)]
    packs.forget()
    made.rename(tmp_path / "gone")
    here.chmod(0o555)
    (here / ".nv-meta").chmod(0o555)
    for (image, _), (expected, _) in zip(remote(made, here), ImageFolder(tree), strict=True):
        assert image.tobytes() == expected.tobytes()
    here.chmod(0o755)
    (here / "shard-000000.tar").unlink()
    packs.forget()
    with pytest.raises(PackError, match=r"elsewhere://.*/pack: shard-000000.tar cannot be fetched"):
        remote(made, here)[0]


def test_the_urls_of_archives(tree: Path, made: Path, tmp_path: Path) -> None:
    archive = shutil.make_archive(str(tmp_path / "archive"), "zip", made)
    dataset = accel.PackDataset(f"zip://::file://{archive}", folder=tmp_path / "here")
    assert [image.tobytes() for image, _ in dataset] == [image.tobytes() for image, _ in ImageFolder(tree)]


def test_a_password_is_not_written(made: Path, tmp_path: Path) -> None:
    remote(made, tmp_path / "here")
    assert not any(str(made) in path.read_text("latin-1") for path in (tmp_path / "here" / ".nv-meta").iterdir())


def test_a_child_does_not_keep_the_lock_of_its_parent(made: Path, tmp_path: Path) -> None:
    """A child that is forked while a shard is fetched, and outlives its parent, fetches that shard itself."""
    begun, results = tmp_path / "begun", get_context("fork").Queue()
    dataset = remote(made, tmp_path / "here")

    def waits(path: str, target: str) -> bool:
        if not begun.exists():
            begun.touch()
            time.sleep(60)
        return False

    def child() -> None:
        while os.getppid() == parent:
            time.sleep(0.01)
        results.put(dataset[0][1])

    parent = os.fork()
    if not parent:
        parent = os.getpid()
        Elsewhere.instead = staticmethod(waits)
        Thread(target=lambda: dataset[0], daemon=True).start()
        while not begun.exists():
            time.sleep(0.01)
        get_context("fork").Process(target=child).start()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(parent, 0)
    assert results.get(timeout=60) == 0


def test_concatenated(made: Path, tmp_path: Path) -> None:
    dataset = ConcatDataset([remote(made, tmp_path / "here", bound=BOUND)])
    accel.BlockShuffle(dataset, block=1)
    dataset[0]


def test_wrong_arguments(made: Path, tmp_path: Path) -> None:
    with pytest.raises(PackError, match="bound=100 is too small: a shard has "):
        remote(made, tmp_path / "here", bound=100)
    with pytest.raises(ValueError, match=r"a pack at a url needs a local folder .*PackDataset\('file://"):
        accel.PackDataset(f"file://{made}")
    for options in ({"folder": tmp_path / "here"}, {"bound": 0}, {"storage_options": {"key": 1}}):
        with pytest.raises(ValueError, match="/pack is no url: folder, bound and storage_options are for packs that"):
            accel.PackDataset(made, **options)
    with pytest.raises(TypeError, match="bound must be a number of bytes, got '10GB'"):
        remote(made, tmp_path / "here", bound="10GB")
