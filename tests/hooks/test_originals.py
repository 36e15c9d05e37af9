"""Functions of torch's and torchvision's that a user has replaced are called, by whatever way images go."""

import builtins
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image
from torch.overrides import TorchFunctionMode
from torch.utils.data import DataLoader
from torchvision import transforms as T
from torchvision import tv_tensors
from torchvision.datasets import ImageFolder, folder
from torchvision.transforms import _functional_pil as F_pil
from torchvision.transforms import v2
from torchvision.transforms.v2.functional import _utils

from tests.support import helpers

_FLOAT = v2.ToDtype(torch.float32, scale=True)
PIPELINES: dict[str, Callable[[], list[Any]]] = {
    "v1": lambda: [T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.RandomCrop(20, 2), T.ToTensor()],
    "v2": lambda: [v2.RandomResizedCrop(24), v2.RandomHorizontalFlip(), v2.RandomCrop(20, 2), v2.ToImage(), _FLOAT],
    "v2 on tensors": lambda: [
        *(v2.ToImage(), v2.RandomResizedCrop(24), v2.RandomHorizontalFlip()),
        *(v2.RandomCrop(20, 2), _FLOAT, v2.Normalize((0.5,), (0.5,))),
    ],
}


class Steps:
    """Transforms, one after the other, of a user's own: none of their images is one of a composition."""

    def __init__(self, transforms: list[Any]) -> None:
        self.transforms = transforms

    def __call__(self, image: Any) -> Any:
        for transform in self.transforms:
            image = transform(image)
        return image


FORMS: dict[str, Callable[[list[Any]], Any]] = {"composed": T.Compose, "one by one": Steps}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return helpers.write_image_folder(tmp_path_factory.mktemp("originals") / "photos", 12)


def _half(original: Any) -> Any:
    return lambda *given, **more: 0.5 * original(*given, **more)


def _mirrored(original: Any) -> Any:
    def replaced(image: Any, *given: Any, **more: Any) -> Any:
        made = original(image, *given, **more)
        return made.transpose(Image.Transpose.ROTATE_180) if isinstance(made, Image.Image) else made.flip(-1)

    return replaced


def _same(original: Any) -> Any:
    return lambda *given, **more: original(*given, **more)


