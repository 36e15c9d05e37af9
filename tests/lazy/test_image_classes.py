"""An image's class, as other people's code asks for it, and once the image has gone elsewhere."""

import copy
import io
import pickle
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from PIL.JpegImagePlugin import JpegImageFile, get_sampling
from PIL.PngImagePlugin import PngImageFile
from torch.utils.data import DataLoader
from torchvision import tv_tensors
from torchvision.transforms import functional as F
from torchvision.transforms import v2

import accel
from tests.support import helpers


class Own(Image.Image):
    """A user's own class of images, as fastai has one."""


def picture() -> Image.Image:
    return Image.open(io.BytesIO(helpers.jpeg(60, 50)))


def png() -> Image.Image:
    stream = io.BytesIO()
    helpers.picture(60, 50).save(stream, "PNG")
    return Image.open(stream)


def own() -> Image.Image:
    image = helpers.picture(60, 50)
    image.__class__ = Own  # type: ignore[assignment]
    return image


OLD: dict[str, Callable[[], Any]] = {
    "plain": lambda: helpers.picture(60, 50),
    "own": own,
    "made of own": lambda: own().crop((0, 0, 50, 50)),
    "opened": picture,
    "loaded": lambda: picture().convert("L"),
    "png": png,
    "lazy": lambda: F.hflip(picture()),
    "no image": lambda: 3,
}
NEW: dict[str, Callable[[], Any]] = {
    "opened": picture,
    "converted": lambda: picture().convert("RGB"),
    "begun": lambda: F.pad(helpers.picture(60, 50), [2]),
    "of own": lambda: F.resize(own().crop((0, 0, 50, 50)), [20, 20]),
    "crop of own": lambda: F.crop(own(), 0, 0, 20, 20),
    "of a tensor": lambda: F.to_pil_image(F.to_tensor(picture())),
}


@pytest.mark.parametrize("old", OLD)
@pytest.mark.parametrize("new", NEW)
def test_instances_and_subclasses_of_its_class(old: str, new: str) -> None:
    def facts() -> Any:
        one, other = OLD[old](), NEW[new]()
        return isinstance(one, type(other)), issubclass(type(one), type(other))

    helpers.assert_equal_runs(facts)


def test_pillows_own_classes_know_nothing_of_it() -> None:
    with accel.image_backend("cpu"):
        assert not isinstance(helpers.picture(9, 9), JpegImageFile)
        assert not issubclass(PngImageFile, JpegImageFile)
        assert not isinstance(png(), JpegImageFile)
        assert isinstance(picture(), JpegImageFile)


def test_whether_an_image_is_accels() -> None:
    with accel.image_backend("cpu"):
        for make in (picture, lambda: picture().convert("RGB"), lambda: F.pad(helpers.picture(9, 9), [2])):
            assert isinstance(make(), accel.LazyImage)
        for make in (own, png, lambda: helpers.picture(9, 9)):
            assert not isinstance(make(), accel.LazyImage)


@pytest.mark.parametrize(
    "transform",
    [
        lambda image: F.resize(F.pad(image.crop((3, 3, 60, 50)), [4], padding_mode="reflect"), [20, 20]),
        lambda image: F.center_crop(image, [30, 70]),
        lambda image: F.hflip(image.resize((20, 10))),
        lambda image: F.to_grayscale(F.crop(image, 1, 1, 20, 30)),
    ],
    ids=["resize", "center_crop", "hflip", "grey"],
)
def test_the_class_given_back(transform: Callable[[Any], Any]) -> None:
    """As fastai's ``retain_type`` does it for what comes out of a transform."""

    def made() -> Any:
        old = own()
        new = transform(old)
        if isinstance(old, type(new)):
            new.__class__ = type(old)
        return type(new).__name__, new.size, np.asarray(new).tolist()

    lazy = helpers.assert_equal_runs(made)
    assert lazy[0] == "Own"


MADE: dict[str, Callable[[], Image.Image]] = {
    "opened": picture,
    "cropped": lambda: F.hflip(picture().crop((1, 2, 30, 40))),
    "grey": lambda: picture().convert("L"),
    "begun": lambda: F.pad(helpers.picture(60, 50), [2]),
    "of a tensor": lambda: F.to_pil_image(F.to_tensor(picture())),
}


