"""A cache with a folder: what is taken from it equals what the files give, and no file is opened for it."""

import pickle
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torchvision import transforms as T
from torchvision.datasets import ImageFolder
from torchvision.io import decode_image
from torchvision.transforms import v2

import accel
from accel.lazy.tensor_base import pending_state
from accel.processes import packing
from tests.support import helpers, inside
from tests.support.cached import (
    COUNT,
    EVALUATION,
    EVALUATION_V2,
    PIPELINES,
    RESIZED,
    TRAIN,
    TRAIN_V2,
    VALUES,
    Counts,
    check,
    epoch,
    fill,
)
from tests.support.cuda import needs_compiler
from tests.support.helpers import Each, Files, assert_same, open_file_rgb, open_rgb
from tests.support.processes import in_child, linux

pytestmark = [
    linux,
    pytest.mark.usefixtures("new", "at_once"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("kind", ["ImageFolder", "Image.open", "open file"])
def test_every_epoch_is_the_same_and_later_ones_open_no_file(
    folder: Path, files: list[str], place: str, opened: list[str], kind: str, name: str
) -> None:
    transform, kept = PIPELINES[name]
    counts = Counts()
    if kind == "ImageFolder":
        dataset: Any = ImageFolder(folder, transform)
    else:
        load = open_file_rgb if kind == "open file" else open_rgb
        dataset = Each(files, lambda path: transform(load(path)))
    for number in range(3):
        expected, states = helpers.run("torchvision", lambda: epoch(dataset), number)
        opened.clear()
        actual, after = helpers.run("cpu", lambda: epoch(dataset), number, cache=place)
        if number == 2 and kind != "open file":
            assert not set(opened) & set(files)
        assert after == states
        assert_same(actual, expected)
    made = counts()
    assert made[kept] == COUNT
    assert made[f"{kept} used"] >= COUNT


@pytest.mark.parametrize("mode", ["UNCHANGED", "RGB"])
def test_torchvisions_reader(files: list[str], place: str, opened: list[str], mode: str) -> None:
    colour = [path for path in files if not path.endswith("04.jpg")]
    for pipeline in (TRAIN_V2, EVALUATION_V2):
        steps = [step for step in pipeline.transforms if not isinstance(step, v2.ToImage)]
        run = v2.Compose(steps)
        dataset = Each(colour, lambda path, run=run: run(decode_image(path, mode)))
        for number in range(3):
            opened.clear()
            check(dataset, place, number)
        assert not set(opened) & set(colour)  # torchvision opens none by Python's means


def test_pillows_and_torchvisions_results_are_told_apart(files: list[str], place: str) -> None:
    """They are of the same files and steps, and of other decoders."""
    datasets = [Files(files, EVALUATION), Each(files, lambda path: T.Resize(64)(decode_image(path, "RGB")).float())]
    for number in range(2):
        for dataset in datasets:
            check(dataset, place, number, batch_size=1)


def test_results_of_both_decoders_are_believed_by_their_own(files: list[str], place: str) -> None:
    """Neither takes the other's place, whichever came first, and both are found again."""
    colour = [path for path in files if not path.endswith("04.jpg")]
    crop = T.CenterCrop(48)  # the same step for both
    pillows = Each(colour, lambda path: T.ToTensor()(crop(open_rgb(path))))
    torchvisions = Each(colour, lambda path: T.ConvertImageDtype(torch.float32)(crop(decode_image(path))))
    counts = Counts()
    for number in range(3):
        for dataset in (pillows, torchvisions):
            check(dataset, place, number)
    made = counts()
    assert made["results"] == 2 * len(colour)
    assert made["results used"] == 4 * len(colour)


@pytest.mark.parametrize("turned", [False, True])
def test_files_that_are_to_be_turned_are_on_a_hit_too(tmp_path: Path, place: str, turned: bool) -> None:
    """``apply_exif_orientation`` of a file with EXIF is torchvision's to do, also where a cache has its planes."""
    files = []
    for number in range(COUNT):
        files.append(str(tmp_path / f"{number}.jpg"))
        Path(files[-1]).write_bytes(helpers.jpeg(160, 120, seed=number, exif=helpers.exif()))
    run = v2.Compose([v2.RandomCrop(40), v2.ToDtype(torch.float32, scale=True)])
    helpers.run(
        "cpu", lambda: [epoch(Each(files, lambda path: run(decode_image(path)))) for _ in range(2)], cache=place
    )
    counts = Counts()
    dataset = Each(files, lambda path: run(decode_image(path, apply_exif_orientation=turned)))
    for number in range(2):
        check(dataset, place, number)
    assert ("planes used" in counts()) != turned


def test_explain_says_what_is_kept(files: list[str], place: str) -> None:
    """Of the steps of this image, not of others."""
    fill(files, place)
    with accel.image_backend("cpu", cache=place):
        said = accel.explain(EVALUATION(open_rgb(files[0])))
        assert "kept by the cache: the result of resize(" in said
        assert "crop(" in said.partition("kept by the cache: ")[2].partition("\n")[0]
        assert "half-decoded (" in said
        other = accel.explain(T.ToTensor()(T.Resize(30)(open_rgb(files[0]))))
        assert "kept by the cache: half-decoded (" in other


@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": 2},
        {"num_workers": 1, "persistent_workers": True},
    ],
    ids=["fork", "persistent"],
)
def test_workers_share_it(files: list[str], place: str, options: dict[str, Any]) -> None:
    counts = Counts()
    for transform in (TRAIN, EVALUATION):
        for number in range(2):
            check(Files(files, transform), place, number, **options)
    made = counts()
    assert made["planes"] + made["results"] >= COUNT
    assert made["planes used"] + made["results used"] >= COUNT