OF_NAMES = {
    "rand": (torch, "rand", _half),
    "rand of the same": (torch, "rand", _same),
    "randint": (torch, "randint", lambda own: lambda low, high, size: own(low, high, size=size) // 2),
    "empty": (torch, "empty", _same),
    "another of torch's": (torch, "rand", lambda own: torch.zeros),
    "resize": (T.functional, "resize", _mirrored),
    "crop": (T.functional, "crop", _mirrored),
    "hflip": (T.functional, "hflip", lambda own: lambda image: image),
    "pad": (T.functional, "pad", _mirrored),
    "Pillow's hflip": (F_pil, "hflip", lambda own: lambda image: image),
    "Pillow's crop": (F_pil, "crop", _mirrored),
    "get_dimensions": (T.functional, "get_dimensions", _same),
    "Pillow's get_dimensions": (F_pil, "get_dimensions", _same),
    "Image.open": (Image, "open", _mirrored),
}


def _epochs(dataset: Any, change: Callable[[pytest.MonkeyPatch], Any]) -> Callable[[], Any]:
    """A batch before something is replaced, two while it is, and one after it; how often it was called."""

    def run() -> Any:
        found = [next(iter(DataLoader(dataset, 6)))]
        with pytest.MonkeyPatch.context() as patch:
            calls = change(patch)
            found += list(DataLoader(dataset, 6, shuffle=True))
        return [*found, next(iter(DataLoader(dataset, 6))), calls]

    return run


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("name", OF_NAMES)
def test_a_function_that_is_replaced_is_called(name: str, pipeline: str, form: str, root: Path) -> None:
    owner, attribute, make = OF_NAMES[name]
    original = getattr(owner, attribute)

    def change(patch: pytest.MonkeyPatch) -> list[int]:
        calls = [0]
        replaced = make(original)

        def counted(*given: Any, **more: Any) -> Any:
            calls[0] += 1
            return replaced(*given, **more)

        patch.setattr(owner, attribute, replaced if replaced is torch.zeros else counted)
        return calls

    helpers.assert_equal_runs(_epochs(ImageFolder(str(root), FORMS[form](PIPELINES[pipeline]())), change))


@pytest.mark.parametrize("name", ["Image.open", "hflip", "crop", "Pillow's hflip", "Pillow's crop"])
def test_a_closure_that_was_there_before_the_switch_is_called(
    name: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, attribute, make = OF_NAMES[name]
    calls, replaced = [0], make(getattr(owner, attribute))

    def counted(*given: Any, **more: Any) -> Any:
        calls[0] += 1
        return replaced(*given, **more)

    monkeypatch.setattr(owner, attribute, counted)
    dataset = ImageFolder(str(root), T.Compose(PIPELINES["v1"]()))
    per_run = []

    def run() -> Any:
        begun = calls[0]
        found = list(DataLoader(dataset, 6))
        per_run.append(calls[0] - begun)
        return found

    helpers.assert_equal_runs(run)
    assert per_run[0] == per_run[1] > 0
    assert getattr(owner, attribute) is counted


class _Halves(TorchFunctionMode):
    """A mode in which ``torch.rand`` gives half of what it would give."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        drawn = function(*args, **(kwargs or {}))
        return 0.5 * drawn if function is torch.rand else drawn


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_a_mode_of_torch_sees_what_is_drawn(pipeline: str, form: str, root: Path) -> None:
    dataset = ImageFolder(str(root), FORMS[form](PIPELINES[pipeline]()))

    def run() -> Any:
        found = [next(iter(DataLoader(dataset, 6)))]
        with _Halves():
            found += [each for batch in DataLoader(dataset, 6) for each in batch]
        return found

    helpers.assert_equal_runs(run)


OPENING = {"Python's open": (builtins, "open"), "torchvision's open": (folder, "open"), "Image": (folder, "Image")}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", OPENING)
def test_what_opens_files_is_called_where_it_is_replaced(name: str, form: str, root: Path) -> None:
    owner, attribute = OPENING[name]
    own, another = open, min(root.rglob("*.jpg"))

    def opened(path: Any, *given: Any, **more: Any) -> Any:
        return own(another if str(path).endswith(".jpg") else path, *given, **more)

    def change(patch: pytest.MonkeyPatch) -> None:
        module = SimpleNamespace(open=lambda file: Image.open(file).convert("L"))
        patch.setattr(owner, attribute, module if attribute == "Image" else opened, raising=False)

    helpers.assert_equal_runs(_epochs(ImageFolder(str(root), FORMS[form](PIPELINES["v1"]())), change))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("pipeline", ["v2", "v2 on tensors"])
@pytest.mark.parametrize("functional", ["horizontal_flip", "resized_crop", "pad", "normalize"])
def test_a_kernel_that_is_replaced_in_the_registry_is_called(
    functional: str, pipeline: str, form: str, root: Path
) -> None:
    kernels = _utils._KERNEL_REGISTRY[getattr(v2.functional, functional)]

    def change(patch: pytest.MonkeyPatch) -> None:
        for cls in {Image.Image, torch.Tensor, tv_tensors.Image} & kernels.keys():
            patch.setitem(kernels, cls, _mirrored(kernels[cls]))

    helpers.assert_equal_runs(_epochs(ImageFolder(str(root), FORMS[form](PIPELINES[pipeline]())), change))


def test_a_kernel_that_is_exchanged_for_another_of_torchvisions(root: Path) -> None:
    flips, others = (
        _utils._KERNEL_REGISTRY[getattr(v2.functional, f"{name}_flip")] for name in ("horizontal", "vertical")
    )

    def change(patch: pytest.MonkeyPatch) -> None:
        for cls in (Image.Image, torch.Tensor, tv_tensors.Image):
            patch.setitem(flips, cls, others[cls])

    for make in PIPELINES["v2"], PIPELINES["v2 on tensors"]:
        helpers.assert_equal_runs(_epochs(ImageFolder(str(root), v2.Compose(make())), change))
