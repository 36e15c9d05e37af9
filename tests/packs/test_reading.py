"""A pack is read as the tree that was packed: the same listing, the same tensors, the same errors."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch.utils.data import Subset, random_split
from torchvision import io
from torchvision.datasets import DatasetFolder, ImageFolder
from torchvision.datasets.folder import default_loader, make_dataset, pil_loader

import accel
from accel.codec.files import reader
from accel.system import memory
from tests.support import helpers, loaders, packs
from tests.support.cached import EVALUATION, TRAIN, TRAIN_V2
from tests.support.helpers import assert_same
from tests.support.packs import forget
from tests.support.processes import linux


def below(dataset: Any) -> list[tuple[str, int]]:
    return [(os.path.relpath(path, dataset.root), label) for path, label in dataset.samples]


def image_folder(root: Any, transform: Any = None, backend: str = "cpu") -> ImageFolder:
    with accel.image_backend(backend):
        return ImageFolder(root, transform)


def test_the_listing(tree: Path, pack: Path) -> None:
    there, expected = image_folder(pack), ImageFolder(tree)
    assert below(there) == below(expected)
    assert (there.classes, there.class_to_idx, there.targets) == (
        *(expected.classes, expected.class_to_idx),
        expected.targets,
    )
    assert there.imgs == there.samples
    assert there.classes == ["a 1", "a 10", "a 2", "b", "c"]  # not as numbers


@pytest.mark.parametrize("extensions", [(".png",), ".jpeg", (".jpg", ".png"), (".nothing",)])
@pytest.mark.parametrize("classes", [None, {"b": 0}, {"b": 5, "c": 2}, {"b": 0, "nowhere": 1}, {"b/deeper": 3}, {}])
@pytest.mark.parametrize("allow_empty", [False, True])
def test_other_listings(tree: Path, pack: Path, extensions: Any, classes: Any, allow_empty: bool) -> None:
    """What ``make_dataset`` returns or raises."""

    def listed(root: Path) -> Any:
        found = make_dataset(root, classes, extensions, allow_empty=allow_empty)
        return [(os.path.relpath(path, root), label) for path, label in found]

    expected = helpers.outcome(listed, tree)
    with accel.image_backend("cpu"):
        assert helpers.outcome(listed, pack) == expected


@pytest.mark.parametrize("cache", [None, "16MB"])
@pytest.mark.parametrize("backend", ["cpu", "cuda"])
@pytest.mark.parametrize(
    ("transform", "options"),
    [
        (TRAIN, {}),
        (EVALUATION, {"num_workers": 2}),
        (TRAIN_V2, {}),
    ],
    ids=["train", "evaluation", "v2"],
)
def test_tensors(
    tree: Path, pack: Path, transform: Any, options: Any, backend: str, cache: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two epochs, with whatever is kept from one to the next; random states included."""
    monkeypatch.setattr(memory, "SETTLED", 0.0)
    own: dict[str, Any] = {"device": "cpu"} if backend == "cuda" else {}
    loaded = {"batch_size": 8, "shuffle": True, **options}
    expected = [
        helpers.run("torchvision", lambda: loaders.epoch(ImageFolder(tree, transform), **loaded), n) for n in (0, 1)
    ]
    for seed, (values, states) in enumerate(expected):
        actual, after = helpers.run(
            backend, lambda: loaders.epoch(ImageFolder(pack, transform), **loaded), seed, cache=cache, **own
        )
        assert after == states
        assert_same(actual, values)


@linux
@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_tensors_of_spawned_workers(tree: Path, pack: Path, backend: str) -> None:
    """They are given a dataset with paths, and find the pack by themselves."""
    own: dict[str, Any] = {"device": "cpu"} if backend == "cuda" else {}
    loaded = {"batch_size": 8, "shuffle": True, "num_workers": 1}
    expected = helpers.run("torchvision", lambda: loaders.epoch(ImageFolder(tree, TRAIN), **loaded))
    spawned = {**loaded, "multiprocessing_context": "spawn"}
    actual = helpers.run(backend, lambda: loaders.epoch(ImageFolder(pack, TRAIN), **spawned), **own)
    assert actual[1] == expected[1]
    assert_same(actual[0], expected[0])


def test_parts_of_it(tree: Path, pack: Path) -> None:
    def values(root: Path) -> Any:
        dataset = ImageFolder(root, TRAIN)
        some, rest = random_split(dataset, [10, len(dataset) - 10])
        return [loaders.epoch(part, batch_size=5) for part in (some, Subset(rest, [3, 3, 0, 7]))]

    expected = helpers.run("torchvision", lambda: values(tree))
    actual = helpers.run("cpu", lambda: values(pack))
    assert actual[1] == expected[1]
    assert_same(actual[0], expected[0])


