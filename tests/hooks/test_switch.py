"""The switch: names, options, contexts."""

import contextvars
import shutil
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image, JpegImagePlugin
from torchvision.datasets import folder
from torchvision.transforms import functional

import accel
from accel.backend import backend_of, parse_options
from accel.cache.cache import Cache
from accel.processes import switch
from accel.recipes.options import Options, Selection
from accel.runtime.memo import cached
from tests.support import helpers, inside
from tests.support.patches import table
from tests.support.processes import in_thread, linux


def test_auto_is_a_real_backend_that_runs_here() -> None:
    accel.set_image_backend("auto")
    assert accel.get_image_backend() in accel.image_backends()
    assert accel.get_image_backend() not in ("auto", "torchvision")
    assert accel.image_backends()[accel.get_image_backend()] is None


def test_image_backends_lists_every_backend_with_its_reason() -> None:
    backends = accel.image_backends()
    assert backends["torchvision"] is None
    assert backends["cpu"] is None
    assert all(reason is None or (isinstance(reason, str) and reason) for reason in backends.values())


def test_a_missing_dependency_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    from accel.backends.cpu import backend as cpu

    monkeypatch.setattr(cpu, "find_spec", lambda name: None)
    assert "pip install numba" in str(accel.image_backends()["cpu"])
    with pytest.raises(accel.BackendUnavailable, match=r"'cpu' cannot run here: numba is missing: pip install numba"):
        accel.set_image_backend("cpu")
    with pytest.raises(accel.BackendUnavailable, match="cpu: numba is missing"):
        accel.set_image_backend("auto")
    assert accel.get_image_backend() == "torchvision"


USES: list[Callable[..., Any]] = [
    accel.set_image_backend,
    lambda *args, **options: accel.image_backend(*args, **options).__enter__(),
]


@pytest.mark.parametrize("use", USES, ids=["set", "context"])
@pytest.mark.parametrize(
    ("name", "options", "error", "text"),
    [
        ("gpu", {}, ValueError, r"unknown image backend 'gpu'; known are 'torchvision', 'auto', .*'cpu'"),
        ("gpu", {}, ValueError, r"; did you mean 'cuda'\?$"),
        ("CPU", {}, ValueError, r"unknown image backend 'CPU'.*; did you mean 'cpu'\?$"),
        ("neither", {}, ValueError, r"known are [a-z', ]*$"),
        ("", {}, ValueError, r"unknown image backend ''"),
        (None, {}, TypeError, r"must be a string, got NoneType"),
        (b"cpu", {}, TypeError, r"must be a string, got bytes"),
        ("cpu", {"thread": 2}, TypeError, r"'cpu' has no option 'thread'; it takes .*threads"),
        ("cpu", {"threads": 0}, ValueError, r"threads must be 'auto' or a positive int, got 0"),
        ("cpu", {"threads": 1.5}, ValueError, r"threads must be 'auto' or a positive int, got 1.5"),
        ("cpu", {"threads": True}, ValueError, r"threads must be 'auto' or a positive int, got True"),
        ("cpu", {"exact": 1}, TypeError, r"exact must be True or False, got 1"),
        ("cpu", {"on_error": "ignore"}, ValueError, r"on_error must be 'raise' or 'replace', got 'ignore'"),
        ("cpu", {"decode": "fast"}, ValueError, r"decode must be one of auto, .*got 'fast'"),
        ("torchvision", {"threads": 2}, TypeError, r"'torchvision' takes no options, got threads"),
        ("auto", {"nonsense": 2}, TypeError, r"has no option 'nonsense'"),
    ],
)
def test_wrong_names_and_options(use: Any, name: Any, options: Any, error: type[Exception], text: str) -> None:
    before = table()
    with pytest.raises(error, match=text):
        use(name, **options)
    assert accel.get_image_backend() == "torchvision"
    assert table() == before


def test_a_failed_switch_leaves_the_one_in_force() -> None:
    accel.set_image_backend("cpu", threads=2)
    in_force = switch.current()
    for name, options in (("gpu", {}), ("cpu", {"threads": -1}), ("cpu", {"no": 1})):
        with pytest.raises((ValueError, TypeError)):
            accel.set_image_backend(name, **options)
    assert switch.current() is in_force


