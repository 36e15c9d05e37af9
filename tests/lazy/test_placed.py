"""Values of lazy images in other places: random moves of values, against torch's own on the same values."""

import random
from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms.v2 import functional as F

import accel
from accel.backend import HostBackend
from accel.backends.cpu import placing
from accel.lazy.placed import PlacedTensor, recording
from accel.lazy.tensor_base import LazyTensorBase, pending_state
from accel.planning.places import CHANNEL, COLUMN, REPEATED, ROW, Digit, Place
from accel.runtime.parallel import ParallelFor
from tests.support import helpers

Move = Callable[[torch.Tensor], torch.Tensor]
MEAN, STD = [120.0, 110.0, 100.0], [60.0, 50.0, 70.0]


def image(height: int, width: int, mode: str = "RGB", seed: int = 0, floats: bool = True) -> torch.Tensor:
    picture = Image.open(BytesIO(helpers.jpeg(60, 50, mode, seed=seed)))
    tensor = F.resize(F.pil_to_tensor(picture).contiguous(), [height, width])
    if not floats:
        return tensor
    values = tensor.to(torch.float32)
    return F.normalize(values, MEAN[: len(values)], STD[: len(values)])


def patches(size: int, merge: int, copies: int) -> Move:
    def move(values: torch.Tensor) -> torch.Tensor:
        channels, height, width = values.shape
        rows, columns = height // size, width // size
        split = values.reshape(1, channels, rows // merge, merge, size, columns // merge, merge, size)
        ordered = split.permute(0, 2, 5, 3, 6, 1, 4, 7).unsqueeze(6)
        spread = ordered.expand(-1, -1, -1, -1, -1, -1, copies, -1, -1)
        return spread.reshape(1, rows * columns, channels * copies * size * size)[0]

    return move


def tiles(size: int) -> Move:
    def move(values: torch.Tensor) -> torch.Tensor:
        split = values.unsqueeze(0).unfold(2, size, size).unfold(3, size, size).contiguous()
        return split.view(1, len(values), -1, size, size).permute(0, 2, 1, 3, 4)[0]

    return move


def cut(values: torch.Tensor) -> torch.Tensor:
    _, height, width = values.shape
    corners = [values[..., top : top + 14, left : left + 14] for top in (0, height - 14) for left in (3, width - 14)]
    return torch.stack(corners, 1).transpose(0, 1)


MOVES: dict[str, Move] = {
    "patches": patches(7, 2, 2),
    "patches, one copy": patches(14, 1, 1),
    "tiles": tiles(14),
    "cut": cut,
    "padded": lambda values: torch.nn.functional.pad(values, [1, 2, 3, 4], value=0.5),
    "padded beyond the image": lambda values: torch.nn.functional.pad(values.unsqueeze(0), [0, 0, 0, 0, 0, 1, 0, 2]),
    "interleaved": lambda values: values.permute(1, 2, 0).contiguous(),
    "in one axis": lambda values: values.flatten(),
    "one row": lambda values: values[:, 5, :].unsqueeze(1).contiguous(),
    "one channel": lambda values: values[1:2, 4:20].movedim(0, 2).contiguous(),
}


@pytest.mark.parametrize("floats", [True, False])
@pytest.mark.parametrize("move", MOVES)
def test_moves(move: str, floats: bool) -> None:
    expected = MOVES[move](image(28, 42, floats=floats))
    with accel.image_backend("cpu"), recording():
        made = MOVES[move](image(28, 42, floats=floats))
        assert isinstance(made, LazyTensorBase)
        assert pending_state(made) is not None
        assert (made.shape, made.dtype, made.stride()) == (expected.shape, expected.dtype, expected.stride())
        helpers.assert_same(made, expected)


@pytest.mark.parametrize("seed", range(30))
def test_random_moves(seed: int) -> None:
    """A random walk of moves: wherever it becomes values, these are torch's."""

    def run() -> list[torch.Tensor]:
        rng, values = random.Random(seed), image(12, 24, seed=seed % 3)
        walk = [values]
        for _ in range(6):
            values = _step(rng, values)
            walk.append(values)
        return walk[rng.randrange(len(walk)) :]

    expected = run()
    with accel.image_backend("cpu"), recording():
        helpers.assert_same(run(), expected)


def _step(rng: random.Random, values: torch.Tensor) -> torch.Tensor:
    shape, kind = list(values.shape), rng.randrange(8)
    axis = rng.randrange(values.ndim)
    if kind == 0:
        return values.permute(*rng.sample(range(values.ndim), values.ndim))
    if kind == 1 and values.ndim < 6:
        return values.unsqueeze(axis)
    if kind == 2:
        half = [size // 2 if at == axis and size % 2 == 0 else size for at, size in enumerate(shape)]
        return values.reshape(*half[:axis], *([2] if half != shape else []), *half[axis:])
    if kind == 3:
        return values.reshape(-1, *shape[2:]) if values.ndim > 1 else values
    if kind == 4:
        start = rng.randrange(shape[axis])
        return values[(slice(None),) * axis + (slice(start, start + 1 + rng.randrange(shape[axis])),)]
    if kind == 5 and values.ndim > 2:
        return values[(slice(None),) * axis + (rng.randrange(shape[axis]),)]
    if kind == 6:
        return torch.cat([values, values.contiguous()], axis) if values.numel() < 20_000 else values
    return torch.nn.functional.pad(values, [0, rng.randrange(2)])


def test_images_of_several_sizes_in_one() -> None:
    def run() -> torch.Tensor:
        return torch.cat([patches(7, 2, 2)(image(14 * n, 28, seed=n)) for n in range(1, 5)])

    expected = run()
    with accel.image_backend("cpu"), recording():
        made = run()
        assert type(made) is PlacedTensor
        assert "4 parts of which come from images" in accel.explain(made)
        half = made.half()
        assert type(half) is PlacedTensor
        helpers.assert_same(half, expected.half())
        helpers.assert_same(made, expected)


def test_put_in_zeros() -> None:
    def run() -> torch.Tensor:
        whole = torch.zeros(2, 2, 3, 16, 20)
        for i, j in ((0, 0), (1, 1), (1, 0)):
            whole[i, j, :, : 14 + i] = image(14 + i, 20, seed=j)
        return whole

    expected = run()
    with accel.image_backend("cpu"), recording(zeros=True):
        made = run()
        assert type(made) is PlacedTensor
        helpers.assert_same(made, expected)
        twice = run()
        twice[0, 0] = 7.0  # over what is there
        assert torch.equal(twice[0, 0], torch.full((3, 16, 20), 7.0))
        assert torch.equal(twice[1], expected[1])
        assert torch.equal(torch.zeros(2, 2, 3, 4, 5), torch.zeros(240).view(2, 2, 3, 4, 5))


def part_of(values: torch.Tensor) -> torch.Tensor:
    return torch.cat([values, values[:, :, :5]], 2)


OTHER_PUTS: dict[str, Callable[[], torch.Tensor]] = {
    "every second": lambda: put(torch.zeros(1, 3, 16, 24), (0, ..., slice(None, None, 2)), image(16, 12)),
    "over images that were joined": lambda: put(part_of(image(8, 12)), 0, part_of(image(8, 12, seed=1))[0]),
    "over an image that was padded": lambda: put(
        torch.nn.functional.pad(image(8, 12), [1, 1, 1, 1]), (..., slice(0, 8), slice(0, 12)), image(8, 12, seed=1)
    ),
}


def put(values: torch.Tensor, index: Any, value: torch.Tensor) -> torch.Tensor:
    values[index] = value
    return values


@pytest.mark.parametrize("name", OTHER_PUTS)
def test_other_puts(name: str) -> None:
    expected = OTHER_PUTS[name]()
    with accel.image_backend("cpu"), recording(zeros=True):
        helpers.assert_same(OTHER_PUTS[name](), expected)


NAMED: dict[str, Move] = {
    "flatten": lambda values: torch.flatten(values, start_dim=1),
    "reshape": lambda values: values.reshape(shape=(3, -1)),
    "view": lambda values: values.view(size=(3, -1)),
    "view as": lambda values: values.view(dtype=torch.int32),
    "expand": lambda values: values.unsqueeze(dim=0).expand(size=(2, 3, 8, 12)),
    "cat": lambda values: torch.cat([values, values], axis=2),  # type: ignore[call-overload]
    "stack": lambda values: torch.stack([values, values], axis=0),  # type: ignore[call-overload]
    "unsqueeze": lambda values: torch.unsqueeze(values, axis=0),  # type: ignore[call-overload]
}


@pytest.mark.parametrize("name", NAMED)
def test_named_arguments(name: str) -> None:
    """In a processor and outside; torch takes NumPy's ``axis`` for ``dim``."""
    expected = NAMED[name](image(8, 12))
    with accel.image_backend("cpu"):
        helpers.assert_same(NAMED[name](image(8, 12)), expected)
        with recording():
            helpers.assert_same(NAMED[name](image(8, 12)), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_padding_is_rounded_as_values_are(dtype: torch.dtype) -> None:
    def run(floats: bool) -> torch.Tensor:
        value = 0.1 if dtype == torch.float64 else 1e6
        return torch.nn.functional.pad(image(8, 12, floats=floats), [1, 1], value=value).to(dtype)

    expected = run(True)
    with accel.image_backend("cpu"), recording():
        helpers.assert_same(run(True), expected)
        if dtype == torch.float16:
            with pytest.raises(RuntimeError, match="without overflow"):
                run(False)


def test_a_view_of_a_view_knows_where_it_begins() -> None:
    def run() -> list[int]:
        view = part_of(image(8, 12))[1:]
        return [int(each.storage_offset()) for each in (view, view[1:], view[1:, 2:])]

    expected = run()
    with accel.image_backend("cpu"), recording():
        assert run() == expected


def test_zeros_are_where_torch_makes_them() -> None:
    with accel.image_backend("cpu"), recording(zeros=True), torch.device("meta"):
        assert torch.zeros(1, 2, 3, 4).is_meta
        assert torch.zeros(2).is_meta
        assert not torch.zeros(2, device="cpu").is_meta


def test_what_cannot_be_recorded_raises_as_without() -> None:
    with accel.image_backend("cpu"), recording():
        with pytest.raises(RuntimeError, match=r"view size is not compatible"):
            image(14, 28).permute(2, 1, 0).view(-1)
        with pytest.raises(RuntimeError, match=r"invalid for input of size"):
            image(14, 28).reshape(5, 7)
        with pytest.raises(RuntimeError, match=r"Sizes of tensors must match"):
            torch.cat([image(14, 28), image(15, 27)], 1)
        assert type(image(14, 28).permute(1, 2, 0) + 1) is torch.Tensor


def test_a_view_shares_the_values() -> None:
    def run() -> tuple[torch.Tensor, ...]:
        values = image(14, 28)
        view = values.permute(1, 2, 0)
        copy = view.contiguous()
        view[3] = 9.0
        values[:, 4] = 8.0
        return values, view, copy

    expected = run()
    with accel.image_backend("cpu"), recording():
        helpers.assert_same(run(), expected)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("channels", [1, 3])
def test_kernel(channels: int, dtype: torch.dtype) -> None:
    """The compiled kernel against what a place means, and another place gives other values."""
    pixels = np.random.default_rng(channels).integers(0, 256, (23, 37, channels), np.uint8)
    table = torch.arange(256).expand(channels, 256).to(dtype)
    if dtype.is_floating_point:
        table = (table.to(dtype) - 101) / torch.tensor([57.0, 58.0, 59.0][:channels], dtype=dtype)[:, None]
    table = table.contiguous()
    digits = Digit(ROW, 5, 4, 700), Digit(COLUMN, 6, 3, 20), Digit(CHANNEL, channels, 1, 3000), Digit(COLUMN, 17, 1, 1)
    places = [Place((0, 2, 3), 11, digits), Place((0, 1, 0), 9999, (*digits, Digit(REPEATED, 2, 0, 15_000)))]
    found, meant, other = (torch.zeros(40_000, dtype=dtype) for _ in range(3))
    placing.place([(pixels, table, place) for place in places], found, ParallelFor(2, "test"))
    backend: Any = None
    HostBackend.place(backend, [(pixels, table, place) for place in places], meant)
    assert torch.equal(found, meant)
    HostBackend.place(backend, [(pixels, table, place._replace(offset=place.offset + 1)) for place in places], other)
    assert not torch.equal(found, other)
