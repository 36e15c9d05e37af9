"""Batches of an accelerator backend on their way from DataLoader workers to the device, as torch's pin thread has them.

torch starts that thread only where there is an accelerator; here it is told that there is one.
"""

import gc
import logging
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, default_collate
from torchvision import transforms as T
from torchvision import tv_tensors
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

import accel
from accel.lazy import loader_batch
from accel.runtime import streams
from tests.support import helpers, inside
from tests.support.fake_accelerator import CPU, CPU0, Fake, have_pin_thread, installed
from tests.support.helpers import Files, assert_same, is_lazy, undecodable
from tests.support.loaders import batch
from tests.support.processes import ROOT, eventually, in_threads, plain

Choose = Callable[..., None]
TRAIN = T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize([0.5] * 3, [0.2] * 3)])
FIXED = T.Compose([T.Resize((16, 24)), T.ToTensor()])


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Choose]:
    """An accelerator backend, and a torch that believes in its device: it runs its own pin thread."""
    have_pin_thread(monkeypatch)
    with installed(monkeypatch) as choose:
        yield choose


def loader(dataset: Any, workers: int = 1, **options: Any) -> DataLoader[Any]:
    if workers:
        options.setdefault("timeout", 60)
    return DataLoader(dataset, **{"batch_size": 2, "pin_memory": True, "num_workers": workers, **options})


@contextmanager
def epoch(*arguments: Any, **options: Any) -> Iterator[Iterator[Any]]:
    """A loader's iterator, whose workers end here whatever happens."""
    iterator = iter(loader(*arguments, **options))
    try:
        yield iterator
    finally:
        if hasattr(iterator, "_shutdown_workers"):
            iterator._shutdown_workers()


def counts() -> tuple[int, int]:
    stats = accel.stats()
    return stats["in flight"], stats["waiting"]


def expected(paths: list[str], **options: Any) -> list[Any]:
    with accel.image_backend("torchvision"):
        return [images for images, _ in DataLoader(Files(paths, FIXED), batch_size=2, **options)]


# -- the same batches ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("options", [{}, {"device": "cpu"}, {"device": "cpu", "prefetch": 1}], ids=str)
def test_an_unchanged_script(image_folder: Path, fake: Choose, workers: int, options: dict[str, Any]) -> None:
    def train() -> list[Any]:
        dataset = ImageFolder(str(image_folder), TRAIN)
        seen = []
        for _ in range(2):
            with epoch(dataset, workers, shuffle=True, drop_last=True, batch_size=5) as batches:
                for images, labels in batches:
                    assert images.device == CPU
                    seen.append((images.to("cpu", non_blocking=True), labels))
        return seen

    reference, states = helpers.run("torchvision", train)
    fake(**options)
    helpers.seed_everything(0)
    seen = train()
    assert helpers.random_states() == states
    assert_same(seen, reference)
    assert all(type(images) is torch.Tensor for images, _ in seen)
    ahead = [thread for _, _, thread in Fake.runs if thread.startswith("accel-cpu")]
    assert len(Fake.runs) == 4
    assert len(ahead) >= (4 if options else 2 if workers else 3)  # the others wait for what is learned
    assert counts() == (0, 0)


def as_list(samples: list[Any]) -> Any:
    return [image for image, _ in samples], [number for _, number in samples]


def as_dict(samples: list[Any]) -> Any:
    return {"images": torch.stack([image for image, _ in samples]), "raw": {"first": samples[0][0]}, "name": "x"}


def shapes(image: Any) -> torch.Tensor:
    return T.functional.to_tensor(T.functional.resize(image, [20, 20 + image.width % 2]))


@pytest.mark.parametrize("workers", [0, 1])
def test_lists_of_images_are_few_programs(paths: list[str], fake: Choose, workers: int) -> None:
    fake(device="cpu")
    options = {"batch_size": 12, "collate_fn": as_list}
    with epoch(Files(paths, shapes), workers, **options) as batches:
        images, _ = next(batches)
        assert all(is_lazy(image) for image in images)
        results = [image.to("cpu") for image in images]
    assert_same(results, plain(lambda: next(iter(DataLoader(Files(paths, shapes), **options)))[0]))
    assert sorted(len(names) for names, _, _ in Fake.runs) == [6, 6]
    assert counts() == (0, 0)