def test_what_spawned_workers_put_in_is_found(files: list[str], place: str) -> None:
    time.sleep(2.1)  # the files are young for a process that this test has no hand in
    counts = Counts()
    expected = helpers.run("torchvision", lambda: epoch(Files(files, EVALUATION)))[0]
    for options in ({"num_workers": 1, "multiprocessing_context": "spawn"}, {}):
        assert_same(
            helpers.run("cpu", lambda options=options: epoch(Files(files, EVALUATION), **options), cache=place)[0],
            expected,
        )
    assert counts() == {"results": COUNT, "results used": COUNT}


def test_a_later_run_finds_it(files: list[str], place: str) -> None:
    check(Files(files, EVALUATION), place)
    check(Files(files, EVALUATION), place)

    def later() -> bool:
        counts = Counts()
        inside.forget_caches()
        check(Files(files, EVALUATION), place)
        return bool(counts()["results used"] >= COUNT)

    assert in_child(later)()


def test_results_are_made_of_planes_and_no_file_is_opened(files: list[str], place: str, opened: list[str]) -> None:
    helpers.run("cpu", lambda: [epoch(Files(files, TRAIN)) for _ in range(2)], cache=place)
    opened.clear()
    counts = Counts()
    helpers.run("cpu", lambda: epoch(Files(files, EVALUATION)), cache=place)
    assert counts()["results"] == COUNT
    assert not [path for path in opened if path in files]
    check(Files(files, EVALUATION), place)


def test_several_results_of_a_file(files: list[str], place: str) -> None:
    """Another pipeline has its own, and neither takes the other's place."""
    counts = Counts()
    others = T.Compose([T.Resize(50, T.InterpolationMode.BICUBIC), T.CenterCrop(32), *VALUES])
    for transform in (EVALUATION, others, EVALUATION, others):
        check(Files(files, transform), place)
    assert counts() == {"results": 2 * COUNT, "results used": 2 * COUNT}


