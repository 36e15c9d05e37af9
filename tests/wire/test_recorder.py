"""accel.ray.Recorder without Ray: what it draws, what it sends, and what it leaves behind."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms as T

import accel
from accel import ray, wire
from tests.support import helpers
from tests.support.damage import BROKEN
from tests.support.exact import TRAIN
from tests.support.helpers import MEAN, STD

RandomErased = T.Compose([TRAIN, T.RandomErasing(1.0)])


def columns(paths: list[str]) -> dict[str, Any]:
    rows = {"bytes": np.empty(len(paths), object), "path": np.array(paths), "label": np.arange(len(paths))}
    rows["bytes"][:] = [Path(path).read_bytes() for path in paths]
    return rows


def recorded(rows: dict[str, Any], transform: Any = TRAIN, **options: Any) -> Any:
    """The batch of rows that were recorded."""
    options = {"seed": 5, "epoch": 0, "key": "path", **options}
    with accel.image_backend("cpu", threads=1):
        batch = wire.collate(ray.Recorder(transform, **options)(rows))
    return batch["image"].add(0), batch["label"].tolist()


def expected(paths: list[str], seed: int = 5, epoch: int = 0, transform: Any = TRAIN) -> torch.Tensor:
    """torchvision's images, each drawn from its own key."""
    images = []
    for path in paths:
        ray.draw_from(seed, epoch, (path,))
        images.append(transform(Image.open(path).convert("RGB")))
    return torch.stack(images)


def test_values_are_torchvisions(paths: list[str]) -> None:
    for send in ("recipes", "auto"):
        images, labels = recorded(columns(paths), RandomErased, send=send)
        assert torch.equal(images, expected(paths, transform=RandomErased))
        assert labels == [*range(len(paths))]


def test_random_numbers_depend_on_seed_epoch_and_key_alone(paths: list[str]) -> None:
    """Not on the batch, nor on its order."""
    images, _ = recorded(columns(paths))
    again = torch.cat([recorded(columns([path]))[0] for path in reversed(paths)])
    assert torch.equal(again.flip(0), images)
    for options in ({"seed": 6}, {"epoch": 1}):
        others, _ = recorded(columns(paths), **options)
        assert not any(torch.equal(one, other) for one, other in zip(others, images, strict=True))


def test_equal_keys_draw_the_same_and_are_counted(paths: list[str]) -> None:
    rows = columns([paths[0], paths[0]])
    (one, other), _ = recorded(rows)
    assert torch.equal(one, other)
    assert any("equal keys" in reason for reason in accel.stats()["fallbacks"])
    with accel.image_backend("cpu", threads=1):
        one, other = wire.collate(ray.Recorder(TRAIN, seed=5, epoch=0, key=("path", "label"))(rows))["image"]
    assert not torch.equal(one, other)


def test_generators_are_left_as_they_were(paths: list[str]) -> None:
    helpers.seed_everything(9)
    before = helpers.random_states()
    recorded(columns(paths[:3]), RandomErased)
    assert helpers.random_states() == before

    def failing(image: Any) -> Any:
        torch.rand(3)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        recorded(columns(paths[:3]), failing)
    assert helpers.random_states() == before


def test_pixels_in_place_of_files(paths: list[str]) -> None:
    """As ``ray.data.read_images`` gives them."""
    rows = columns(paths[:2])
    rows["image"] = [np.asarray(Image.open(path).convert("RGB")) for path in paths[:2]]
    images, _ = recorded({name: rows[name] for name in ("image", "path", "label")}, image="image")
    assert torch.equal(images, expected(paths[:2]))


def test_the_epoch_is_rays(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    context = SimpleNamespace(_execution_idx=3)
    monkeypatch.setattr(ray, "_data", SimpleNamespace(DataContext=SimpleNamespace(get_current=lambda: context)))
    images, _ = recorded(columns(paths[:2]), epoch=None)
    assert torch.equal(images, expected(paths[:2], epoch=3))
    del context._execution_idx
    with pytest.raises(RuntimeError, match="give Recorder an epoch"):
        recorded(columns(paths[:2]), epoch=None)


@pytest.mark.parametrize("damage", ["text", "half", "no-tables"])
def test_a_row_that_cannot_be_read(paths: list[str], damage: str) -> None:
    """It is named, wherever it shows; or it is black, and the others and all labels are as they were."""
    rows = columns(paths[:3])
    rows["bytes"][1] = BROKEN[damage]
    with accel.image_backend("cpu", threads=1), pytest.raises(OSError) as raised:
        wire.collate(ray.Recorder(TRAIN, seed=5, epoch=0, key="path", send="recipes")(rows))["image"].add(0)
    noted = getattr(raised.value, "__notes__", [])
    assert any(paths[1] in note for note in noted) or "image 1 of a batch of 3" in str(raised.value)
    with accel.image_backend("cpu", on_error="replace", threads=1):
        batch = wire.collate(ray.Recorder(TRAIN, seed=5, epoch=0, key="path")(rows))
        black = (torch.zeros(3) - torch.tensor(MEAN)) / torch.tensor(STD)
        assert torch.allclose(batch["image"][1], black[:, None, None].expand(3, 64, 64))
    assert torch.equal(batch["image"][::2], expected(paths[:3])[::2])
    assert batch["label"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("options", [{}, {"key": ()}, {"key": (1,)}, {"key": "path", "epoch": "1"}])
def test_wrong_arguments(options: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        ray.Recorder(TRAIN, seed=0, **options)


def test_wrong_columns(paths: list[str]) -> None:
    rows = columns(paths[:2])
    with pytest.raises(ValueError, match="a column is named 'image'"):
        recorded({**rows, "image": np.arange(2)})
    with pytest.raises(ValueError, match="key column"):
        recorded({**rows, "path": np.ones((2, 2))})
    with pytest.raises(KeyError, match="bytes") as raised:
        recorded({"path": rows["path"]})
    assert not getattr(raised.value, "__notes__", None)
    with pytest.raises(ValueError, match="send must be"):
        ray.Recorder(TRAIN, seed=0, key="path", send="smaller")  # type: ignore[arg-type]


def test_keys_and_seeds_are_numbers_of_any_type(paths: list[str]) -> None:
    rows = columns(paths[:2])
    seen = [np.arange(2), np.array([*np.arange(2)], object), [np.int32(0), 1]]
    images = [recorded({**rows, "n": each}, key="n", seed=seed)[0] for each in seen for seed in (5, np.int64(5))]
    assert all(torch.equal(each, images[0]) for each in images)


def test_the_rows_are_bytes(paths: list[str]) -> None:
    rows = ray.Recorder(T.Compose([T.Resize(30), T.ToTensor(), T.Normalize(MEAN, STD)]), seed=0, epoch=0, key="path")(
        columns(paths[:3])
    )
    assert {*map(type, rows[ray.MESSAGE])} == {bytes}
    for path, each in zip(paths, rows[ray.MESSAGE], strict=False):
        with Image.open(path) as image:
            result = 3 * 30 * 30 * max(image.size) // min(image.size)
        assert len(each) <= min(Path(path).stat().st_size, result) + 2048
    assert not any(b"path" in each or paths[0].encode() in each for each in rows[ray.MESSAGE])