@pytest.mark.parametrize("workers", [0, 1])
def test_batches_in_containers(paths: list[str], fake: Choose, workers: int) -> None:
    fake(device="cpu")
    options = {"collate_fn": as_dict, "batch_size": 3}
    with epoch(Files(paths, FIXED), workers, **options) as batches:
        found = [(each["images"].to("cpu"), each["raw"]["first"].to("cpu"), each["name"]) for each in batches]
    with accel.image_backend("torchvision"):
        wanted = list(DataLoader(Files(paths, FIXED), **options))
    assert_same(found, [(each["images"], each["raw"]["first"], "x") for each in wanted])
    assert [len(names) for names, _, _ in Fake.runs] == [3] * 4


class Views:
    """Two random views of every image, as for contrastive learning."""

    def __call__(self, image: Any) -> Any:
        return TRAIN(image), TRAIN(image)


@pytest.mark.parametrize("workers", [0, 1])
def test_views_of_one_file_are_decoded_once(paths: list[str], fake: Choose, workers: int) -> None:
    def once() -> Any:
        with epoch(Files(paths, Views()), workers, batch_size=6) as batches:
            return [(first.to("cpu"), second.to("cpu")) for (first, second), _ in batches]

    wanted, _ = helpers.run("torchvision", once)
    fake(device="cpu")
    helpers.seed_everything(0)
    assert_same(once(), wanted)
    assert [len(names) for names, _, _ in Fake.runs] == [6, 6]  # files, of 12 images


CASTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "half": lambda images: images.to("cpu", torch.float16),
    "channels_last": lambda images: images.to("cpu", memory_format=torch.channels_last),
    "before": lambda images: images.half().contiguous(memory_format=torch.channels_last).to("cpu"),
    "twice": lambda images: images.half().double().to("cpu"),
    "numpy": lambda images: torch.from_numpy(images.numpy()),
    "index": lambda images: images[1],
    "arithmetic": lambda images: images * 2 - 1,
    "cpu": lambda images: images.cpu(),
    "copy": lambda images: images.to("cpu", copy=True),
    "normalised": lambda images: T.functional.normalize(images, [0.1] * 3, [0.7] * 3).to("cpu"),
}


@pytest.mark.parametrize("use", CASTS.values(), ids=CASTS)
def test_what_is_done_to_a_pinned_batch(paths: list[str], fake: Choose, use: Callable[[Any], torch.Tensor]) -> None:
    fake(device="cpu")
    found = use(batch(paths).pin_memory())
    assert_same(found, plain(lambda: use(batch(paths))))


def test_a_pinned_batch_is_computed_once(paths: list[str], fake: Choose) -> None:
    fake(device="cpu")
    for number, name in enumerate(("half", "channels_last", "before", "numpy", "arithmetic", "cpu")):
        images = batch(paths).pin_memory()
        assert images.pin_memory() is images
        assert images.is_pinned()
        CASTS[name](images)
        assert len(Fake.runs) == number + 1