def test_what_is_pickled_needs_no_accel(tmp_path: Any) -> None:
    with accel.image_backend("cpu"):
        images = [make() for make in MADE.values()]
        assert all(image.recipe is not None for image in images)  # type: ignore[attr-defined]
        (tmp_path / "pickle").write_bytes(pickle.dumps(images))
        torch.save([make() for make in MADE.values()], tmp_path / "torch")
        tensor = F.to_tensor(picture())
        torch.save([tensor, torch.stack([tensor, tensor])], tmp_path / "tensors")
        used = [image for image in [make() for make in MADE.values()] if image.getpixel((0, 0)) is not None]
        (tmp_path / "used").write_bytes(pickle.dumps(used))
    helpers.python(
        """if True:
        import pickle, sys, torch
        sys.modules["accel"] = None
        with open(f"{sys.argv[1]}/pickle", "rb") as file:
            images = pickle.load(file)
        with open(f"{sys.argv[1]}/used", "rb") as file:
            images += pickle.load(file)
        again = torch.load(f"{sys.argv[1]}/torch", weights_only=False)
        for number, (one, other) in enumerate(zip(images, again * 2, strict=True)):
            assert type(one) is type(other) and type(one).__name__ == ("Image" if number % 5 else "JpegImageFile"), one
            assert one.size == other.size and one.tobytes() == other.tobytes()
        assert len(torch.load(f"{sys.argv[1]}/tensors")) == 2
        """,
        str(tmp_path),
    )


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("name", MADE)
def test_what_is_pickled_is_pillows(name: str, used: bool) -> None:
    def facts() -> Any:
        image = MADE[name]()
        assert not used or image.getpixel((0, 0)) is not None
        again = pickle.loads(pickle.dumps(image))
        return type(again), again.mode, again.info, getattr(again, "layer", None), again.tobytes()

    helpers.assert_equal_runs(facts)


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("way", ["sent", "deepcopy"])
def test_what_stays_here_is_lazy(name: str, way: str) -> None:
    """To other processes of the same program, as a DataLoader's, and as a copy."""
    with accel.image_backend("cpu"):
        image: Any = MADE[name]()
        again = pickle.loads(ForkingPickler.dumps(image)) if way == "sent" else copy.deepcopy(image)
        assert type(again) is type(image)
        assert image.recipe is not None
        assert again.recipe is not None
        again.info["mine"] = 1
        assert "mine" not in image.info
        assert again.tobytes() == image.tobytes()


@pytest.mark.parametrize("way", ["deepcopy", "sent"])
def test_a_copy_is_loaded_and_has_what_pillow_pickles(way: str) -> None:
    names = ("quantization", "bits", "app", "icclist", "fp", "tile", "layers", "layer", "decoderconfig", "format")

    def facts() -> Any:
        image = picture()
        again: Any = pickle.loads(ForkingPickler.dumps(image)) if way == "sent" else copy.deepcopy(image)
        drafted = again.draft("L", (9, 9))
        loaded = way == "sent" or image.draft("L", (9, 9)) is None
        has = [helpers.outcome(getattr, again, name) for name in names]
        return drafted, loaded, again.mode, again.size, has, again.info, again.tobytes()

    helpers.assert_equal_runs(facts)


def test_copied_with_its_pixels() -> None:
    def facts() -> Any:
        image = picture()
        image.putpixel((0, 0), (1, 2, 3))
        again, twice = copy.deepcopy([image, image]), copy.deepcopy(image.copy())
        again[0].info["mine"] = 1
        assert again[0] is again[1]
        return type(again[0]), image.info, type(twice), again[0].tobytes(), twice.tobytes()

    helpers.assert_equal_runs(facts)


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.sweep)])
def test_images_from_workers(paths: list[str], method: str) -> None:
    def batches() -> Any:
        loader = DataLoader(
            helpers.Files(paths, F.hflip), 4, collate_fn=list, num_workers=1, multiprocessing_context=method
        )
        return [image for batch in loader for image, _ in batch]

    helpers.assert_equal_runs(batches, lazy=True)


def test_a_damaged_picture_is_told_when_it_is_pickled() -> None:
    with accel.image_backend("cpu"):
        image = Image.open(io.BytesIO(helpers.undecodable()))
        with pytest.raises(accel.DecodeError):
            pickle.dumps(image)
        ForkingPickler.dumps(image)


