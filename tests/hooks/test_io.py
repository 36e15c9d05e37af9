"""torchvision.io's readers give lazy tensors with exactly torchvision's values."""

import warnings
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torchvision import io, tv_tensors
from torchvision.io import ImageReadMode
from torchvision.transforms import v2

import accel
from tests.support import helpers
from tests.support.helpers import Named, assert_same, attempt, is_lazy, jpeg, outcome, picture

pytestmark = pytest.mark.filterwarnings("ignore:The image decoding:DeprecationWarning")

ADOBE_RGB = Named("rgb-jpeg", jpeg(70, 60, keep_rgb=True))
CLAIMED = (*helpers.pictures(), ADOBE_RGB)
MODES: list[Any] = [ImageReadMode.UNCHANGED, ImageReadMode.RGB, "rgb", "unchanged"]


def stream(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def saved(kind: str, mode: str = "RGB", **options: Any) -> bytes:
    file = BytesIO()
    picture(60, 41, mode).save(file, kind, **options)
    return file.getvalue()


def compare(function: Callable[[], Any]) -> Any:
    """The same with and without accel, exceptions included; accel's result."""
    expected = attempt(function)
    with accel.image_backend("cpu"):
        found = attempt(function)
    lazy = helpers.outcome(lambda: is_lazy(found)) is True
    assert_same(found, expected)
    return lazy


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("file", CLAIMED, ids=repr)
def test_claimed_files_are_lazy_and_equal(file: Named, mode: Any, tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"
    path.write_bytes(file.data)
    assert compare(lambda: io.decode_jpeg(stream(file.data), mode))
    assert compare(lambda: io.decode_image(stream(file.data), mode))
    assert compare(lambda: io.decode_image(path, mode))  # type: ignore[arg-type]
    assert compare(lambda: io.read_image(str(path), mode=mode))


def test_early_bound_names_and_keywords() -> None:
    data = jpeg(50, 40)
    assert compare(lambda: io.image.decode_jpeg(input=stream(data), device="cpu", mode="RGB"))
    assert compare(lambda: io.decode_image(input=stream(data), apply_exif_orientation=False))


def test_grey_is_lazy_only_where_it_is_pillows() -> None:
    assert compare(lambda: io.decode_jpeg(stream(jpeg(50, 40, "L")), "GRAY"))
    assert not compare(lambda: io.decode_jpeg(stream(jpeg(50, 40)), "GRAY"))
    pillows = torch.from_numpy(np.array(Named("", jpeg(50, 40)).open().convert("L")))
    assert not torch.equal(io.decode_jpeg(stream(jpeg(50, 40)), "GRAY")[0], pillows)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation(orientation: int) -> None:
    data = jpeg(50, 40, exif=helpers.exif(orientation))
    compare(lambda: io.decode_image(stream(data), apply_exif_orientation=True))
    assert compare(lambda: io.decode_image(stream(data)))
    assert compare(lambda: io.decode_image(stream(jpeg(50, 40)), apply_exif_orientation=True))


OTHER = {
    "png": saved("PNG"),
    "png-alpha": saved("PNG", "RGBA"),
    "gif": saved("GIF"),
    "webp": saved("WEBP"),
    "bmp": saved("BMP"),
    "cmyk": saved("JPEG", "CMYK"),
    "cut": jpeg(60, 50)[:900],
    "no-end": jpeg(60, 50)[:-2],
    "progressive-cut": jpeg(60, 50, progressive=True)[:900],
    "text": b"not a picture",
    "empty": b"",
    "start": b"\xff\xd8\xff",
}


@pytest.mark.parametrize("mode", ["UNCHANGED", "RGB", "GRAY", "RGB_ALPHA", "GRAY_ALPHA", "CMYK"])
@pytest.mark.parametrize("data", OTHER.values(), ids=OTHER)
@pytest.mark.filterwarnings("ignore:The given buffer")
def test_all_else_is_torchvisions(data: bytes, mode: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    content = stream(data) if data else torch.empty(0, dtype=torch.uint8)
    assert not compare(lambda: io.decode_image(content, mode))
    assert not compare(lambda: io.decode_jpeg(content, mode))
    assert not compare(lambda: io.read_image(str(path), mode))  # type: ignore[arg-type]


def test_what_is_torchvisions_is_counted_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(OTHER["png"])
    before = sum(accel.stats()["fallbacks"].values())
    with accel.image_backend("cpu"):
        io.read_image(str(tmp_path / "file"))
    assert sum(accel.stats()["fallbacks"].values()) == before + 1


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: io.read_image("/no/such/file.jpg"),
        lambda: io.decode_image("/no/such/file.jpg"),
        lambda: io.decode_image(torch.zeros(3, 3, dtype=torch.uint8)),
        lambda: io.decode_jpeg(torch.zeros(9)),
        lambda: io.decode_jpeg([]),
        lambda: io.decode_jpeg(["file"]),
        lambda: io.decode_jpeg(None),
        lambda: io.decode_jpeg(stream(jpeg(20, 20)), mode="no such mode"),
        lambda: io.decode_image(stream(jpeg(20, 20)), mode=None),
    ],
)
def test_wrong_arguments_raise_what_torchvision_raises(wrong: Callable[[], Any]) -> None:
    assert isinstance(attempt(wrong), tuple)
    compare(wrong)


def test_lists() -> None:
    streams = [stream(jpeg(50, 40)), stream(jpeg(31, 20, "L"))]
    helpers.assert_equal_runs(lambda: io.decode_jpeg(streams), lazy=True)


@pytest.mark.skipif(not hasattr(io.image, "_warn_deprecated"), reason="not deprecated in this version")
@pytest.mark.filterwarnings("always:The image decoding:DeprecationWarning")
def test_the_deprecation_warning_is_given(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(jpeg(50, 40))
    with accel.image_backend("cpu"):
        for read in (
            lambda: io.read_image(str(tmp_path / "photo.jpg")),
            lambda: io.decode_image(stream(jpeg(50, 40))),
            lambda: io.decode_jpeg(stream(jpeg(50, 40))),
        ):
            with warnings.catch_warnings(record=True) as given:
                warnings.simplefilter("always")
                assert is_lazy(read())
            assert [warning.category for warning in given] == [DeprecationWarning]


def test_a_change_of_the_stream_after_recording_is_not_seen() -> None:
    data = stream(jpeg(50, 40))
    expected = io.decode_jpeg(data)
    with accel.image_backend("cpu"):
        lazy = io.decode_jpeg(data)
        data.zero_()
    assert_same(lazy, expected)


def broken_inside() -> bytes:
    """A file with its end marker, whose scan stops in the middle."""
    data = jpeg(64, 48)
    return data[: len(data) * 2 // 3] + b"\xff\xd9"


def test_torchvision_judges_what_accel_declines() -> None:
    data = broken_inside()
    expected = outcome(lambda: io.decode_jpeg(stream(data)))
    with accel.image_backend("cpu"):
        lazy = io.decode_jpeg(stream(data))
        assert is_lazy(lazy)
        found = outcome(lambda: lazy + 0)
    if isinstance(expected, type):
        assert found is accel.DecodeError
    else:
        assert_same(found, expected + 0)


def test_undecodable_files_raise_a_decode_error_that_names_them(tmp_path: Path) -> None:
    path = tmp_path / "broken.jpg"
    path.write_bytes(helpers.undecodable())
    with pytest.raises(RuntimeError, match=r"uantization"):
        io.read_image(str(path))
    with accel.image_backend("cpu"):
        lazy = io.read_image(str(path))
        with pytest.raises(accel.DecodeError, match=r"broken\.jpg.*uantization"):
            lazy.sum()


def test_replaced_by_black() -> None:
    with accel.image_backend("cpu", on_error="replace"):
        for data in (helpers.undecodable(64, 48), jpeg(64, 48)[:900]):
            lazy = io.decode_image(stream(data))
            assert lazy.shape == (3, 48, 64)
            assert not lazy.any()


PIPELINES = {
    "train": [v2.RandomResizedCrop(40), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True)],
    "eval": [v2.Resize(50), v2.CenterCrop(40), v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5], [0.2])],
    "image": [v2.ToImage(), v2.RandomCrop(33, padding=3, pad_if_needed=True), v2.ToDtype(torch.float32, scale=True)],
}


@pytest.mark.parametrize("steps", PIPELINES.values(), ids=PIPELINES)
def test_v2_pipelines_stay_lazy(steps: list[Any]) -> None:
    pipeline = v2.Compose(steps)

    def sample() -> Any:
        made = pipeline(io.decode_image(stream(jpeg(121, 90)), mode="RGB"))
        return made, isinstance(made, tv_tensors.Image)

    for seed in range(5):
        helpers.assert_equal_runs(sample, seed, lazy=True)


def test_accel_steps_aside() -> None:
    with accel.image_backend("cpu"), accel.image_backend("torchvision"):
        assert type(io.decode_image(stream(jpeg(50, 40)))) is torch.Tensor