@pytest.mark.parametrize("names", [("before",), ("half",), ("channels_last",), ("twice",), ("half", "cpu", "before")])
def test_casts_and_orders_are_foreseen(
    paths: list[str], fake: Choose, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    """What is done to every batch of a loader is done in its one pass, from the time on that this is known."""
    plans: list[tuple[torch.dtype, bool]] = []
    run_on = Fake.run_on
    monkeypatch.setattr(
        Fake, "run_on", lambda self, plan, on: (plans.append((plan.dtype, plan.interleaved)), run_on(self, plan, on))[1]
    )

    def used() -> list[torch.Tensor]:
        found = []
        with epoch(Files(paths * 2, FIXED), prefetch_factor=1) as batches:
            for number, (images, _) in enumerate(batches):
                found.append(CASTS[names[number % len(names)]](images))
        return found

    wanted = plain(used)
    fake(device="cpu", prefetch=1)
    assert_same(used(), wanted)
    if len(names) == 1:
        last = wanted[-1]
        assert plans[-1] == (last.dtype, last.stride(1) == 1)
        assert len(plans) == len(wanted), "some were computed twice"
    else:
        assert plans[-1] == (torch.float32, False), "it varies"


def test_results_are_nobody_elses(paths: list[str], fake: Choose) -> None:
    fake(device="cpu")
    images = batch(paths).pin_memory()
    first = images.to("cpu")
    first.zero_()
    second = images.to("cpu")
    second.zero_()
    assert_same(images, plain(lambda: batch(paths)))


def test_v2_images_as_lists(paths: list[str], fake: Choose) -> None:
    fake(device="cpu")
    image = v2.functional.resize(v2.functional.to_image(helpers.open_rgb(paths[0])), [9, 11])
    result = image.to("cpu")
    assert type(result) is tv_tensors.Image
    assert_same(
        result, plain(lambda: v2.functional.resize(v2.functional.to_image(helpers.open_rgb(paths[0])), [9, 11]))
    )


# -- how many, when and where -------------------------------------------------------------------------------


BY_MEMORY = [(None, 0, 2), (None, 2.9, 2), (None, 3, 3), (None, 4, 4), (None, 9, 4)]


@pytest.mark.parametrize(("option", "room", "prefetch"), [(1, 9, 1), (2, 9, 2), (3, 0, 3), *BY_MEMORY])
def test_pinning_never_blocks_and_prefetch_is_kept(
    paths: list[str], fake: Choose, option: int | None, room: float, prefetch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``room``: the number of batches whose results fit in a sixteenth of the memory."""
    wanted = expected(paths)
    monkeypatch.setattr(streams, "memory", lambda _: int(16 * room * wanted[0].nbytes))
    fake(device="cpu", prefetch=option)
    Fake.gated = True
    with epoch(Files(paths, FIXED), prefetch_factor=6) as batches:
        first = next(batches)
        eventually(lambda: counts() == (prefetch, 6 - prefetch))  # the pin thread had them all, and waited for none
        Fake.gate.release(100)
        eventually(lambda: len(Fake.runs) == prefetch)
        time.sleep(0.2)
        for number, (images, _) in enumerate([first, *batches]):
            assert len(Fake.runs) <= number + prefetch
            assert is_lazy(images)
            assert_same(images.to("cpu"), wanted[number])
            started = min(6, number + 1 + prefetch)
            eventually(lambda started=started: len(Fake.runs) == started)
            assert counts()[0] <= prefetch
    assert sorted(names for names, _, _ in Fake.runs) == [paths[i : i + 2] for i in range(0, 12, 2)]


def test_nothing_is_submitted_to_a_guessed_device(paths: list[str], fake: Choose) -> None:
    fake(prefetch=2)
    wanted = expected(paths)
    with epoch(Files(paths, FIXED), prefetch_factor=6) as batches:
        first, _ = next(batches)
        eventually(lambda: counts() == (0, 6))
        assert "until it is known on which device" in accel.explain(first)
        assert Fake.runs == []
        second, _ = next(batches)
        second.sum()  # on the host
        assert Fake.runs == []
        assert_same(first.to("cpu:0"), wanted[0])
        eventually(lambda: len(Fake.runs) == 3)  # the next two have started by themselves
        for number, (images, _) in enumerate(batches):
            assert_same(images.to("cpu:0"), wanted[number + 2])
    assert {device for _, device, _ in Fake.runs} == {CPU0}


def test_two_loaders_on_two_devices(paths: list[str], fake: Choose) -> None:
    fake()
    half = paths[:6], paths[6:]
    with epoch(Files(half[0], FIXED)) as one, epoch(Files(half[1], FIXED)) as other:
        for (mine, _), (yours, _) in zip(one, other, strict=True):
            mine.to("cpu")
            yours.to("cpu:0")
    Fake.runs.clear()
    with epoch(Files(half[0], FIXED)) as one, epoch(Files(half[1], FIXED)) as other:  # both devices are known now
        for number, ((mine, _), (yours, _)) in enumerate(zip(one, other, strict=True)):
            assert_same(mine.to("cpu"), expected(half[0])[number])
            assert_same(yours.to("cpu:0"), expected(half[1])[number])
    assert len(Fake.runs) == 6
    for names, device, _ in Fake.runs:
        assert device == (CPU if names[0] in half[0] else CPU0)


def test_batches_on_another_device_than_learned(paths: list[str], fake: Choose) -> None:
    fake(device="cpu")
    assert_same(batch(paths).pin_memory().to("cpu:0"), plain(lambda: batch(paths)))
    assert batch(paths).pin_memory().to("meta").device.type == "meta"


def test_threads(paths: list[str], fake: Choose) -> None:
    """Several threads with loaders of their own, and several that use one batch."""
    fake()
    results: dict[str, list[Any]] = {}

    def train(name: str) -> None:
        with epoch(Files(paths, FIXED), 0) as batches:
            results[name] = [images.to(name) for images, _ in batches]

    shared = batch(paths)
    _, _, *results["shared"] = in_threads(
        [partial(train, "cpu"), partial(train, "cpu:0"), *[lambda: shared.to("cpu") for _ in "123"]]
    )
    assert_same(results["cpu"], expected(paths))
    assert_same(results["cpu:0"], expected(paths))
    assert_same(results["shared"], [plain(lambda: batch(paths))] * 3)


def test_the_hint_to_pin(paths: list[str], fake: Choose, caplog: pytest.LogCaptureFixture) -> None:
    for pinned in (True, False):
        fake(device="cpu")
        inside.forget_messages()
        caplog.clear()
        with caplog.at_level(logging.WARNING, "accel"), epoch(Files(paths, FIXED), pin_memory=pinned) as batches:
            for number, (images, _) in enumerate(batches):
                for _ in range(2):
                    assert_same(images.to("cpu"), expected(paths)[number])
        assert sum("pin_memory=True" in record.message for record in caplog.records) == (not pinned)


# -- leaving early, and what fails --------------------------------------------------------------------------


def test_dropped_batches_make_room(paths: list[str], fake: Choose) -> None:
    fake(device="cpu", prefetch=1)
    Fake.gated = True
    kept = [batch(paths[i : i + 1]).pin_memory() for i in range(5)]
    assert counts() == (1, 4)
    gc.disable()
    try:
        kept[1] = kept[3] = None  # type: ignore[call-overload]
        assert counts() == (1, 2)
        kept[0] = None  # type: ignore[call-overload]
        assert counts() == (1, 1)
    finally:
        gc.enable()
    Fake.gate.release(100)
    for number in (2, 4):
        assert_same(kept[number].to("cpu"), plain(lambda number=number: batch(paths[number : number + 1])))
    assert [paths[1]] not in [names for names, _, _ in Fake.runs]
    assert [paths[3]] not in [names for names, _, _ in Fake.runs]
    assert counts() == (0, 0)


@pytest.mark.parametrize("how", ["break", "raise", "unused"])
def test_leaving_an_epoch(paths: list[str], fake: Choose, how: str) -> None:
    def leave() -> None:
        for number, (images, _) in enumerate(loader(Files(paths, FIXED), 2)):
            if how == "break":
                break
            if how == "raise":
                raise ZeroDivisionError
            del images
            assert number < 6

    fake(device="cpu")
    Fake.gated = how != "unused"
    for _ in range(3):
        with suppress(ZeroDivisionError):
            leave()
    gc.collect()
    Fake.gate.release(1000)
    eventually(lambda: counts() == (0, 0))
    Fake.gated = False
    with epoch(Files(paths, FIXED), 2) as batches:
        assert_same([images.to("cpu") for images, _ in batches], expected(paths))


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Whoever starts the tests in the background may have had SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c(paths: list[str], fake: Choose) -> None:
    """While the main thread waits for a batch; the next epoch runs as if nothing had been."""
    fake(device="cpu")
    Fake.gated = True
    with epoch(Files(paths, FIXED)) as batches:
        images, _ = next(batches)
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            images.to("cpu")
        Fake.gate.release(1000)
        assert_same(images.to("cpu"), expected(paths)[0])
    Fake.gated = False
    del images, batches
    with epoch(Files(paths, FIXED)) as batches:
        assert_same([images.to("cpu") for images, _ in batches], expected(paths))
    eventually(lambda: counts() == (0, 0))


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("collate", [default_collate, as_list], ids=["batch", "list"])
def test_errors_name_file_and_index(tmp_path: Path, fake: Choose, workers: int, collate: Any) -> None:
    fake(device="cpu")
    root = helpers.write_image_folder(tmp_path, 6, {3: undecodable(71, 81)})
    dataset = ImageFolder(str(root), T.Compose([T.Resize((16, 16)), T.ToTensor()]))
    order = [5, 3, 1, 0]
    failed, good = [], []
    with epoch(dataset, workers, sampler=order, collate_fn=collate) as batches:
        for images, _ in batches:
            for image in images if isinstance(images, list) else [images]:
                try:
                    good.append(image.to("cpu"))
                except accel.DecodeError as error:
                    failed.append(str(error))
    assert len(failed) == 1
    assert "003.jpg" in failed[0]
    assert failed[0].count("(dataset index 3)") == 1
    assert len(good) == (1 if collate is default_collate else 3)
    with accel.image_backend("torchvision"):
        wanted = [dataset[number][0] for number in (1, 0)]
    assert_same(list(good[-1] if collate is default_collate else good[-2:]), wanted)
    eventually(lambda: counts() == (0, 0))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stream_has_no_indices(tmp_path: Path, fake: Choose, workers: int) -> None:
    fake(device="cpu")
    (tmp_path / "broken.jpg").write_bytes(undecodable(50, 40))
    stream = helpers.Stream([str(tmp_path / "broken.jpg")], FIXED)
    with epoch(stream, workers) as batches, pytest.raises(accel.DecodeError, match=r"broken.jpg") as raised:
        next(batches).to("cpu")
    assert "dataset index" not in str(raised.value)


def test_what_is_sent_on_is_sent_alone(paths: list[str], fake: Choose) -> None:
    """A tensor that a user puts into a queue takes the other files of its batch along neither once nor twice."""
    fake(device="cpu")
    with epoch(Files(paths, FIXED), batch_size=12, collate_fn=as_list) as batches:
        images, _ = next(batches)
    _, (*_, packed) = loader_batch.send(images[3])
    assert packed.sizes == [os.path.getsize(paths[3])]
    alone = ForkingPickler.dumps(images[3])
    assert_same(pickle.loads(alone).to("cpu"), plain(lambda: Files(paths, FIXED)[3][0]))


def test_an_epoch_while_another_one_is_under_way(paths: list[str], fake: Choose) -> None:
    """Workers are forked while our threads compute; an iterator that is not used keeps nobody from the other."""
    fake(device="cpu", prefetch=1)
    with epoch(Files(paths, FIXED), 2) as held:
        kept, _ = next(held)
        with epoch(Files(paths, FIXED), 2) as batches:
            assert_same([images.to("cpu") for images, _ in batches], expected(paths))
        rest = [images.to("cpu") for images, _ in held]
    assert_same([kept.to("cpu"), *rest], expected(paths))


def test_the_interpreter_ends_in_mid_flight(paths: list[str]) -> None:
    code = """
import sys, pytest, torch, accel
from tests.support.fake_accelerator import installed
from tests.support.helpers import open_rgb
from torchvision.transforms import functional as F
choosing = installed(pytest.MonkeyPatch())
choosing.__enter__()(device="cpu", prefetch=3)
batch = lambda: torch.stack([F.to_tensor(F.resize(open_rgb(path), [300, 300])) for path in sys.argv[1:]])
pinned = [batch().pin_memory() for _ in range(12)]
print(tuple(pinned[1].to("cpu").shape), accel.stats()["waiting"] > 0)
sys.exit()
"""
    assert helpers.python(code, *paths, path=ROOT) == "(12, 3, 300, 300) True\n"


def outside_pools() -> int:
    """The number of threads but those of the backend's pool, which start when there is work for one more."""
    return sum(not each.name.startswith("accel-cpu_") for each in threading.enumerate())


def test_a_thousand_batches_leave_nothing(paths: list[str], fake: Choose) -> None:
    fake(device="cpu")
    wanted = plain(lambda: batch(paths[:2], 6))

    def run(count: int) -> None:
        pinned = [batch(paths[:2], 6).pin_memory() for _ in range(3)]
        for number in range(count):
            pinned.append(batch(paths[:2], 6).pin_memory())
            images = pinned.pop(0)
            if number % 5:
                images = images.to("cpu")
                assert number % 100 != 1 or torch.equal(images, wanted)

    run(20)
    eventually(lambda: counts() == (0, 0))
    gc.collect()
    gc.disable()  # what goes must go without its help
    try:
        before, threads = len(gc.get_objects()), outside_pools()
        run(1000)
        eventually(lambda: counts() == (0, 0))
        Fake.runs.clear()
        eventually(lambda: len(gc.get_objects()) - before < 200)
        assert outside_pools() <= threads
    finally:
        gc.enable()