@pytest.mark.parametrize("backend", ["torchvision", "cpu"])
@pytest.mark.parametrize("workers", [0, 2])
def test_pack_dataset(tree: Path, pack: Path, backend: str, workers: int) -> None:
    loaded = {"batch_size": 8, "shuffle": True, "num_workers": workers}
    expected = helpers.run("torchvision", lambda: loaders.epoch(ImageFolder(tree, TRAIN), **loaded))
    actual = helpers.run(backend, lambda: loaders.epoch(accel.PackDataset(pack, TRAIN), **loaded))
    assert actual[1] == expected[1]
    assert_same(actual[0], expected[0])
    dataset, plain = accel.PackDataset(pack), ImageFolder(tree)
    assert below(dataset) == below(plain)
    assert (dataset.classes, dataset.class_to_idx, dataset.targets) == (
        plain.classes,
        plain.class_to_idx,
        plain.targets,
    )


def _said(path: Any) -> Any:
    """What an image says of itself before its pixels are read."""
    with Image.open(path) as image:
        known = image.format, image.size, image.mode, image.getexif().get(274), sorted(set(image.info) - {"exif"})
        return *known, os.path.basename(image.filename), type(image.filename)


def _opened(path: Any) -> Any:
    with Image.open(path) as image:
        return image.copy()


def _verified(path: Any) -> None:
    with Image.open(path) as image:
        image.verify()