def test_both_results_of_a_file_that_begin_alike(files: list[str], place: str) -> None:
    """Training and evaluation of one process: the same resize, of which one takes any crop and one the centre."""
    for number in range(40):
        check(Files(files, RESIZED), place, number)
        check(Files(files, EVALUATION), place, number)
    counts = Counts()
    for transform in (RESIZED, EVALUATION):
        helpers.run("cpu", lambda run=transform: epoch(Files(files, run)), cache=place)
        assert counts() == {"results used": COUNT}
    with accel.image_backend("cpu", cache=place):
        said = accel.explain(EVALUATION(open_rgb(files[0])))
    assert said.count("the result of resize(") == 2


def test_images_computed_one_by_one(files: list[str], place: str) -> None:
    def pixels() -> list[Any]:
        images = [T.Resize(64)(Image.open(path)) for path in files]
        return [(image.tobytes(), image.getpixel((3, 5)), image.size) for image in images]

    for _ in range(3):
        helpers.run("cpu", lambda: epoch(Files(files, RESIZED)), cache=place)
        assert helpers.run("cpu", pixels, cache=place)[0] == helpers.run("torchvision", pixels)[0]


def test_what_the_cache_does_not_know_is_the_files(files: list[str], place: str) -> None:
    def asked() -> list[Any]:
        found = []
        for path in files:
            image = Image.open(path)
            found.append((image.info, image.getexif(), image.filename, image.format, image.size, image.mode))
            found.append((image.copy().tobytes(), image.quantization, image.layers, type(image).__mro__[-2:]))
            with Image.open(path) as small:
                small.thumbnail((20, 20))
                found.append(small.tobytes())
        return found

    helpers.run("cpu", lambda: [epoch(Files(files, each)) for each in (TRAIN, TRAIN, EVALUATION)], cache=place)
    expected = helpers.run("torchvision", asked)[0]
    assert helpers.run("cpu", asked, cache=place)[0] == expected


# -- computed in the main process ---------------------------------------------------------------------------


@needs_compiler
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", ["train", "evaluation", "resized"])
def test_an_accelerators_batches(folder: Path, place: str, name: str, workers: int) -> None:
    """What workers found in the cache they send by its key; the main process reads results there, else the files."""
    transform, kept = PIPELINES[name]
    dataset, counts = ImageFolder(folder, transform), Counts()
    helpers.run("cpu", lambda: epoch(dataset), cache=place)  # fills it with planes, or results
    for number in range(2):
        expected, states = helpers.run("torchvision", lambda: epoch(dataset, num_workers=workers), number)
        options = {"cache": place, "device": "cpu"}
        actual, after = helpers.run("cuda", lambda: epoch(dataset, num_workers=workers), number, **options)
        assert after == states
        assert_same(actual, expected)
    used = counts().get(f"{kept} used", 0)
    assert used >= 2 * COUNT if kept == "results" else used == 0


@needs_compiler
def test_an_accelerator_fills_it_with_results(folder: Path, place: str) -> None:
    dataset, counts = ImageFolder(folder, EVALUATION), Counts()
    expected = helpers.run("torchvision", lambda: epoch(dataset))[0]
    for _ in range(2):
        with accel.image_backend("cuda", device="cpu", cache=place):
            assert_same(epoch(dataset), expected)
    assert counts() == {"results": COUNT, "results used": COUNT}


def test_a_known_file_is_sent_by_its_key(files: list[str], place: str) -> None:
    fill(files, place)
    with accel.image_backend("cpu", cache=place):
        image = TRAIN(Image.open(files[0]).convert("RGB"))
        packed = packing.pack(pending_state(image).recipes)  # type: ignore[union-attr]
        assert packed.data.nbytes == 0
        (recipe,) = packing.unpack(packed)
        assert not recipe.source.is_read
        assert recipe.source.cached.planes is not None
        again = pickle.loads(pickle.dumps(recipe.source))
        assert (again.is_read, bytes(again.data)) == (False, Path(files[0]).read_bytes())