# -- the class of JPEG files -----------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A JPEG file with an EXIF orientation and colour that is not halved."""
    exif = Image.Exif()
    exif[0x0112] = 6
    content = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8)
    Image.fromarray(pixels).save(content, "JPEG", quality=91, subsampling=0, exif=exif, comment="a", dpi=(72, 72))
    file = tmp_path / "picture.jpg"
    file.write_bytes(content.getvalue())
    return file


def saved(image: Image.Image, **options: Any) -> bytes:
    content = io.BytesIO()
    image.save(content, "JPEG", **options)
    return content.getvalue()


OF_A_FILE: dict[str, Callable[[Image.Image], Image.Image]] = {
    "open": lambda image: image,
    "copy": lambda image: image.copy(),
    "convert": lambda image: image.convert("L"),
    "convert to the same": lambda image: image.convert("RGB"),
    "crop": lambda image: image.crop((1, 2, 30, 30)),
    "crop nothing": lambda image: image.crop(),
    "resize": lambda image: image.resize((20, 10)),
    "transpose": lambda image: image.transpose(Image.Transpose.ROTATE_90),
    "rotate": lambda image: image.rotate(10),
    "exif_transpose": lambda image: ImageOps.exif_transpose(image),
    "hflip": lambda image: F.hflip(image),
    "pad": lambda image: F.pad(image, [1]),
}


@pytest.mark.parametrize("name", OF_A_FILE)
def test_only_what_was_opened_is_a_file(path: Path, name: str) -> None:
    def facts() -> Any:
        image = OF_A_FILE[name](Image.open(path))
        return (
            isinstance(image, JpegImageFile),
            (image.format, image.format_description, getattr(image, "filename", None)),
            (hasattr(image, "layers"), hasattr(image, "quantization"), get_sampling(image)),
            (image.info, dict(image.getexif())),
            np.asarray(image).tolist(),
        )

    helpers.assert_equal_runs(facts)


@pytest.mark.parametrize(
    "options", [{"quality": "keep"}, {"subsampling": "keep"}, {"qtables": "keep"}, {"quality": 80}], ids=str
)
def test_saved_as_it_was(path: Path, options: dict[str, Any]) -> None:
    lazy = helpers.assert_equal_runs(lambda: saved(Image.open(path), **options))
    assert lazy != saved(Image.fromarray(np.asarray(Image.open(path))))  # it would be seen if nothing were kept


def test_equality_is_pillows(path: Path) -> None:
    def facts() -> list[bool]:
        one, other = Image.open(path), Image.open(path)
        return [one == other, one != other, one == one.copy(), one.copy() == one, one.copy() == other.copy()]

    assert helpers.assert_equal_runs(facts) == [True, False, False, False, True]


@pytest.mark.parametrize("name", OF_A_FILE)
def test_another_class(path: Path, name: str) -> None:
    def facts() -> Any:
        image = OF_A_FILE[name](Image.open(path))
        image.load()
        image.mine = 3  # type: ignore[attr-defined]
        image.__class__ = Own  # type: ignore[assignment]
        assert type(image) is Own
        assert isinstance(image, Own)
        assert not isinstance(image, accel.LazyImage)
        attributes = vars(image).keys() - {"_im", "_exif", "map"}  # Pillow maps some files, and remembers it
        cropped = image.crop((0, 0, 9, 9))
        return sorted(attributes), image.size, image.info, type(cropped), np.asarray(image).tolist()

    helpers.assert_equal_runs(facts)


def test_a_file_of_it_is_recorded_as_others_are(path: Path) -> None:
    with accel.image_backend("cpu"):
        for transform in (v2.Resize(20), v2.ToImage(), v2.Compose([v2.RandomResizedCrop(20), v2.ToImage()])):
            made = transform(Image.open(path))
            assert isinstance(made, (accel.LazyImage, tv_tensors.Image))
            assert getattr(made, "recipe", None) is not None or hasattr(made, "lazy")


def test_fill_by_type(path: Path) -> None:
    fill = {JpegImageFile: (1, 2, 3), Image.Image: (4, 5, 6), "others": 0}

    def padded() -> Any:
        return np.asarray(v2.Pad(2, fill=fill)(Image.open(path))).tolist()

    helpers.assert_equal_runs(padded)