READERS: dict[str, Any] = {
    "default_loader": default_loader,
    "pil_loader": pil_loader,
    "Image.open": _opened,
    "Image.open, converted": lambda path: _opened(path).convert("RGB"),
    "what Image.open says": _said,
    "verify": _verified,
    "read_file": io.read_file,
    "read_image": io.read_image,
    "decode_image": io.decode_image,
    "decode_image, RGB, turned": lambda path: io.decode_image(path, "RGB", True),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torchvision.io
@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("cache", [None, "16MB"])
@pytest.mark.parametrize("spelled", [str, Path, os.path.relpath])
def test_whoever_opens_a_path(tree: Path, pack: Path, name: str, cache: Any, spelled: Any) -> None:
    read = READERS[name]
    paths = [os.path.relpath(path, tree) for path, _ in ImageFolder(tree).samples]
    expected = [helpers.outcome(read, spelled(tree / path)) for path in paths]
    forget()
    with accel.image_backend("cpu", cache=cache):
        for path, values in zip(paths, expected, strict=True):
            actual = helpers.outcome(read, spelled(pack / path))
            if isinstance(values, torch.Tensor | Image.Image):
                assert_same(actual, values)
            else:
                assert actual == values, path


def test_paths_that_are_nowhere(tree: Path, pack: Path) -> None:
    """The errors of torchvision and Pillow are theirs."""
    for read in READERS.values():
        for name in ("c/nowhere.jpg", "nowhere/x.jpg", "c", "notes.txt/x.jpg"):
            expected = helpers.outcome(read, str(tree / name))
            forget()
            with accel.image_backend("cpu"):
                actual = helpers.outcome(read, str(pack / name))
                assert str(actual).replace(str(pack), str(tree)) == str(expected) or name == "c"


def test_open(tree: Path, pack: Path) -> None:
    for backend in ("torchvision", "cpu"):
        forget()
        with accel.image_backend(backend), accel.packs.open(str(pack / "b/x.jpg")) as file:
            assert file.read() == (tree / "b/x.jpg").read_bytes()
    with pytest.raises(FileNotFoundError, match="nowhere"):
        accel.packs.open(pack / "b/nowhere.jpg")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torchvision.io
def test_a_loader_that_opens_paths_is_refused_at_once(pack: Path) -> None:
    with accel.image_backend("cpu"):
        for make in (
            lambda: ImageFolder(pack, loader=lambda path: open(path, "rb").read()),  # noqa: SIM115
            lambda: DatasetFolder(pack, helpers.open_rgb, extensions=(".jpg",)),
            lambda: ImageFolder(pack, is_valid_file=os.path.isfile),
        ):
            with pytest.raises(ValueError, match=r"is a pack.*use accel.PackDataset.*accel.packs.open"):
                make()
        for loader in (Image.open, io.decode_image, io.read_image, io.read_file, pil_loader):
            assert len(ImageFolder(pack, loader=loader)[3]) == 2
    own = accel.PackDataset(pack, loader=lambda path: len(accel.packs.open(path).read()))
    assert own[0][0] > 100


def test_without_the_switch_it_is_no_image_folder(pack: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no valid file"):
        ImageFolder(pack)
    with accel.image_backend("cpu"):
        ImageFolder(pack)
        with accel.image_backend("torchvision"), pytest.raises(FileNotFoundError, match="no valid file"):
            ImageFolder(pack)


def test_no_file_is_opened_after_the_shards(pack: Path) -> None:
    """Their names may even be gone."""
    dataset = image_folder(pack, TRAIN)
    with accel.image_backend("cpu"):
        expected = helpers.run("cpu", lambda: loaders.epoch(dataset, batch_size=8))[0]
        for shard in pack.glob("*.tar"):
            shard.unlink()
        assert_same(helpers.run("cpu", lambda: loaders.epoch(dataset, batch_size=8))[0], expected)


def test_keys(pack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of compiled code and of Python are the same, and no two files have the same."""
    monkeypatch.setattr(memory, "SETTLED", 0.0)
    with accel.image_backend("cpu"):
        paths = [path for path, _ in ImageFolder(pack).samples]
        by_python = [reader.file_key(path) for path in paths]
        assert len({*by_python}) == len(paths)
        found = reader.keys(paths)
        if found is not None:
            packed = found.packed()
            assert [key and reader.Keys.of([key]).packed()[0] for key in by_python] == packed
            assert None not in packed
            assert [file.key for path in paths if (file := reader.read(path)) is not None] == by_python
        for shard in pack.glob("*.tar"):
            os.utime(shard, ns=(1, 1))
        assert {*by_python}.isdisjoint({reader.file_key(path) for path in paths})


def test_a_pack_in_the_place_of_another(tree: Path, pack: Path, tmp_path: Path) -> None:
    image_folder(pack)
    shutil.rmtree(tree / "a 10")
    (tree / "a 1" / "x.jpg").write_bytes(helpers.jpeg(70, 90, seed=99))
    shutil.rmtree(pack)
    packs.made(tree, pack)
    there, expected = image_folder(pack), ImageFolder(tree)
    assert below(there) == below(expected)
    with accel.image_backend("cpu"):
        assert_same(there[0], expected[0])


def test_relative_names(tree: Path, pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are of the folder where they were given; elsewhere they may be other files."""
    monkeypatch.chdir(tmp_path)
    with accel.image_backend("cpu"):
        dataset = ImageFolder("pack")
        assert_same(dataset[0], ImageFolder("tree")[0])
        other = tmp_path / "other" / "pack"
        path = other / os.path.relpath(dataset.samples[0][0], "pack")
        path.parent.mkdir(parents=True)
        path.write_bytes(helpers.jpeg(20, 10, seed=77))
        monkeypatch.chdir(other.parent)
        assert dataset[0][0].size == (20, 10)


@pytest.mark.parametrize("backend", ["torchvision", "cpu"])
def test_shards_of_equal_layout_that_change_places(tmp_path: Path, backend: str) -> None:
    (tmp_path / "tree" / "a").mkdir(parents=True)
    for number in range(8):
        helpers.picture(60, 60, seed=number).save(tmp_path / "tree" / "a" / f"{number}.bmp")
    pack = packs.made(tmp_path / "tree", tmp_path / "pack", 60_000)
    first, second = sorted(pack.glob("*.tar"))[:2]
    assert first.stat().st_size == second.stat().st_size
    first.rename(pack / "other")
    second.rename(first)
    (pack / "other").rename(second)
    with accel.image_backend(backend), pytest.raises(accel.packs.PackError, match=r"is '0+\d\.bmp', not number 0"):
        accel.PackDataset(pack)[0]


def test_a_shard_that_is_cut_while_it_is_read(pack: Path) -> None:
    dataset = image_folder(pack, TRAIN)
    with accel.image_backend("cpu"):
        loaders.epoch(dataset, batch_size=8)
        for shard in pack.glob("*.tar"):
            os.truncate(shard, 3000)
        with pytest.raises(accel.packs.PackError, match=r"pack/.*shard was cut"):
            loaders.epoch(dataset, batch_size=8)


def cut(shard: Path) -> None:
    os.truncate(shard, os.path.getsize(shard) - 512)


def exchange(shard: Path) -> None:
    content = shard.read_bytes()
    shard.write_bytes(content[512:] + content[:512])


@pytest.mark.parametrize("damage", [cut, exchange, Path.unlink, lambda shard: shard.write_bytes(b"")])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_shard_that_is_another_one(pack: Path, damage: Any, workers: int) -> None:
    dataset = image_folder(pack, TRAIN)
    for shard in pack.glob("*.tar"):
        damage(shard)
    with accel.image_backend("cpu"):
        with pytest.raises(accel.packs.PackError, match=r"shard-\d+\.tar"):
            loaders.epoch(dataset, batch_size=8, num_workers=workers)
        with pytest.raises(accel.packs.PackError, match=r"shard-\d+\.tar"):
            Image.open(dataset.samples[0][0])
    with pytest.raises(accel.packs.PackError, match=r"shard-\d+\.tar"):
        accel.PackDataset(pack)[0]


def test_a_shard_that_is_a_pipe_is_not_waited_for(pack: Path) -> None:
    for shard in pack.glob("*.tar"):
        shard.unlink()
        os.mkfifo(shard)
    with pytest.raises(accel.packs.PackError, match="bytes in place of"):
        accel.PackDataset(pack)[0]


def test_there_is_no_pack(tmp_path: Path) -> None:
    with pytest.raises(accel.packs.PackError, match="no pack in this folder"):
        accel.PackDataset(tmp_path)