@linux
@pytest.mark.parametrize("use", USES, ids=["set", "context"])
@pytest.mark.parametrize(
    ("harm", "said"),
    [
        ("no parent", r"there is no .*gone to make it in \(is a disk not mounted\?\)"),
        ("other things", "other things in it, such as photo.jpg"),
        ("entered by others", "others may enter it"),
        ("another version", "it is of version 'old', not "),
    ],
)
def test_a_cache_that_cannot_be_used_is_refused(use: Any, harm: str, said: str, tmp_path: Path) -> None:
    place = tmp_path / ("gone/cache" if harm == "no parent" else "cache")
    if harm == "another version":
        Cache.open(place, 1 << 20, version="old").close()
    elif harm != "no parent":
        place.mkdir(mode=0o700)
        (place / ("photo.jpg" if harm == "other things" else "in-use")).touch()
        place.chmod(0o755 if harm == "entered by others" else 0o700)
    accel.set_image_backend("cpu", threads=1)
    before = switch.current()
    with pytest.raises(ValueError, match=said) as error:
        use("cpu", cache=f"{place}:1GB")
    assert str(error.value).startswith(f"cache='{place}:1GB' cannot be used: ")
    assert switch.current() == before
    assert not (tmp_path / "gone").exists()
    shutil.rmtree(place, ignore_errors=True)
    place.parent.mkdir(exist_ok=True)
    use("cpu", cache=f"{place}:1GB")  # once it can be
    assert cached.of(Options(cache=f"{place}:1GB")) is not None


@linux
def test_a_process_that_is_started_later_does_without(tmp_path: Path) -> None:
    """A worker whose parent has the cache, and who comes when the folder is gone."""
    options = Options(cache=f"{tmp_path}/gone/cache:1GB")
    before = accel.stats()["fallbacks"]
    for _ in range(2):
        switch.adopt(Selection("cpu", parse_options("cpu", {"cache": None})))
        cached.enter(options)
    assert cached.of(options) is None
    [(reason, count)] = accel.stats()["fallbacks"].items() - before.items()
    assert (reason.startswith("no cache: "), count) == (True, 1)


def test_options_reach_the_backend_and_equal_ones_share_an_instance() -> None:
    with accel.image_backend("cpu", threads=3):
        first = backend_of(switch.current())
        assert first.options.threads == 3  # type: ignore[attr-defined]
    with accel.image_backend("cpu", threads=3):
        assert backend_of(switch.current()) is first
    with accel.image_backend("cpu", threads=4):
        assert backend_of(switch.current()) is not first


def test_contexts_nest_and_restore() -> None:
    accel.set_image_backend("cpu")
    with accel.image_backend("cpu", threads=1):
        inner = switch.current()
        with accel.image_backend("torchvision"):
            assert accel.get_image_backend() == "torchvision"
            with accel.image_backend("cpu", threads=2):
                assert switch.current().options.threads == 2  # type: ignore[attr-defined]
            assert accel.get_image_backend() == "torchvision"
        assert switch.current() is inner
    assert switch.current().options.threads == "auto"  # type: ignore[attr-defined]


def test_context_is_restored_after_an_exception() -> None:
    with pytest.raises(KeyError, match="mine"), accel.image_backend("cpu"):  # noqa: PT012
        assert accel.get_image_backend() == "cpu"
        raise KeyError("mine")
    assert accel.get_image_backend() == "torchvision"


def test_the_default_may_change_inside_a_context() -> None:
    with accel.image_backend("cpu", threads=1):
        accel.set_image_backend("cpu", threads=2)
        assert switch.current().options.threads == 1  # type: ignore[attr-defined]
        accel.set_image_backend("torchvision")
        assert accel.get_image_backend() == "cpu"
        assert isinstance(Image.open(BytesIO(helpers.jpeg(9, 9))), accel.LazyImage)
    assert accel.get_image_backend() == "torchvision"


