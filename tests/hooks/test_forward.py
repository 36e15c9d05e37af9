"""Lazy samples through transforms of v2 without torch's pytree: what is asked, drawn and made is torchvision's."""

import random
from collections.abc import Callable
from io import BytesIO
from typing import Any

import pytest
import torch
from PIL import Image
from torchvision import tv_tensors
from torchvision.transforms import v2
from torchvision.transforms.v2._transform import _RandomApplyTransform

import accel
from accel.hooks import v2_transforms
from tests.support.helpers import assert_equal_runs, jpeg, known

ORIGINALS = (v2.Transform.forward, _RandomApplyTransform.forward, v2.Transform._needs_transform_list)


def image() -> Image.Image:
    return Image.open(BytesIO(jpeg(60, 40)))


class Telling(v2.Transform):
    """A user's own, which writes down what it is asked, and draws a number whenever it is."""

    def __init__(self, *types: Any) -> None:
        super().__init__()
        self._transformed_types = types
        self.told: list[Any] = []

    def _tell(self, question: str, leaves: list[Any]) -> Any:
        kinds = [next(kind for kind in (Image.Image, torch.Tensor, object) if isinstance(x, kind)) for x in leaves]
        self.told.append((question, torch.rand(1).item(), kinds))
        return self.told[-1][1]

    def check_inputs(self, flat_inputs: list[Any]) -> None:
        self._tell("check", flat_inputs)

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        return {"drawn": self._tell("params", flat_inputs)}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        self._tell(f"transform {params}", [inpt])
        return v2.functional.horizontal_flip(inpt)


class Every(Telling):
    """That decides by itself what it transforms."""

    def _needs_transform_list(self, flat_inputs: list[Any]) -> list[bool]:
        self._tell("needs", flat_inputs)
        return [not isinstance(leaf, int) for leaf in flat_inputs]


class Rare(_RandomApplyTransform):
    """A user's own with a probability of a type that torchvision does not check."""

    def __init__(self, p: Any) -> None:
        super().__init__(0.5)
        self.p = p

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return v2.functional.vertical_flip(inpt)


TRANSFORMS: dict[str, Callable[[], Any]] = {
    "told": lambda: Telling(torch.Tensor, Image.Image),
    "told-nothing": Telling,
    "told-tv": lambda: Telling(tv_tensors.Image),
    "told-check": lambda: Telling(v2.functional.is_pure_tensor, lambda leaf: isinstance(leaf, Image.Image)),
    "told-every": Every,
    "never": lambda: Rare(0.0),
    "half": lambda: Rare(0.5),
    "tenth": lambda: Rare(0.1),
    "always": lambda: Rare(1),
    "tensor": lambda: Rare(torch.tensor(0.4)),
    "crop": lambda: v2.RandomResizedCrop(20),
    "erase": lambda: v2.RandomErasing(0.5),
    "photometric": lambda: v2.RandomPhotometricDistort(),
    "normalize": lambda: v2.Normalize([0.5], [0.5]),
    "dtype": lambda: v2.ToDtype(torch.float32, scale=True),
    "compose": lambda: v2.Compose([v2.RandomHorizontalFlip(0.3), v2.ToImage(), v2.RandomVerticalFlip(0.3)]),
}