def test_a_new_thread_sees_the_default_and_not_the_context() -> None:
    accel.set_image_backend("cpu")
    with accel.image_backend("torchvision"):
        assert in_thread(accel.get_image_backend) == "cpu"
    accel.set_image_backend("torchvision")
    with accel.image_backend("cpu"):
        assert in_thread(accel.get_image_backend) == "torchvision"
        kind = in_thread(lambda: type(Image.open(BytesIO(helpers.jpeg(9, 9)))))
        assert kind is JpegImagePlugin.JpegImageFile


def begun(name: str, **options: Any) -> Iterator[str]:
    with accel.image_backend(name, **options):
        yield accel.get_image_backend()
        yield accel.get_image_backend()


def test_a_block_that_another_context_leaves() -> None:
    """The generator of a loader, which a thread finishes."""
    opener = Image.OPEN["JPEG"]
    batches = begun("cpu")
    next(batches)
    assert accel.get_image_backend() == "cpu"
    assert in_thread(lambda: (list(batches), accel.get_image_backend())) == (["torchvision"], "torchvision")
    assert accel.get_image_backend() == "torchvision"
    assert Image.OPEN["JPEG"] is opener


def test_a_block_that_another_context_leaves_inside_one_of_its_own() -> None:
    batches = begun("cpu", threads=2)
    next(batches)

    def elsewhere() -> Any:
        with accel.image_backend("cpu", threads=3):
            batches.close()
            return switch.current().options.threads  # type: ignore[attr-defined]

    with accel.image_backend("cpu", threads=4):
        assert in_thread(elsewhere) == 3
        assert switch.current().options.threads == 4  # type: ignore[attr-defined]
    assert accel.get_image_backend() == "torchvision"


def test_a_block_that_is_collected() -> None:
    opener = Image.OPEN["JPEG"]
    batches = begun("cpu")
    next(batches)
    del batches
    assert accel.get_image_backend() == "torchvision"
    assert Image.OPEN["JPEG"] is opener


def test_blocks_of_generators_end_in_any_order() -> None:
    opener = Image.OPEN["JPEG"]
    first, second = begun("cpu", threads=1), begun("cpu", threads=2)
    next(first), next(second)
    first.close()
    assert switch.current().options.threads == 2  # type: ignore[attr-defined]
    second.close()
    assert accel.get_image_backend() == "torchvision"
    assert Image.OPEN["JPEG"] is opener


def test_a_block_in_a_copied_context() -> None:
    with accel.image_backend("cpu"):
        copied = contextvars.copy_context()
        assert copied.run(accel.get_image_backend) == "cpu"
    assert copied.run(accel.get_image_backend) == "torchvision"


def test_torchvision_inside_an_active_default_passes_straight_through(image_folder: Path) -> None:
    path = next(image_folder.rglob("*.jpg"))
    accel.set_image_backend("cpu")
    with accel.image_backend("torchvision"):
        with Image.open(path) as opened:
            assert type(opened) is JpegImagePlugin.JpegImageFile
            assert type(functional.to_tensor(opened)) is torch.Tensor
            assert type(functional.pad(opened, 3)) is Image.Image
        assert type(folder.default_loader(str(path))) is Image.Image
    assert isinstance(folder.default_loader(str(path)), accel.LazyImage)


def test_an_image_runs_on_the_backend_it_was_opened_under() -> None:
    data = helpers.jpeg(40, 30)
    with accel.image_backend("cpu"):
        lazy = Image.open(BytesIO(data))
    expected = functional.to_tensor(Image.open(BytesIO(data)).crop((3, 4, 30, 20)))
    with accel.image_backend("torchvision"):
        cropped = lazy.crop((3, 4, 30, 20))
        assert helpers.is_lazy(cropped)
        helpers.assert_same(functional.to_tensor(cropped), expected)
    helpers.assert_same(functional.to_tensor(lazy.crop((3, 4, 30, 20))), expected)


def test_switching_seeds_no_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the host's nor an accelerator's, though the way parameters are drawn is checked by drawing some."""
    seeded: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    tried = inside.try_draws_again(monkeypatch)
    before = helpers.random_states()
    with accel.image_backend("cpu"):
        assert tried  # it was checked
    assert not seeded
    assert helpers.random_states() == before