FORMS: dict[str, Callable[[Any], tuple[Any, ...]]] = {
    "alone": lambda lazy: (lazy,),
    "with a label": lambda lazy: (lazy, 3),
    "in a tuple": lambda lazy: ((lazy, 3),),
    "with leaves": lambda lazy: (lazy, None, "cat", 0.5, True, torch.ones(2)),
    "in a list": lambda lazy: ([lazy, 3],),
    "in a dict": lambda lazy: ({"image": lazy, "label": 3},),
    "nested": lambda lazy: ((lazy, {"label": 3}),),
    "with boxes": lambda lazy: (lazy, tv_tensors.BoundingBoxes([[1, 2, 9, 8]], format="XYXY", canvas_size=(40, 60))),
    "behind a label": lambda lazy: ((3, lazy),),
    "two": lambda lazy: ((lazy, lazy),),
    "one in a tuple": lambda lazy: ((lazy,),),
    "nothing": lambda lazy: ((),),
    "no arguments": lambda lazy: (),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", TRANSFORMS)
def test_samples(name: str, form: str) -> None:
    def several() -> Any:
        found = []
        for first in [v2.Identity(), v2.PILToTensor(), v2.ToImage()] * 4:
            transform = TRANSFORMS[name]()
            try:
                result = known(transform(*FORMS[form](first(image()))))
            except Exception as error:
                result = type(error), str(error).split(" supports inputs of type ")[0]
            found.append((result, getattr(transform, "told", None)))
        return found

    assert_equal_runs(several, 5)


def test_what_is_lazy_stays_lazy() -> None:
    transform = v2.Compose([v2.ToImage(), v2.RandomHorizontalFlip(1.0)])
    assert assert_equal_runs(lambda: transform(image(), 3), lazy=True)[1] == 3


def test_hooks_and_calls_of_subclasses() -> None:
    class Own(v2.RandomHorizontalFlip):
        def forward(self, *inputs: Any) -> Any:
            return "own", super().forward(*inputs)

    def seen() -> Any:
        calls: list[Any] = []
        flip = v2.RandomHorizontalFlip(1.0)
        flip.register_forward_pre_hook(lambda module, args: calls.append(("before", len(args))))
        flip.register_forward_hook(lambda module, args, result: v2.functional.vertical_flip(result))
        return known(flip(image())), known(Own(1.0)(image())), calls

    hooked, own, calls = assert_equal_runs(seen)
    assert calls == [("before", 1)]
    assert hooked != own[1][1]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_default_dtypes(dtype: torch.dtype) -> None:
    def flips() -> Any:
        return [known(v2.RandomHorizontalFlip(0.3)(image())) for _ in range(30)]

    torch.set_default_dtype(dtype)
    assert len(set(assert_equal_runs(flips, 1))) == 2


def test_it_is_in_use_and_taken_back() -> None:
    with accel.image_backend("cpu"):
        ours = (v2.Transform.forward, _RandomApplyTransform.forward, v2.Transform._needs_transform_list)
        assert all(new is not old for new, old in zip(ours, ORIGINALS, strict=True))
        assert v2.RandomHorizontalFlip.forward is ours[1]
        with pytest.MonkeyPatch.context() as patch:
            for name in ("tree_flatten", "tree_unflatten"):
                patch.setitem(ORIGINALS[0].__globals__, name, None)  # it would fail if it were called
            assert v2.Compose([v2.ToImage(), v2.RandomHorizontalFlip(1.0)])(image(), 3)[1] == 3
    assert (v2.Transform.forward, _RandomApplyTransform.forward, v2.Transform._needs_transform_list) == ORIGINALS


def test_another_forward_is_left_alone() -> None:
    """Each differs from torchvision's in one thing that the check at the switch has to notice."""

    def unchecked(self: Any, *inputs: Any) -> Any:
        leaves = list(inputs if len(inputs) > 1 else inputs[0] if type(inputs[0]) is tuple else inputs)
        takes = self._needs_transform_list(leaves)
        params = self.make_params([leaf for leaf, taken in zip(leaves, takes, strict=True) if taken])
        made = [self.transform(leaf, params) if taken else leaf for leaf, taken in zip(leaves, takes, strict=True)]
        return tuple(made) if len(inputs) > 1 or type(inputs[0]) is tuple else made[0]

    def asks_later(self: Any, *inputs: Any) -> Any:
        result = unchecked(self, *inputs)
        self.check_inputs(list(inputs))
        return result

    def draws_first(self: Any, *inputs: Any) -> Any:
        return inputs if torch.rand(1) >= self.p else ORIGINALS[0](self, *inputs)

    def needs_all(self: Any, flat_inputs: list[Any]) -> list[bool]:
        return [True for _ in flat_inputs]

    assert v2_transforms.forward(ORIGINALS[0], by_chance=False) is not ORIGINALS[0]
    for other in (unchecked, asks_later):
        assert v2_transforms.forward(other, by_chance=False) is other
    assert v2_transforms.forward(ORIGINALS[1], by_chance=True) is not ORIGINALS[1]
    assert v2_transforms.forward(draws_first, by_chance=True) is draws_first
    assert v2_transforms.needs(ORIGINALS[2]) is not ORIGINALS[2]
    assert v2_transforms.needs(needs_all) is needs_all


def test_the_check_sees_every_form() -> None:
    """The samples that the check tries are alone or in a tuple, applied or not."""
    generator = random.Random(0)
    samples = [v2_transforms._some_sample(generator) for _ in range(12)]
    assert {len(sample) for sample in samples} == {2, 3}
    assert {type(sample[1]) for sample in samples} >= {Image.Image, tuple}
    assert any(0 < sample[0].p < 1 for sample in samples)
