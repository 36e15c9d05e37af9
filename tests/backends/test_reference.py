"""The reference backend is a plan's definition: every other backend makes of random plans what it does."""

import random
from collections.abc import Callable
from functools import cache
from io import BytesIO
from typing import Any

import pytest
import torch
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as F
from torchvision.transforms.v2 import functional as F2

import accel
from accel.backend import AcceleratorBackend, HostBackend, backend_of
from accel.backends.reference import backend as reference
from accel.ops import OPS
from accel.ops.index import Index
from accel.ops.resample import Aten
from accel.ops.row import EffectOp, IndexOp, LutOp, ResampleOp
from accel.planning.plan import Plan, plan
from accel.processes.switch import current
from accel.recipes.recipe import Recipe, Step
from accel.runtime import sharing
from accel.system import memory
from tests.support import helpers
from tests.support.backends import REFERENCE, Backend
from tests.support.cuda import DEVICE

STEPS = {op.name: op for op in OPS.values() if isinstance(op, (IndexOp, ResampleOp, LutOp, EffectOp))}
MODES = {1: InterpolationMode.LANCZOS, 2: InterpolationMode.BILINEAR, 3: InterpolationMode.BICUBIC}
OF_TENSORS: list[Step] = [("resize", (*size, int(code))) for code in Aten for size in ((33, 41), (90, 7))]
SEEDS = 30
SHOWN: Step = ("crop", (-3, 4, 30, 40))
ERASED: Step = ("erase", (3, 7, 9, 20, torch.arange(20.0).expand(1, 1, 20)))
FLOATS: Step = ("to_tensor", (torch.float32,))
NORMALIZED: Step = ("normalize", ((0.4,), (0.3,)))
VALUES: list[tuple[Step, ...]] = [
    (("pil_to_tensor", ()),),
    (FLOATS, NORMALIZED),
    (FLOATS, NORMALIZED, ("to", (torch.float64,))),
    (FLOATS, ERASED, NORMALIZED),
]


def planned(seed: int) -> Plan:
    """Files of all kinds, some of them several times, each with steps of its own; they come out alike."""
    draw = random.Random(seed)
    mode, values = draw.choice(["RGB", "RGB", "L"]), draw.choice(VALUES)
    first: Step = ("convert", ("RGB",)) if mode == "RGB" else ("to_grayscale", (1,))
    with accel.image_backend("reference"):
        images: Any = [picture.open() for picture in draw.sample(helpers.pictures(), 4)]
    chosen = draw.choices(images, k=6)
    recipes = [Recipe(each.recipe.source, (first, *steps(draw, each.size, mode), SHOWN, *values)) for each in chosen]
    return plan(recipes, interleaved=draw.random() < 0.5)


def steps(draw: random.Random, size: tuple[int, int], mode: str) -> list[Step]:
    """Up to four samples of the table's, which torchvision takes for an image of this size."""
    image, found = Image.new(mode, size), list[Step]()
    for _ in range(draw.randrange(5)):
        op = STEPS[draw.choice([*sorted(STEPS), *["resize"] * 4, *["hflip", "pad"] * 2])]
        step = draw.choice([(op.name, each) for each in op.samples] + OF_TENSORS * (op.name == "resize"))
        params = step[1]
        try:
            if step in OF_TENSORS:
                F2.resize(F.pil_to_tensor(image), list(params[:2]), MODES[params[2] & 7])
            elif op.takes == "image":
                op.reference(image, params)
        except Exception:
            continue
        if op.channels(len(mode), params) == len(mode):
            found.append(step)
            image = Image.new(mode, op.size(image.size[::-1], params)[::-1])
    return found


def result(backend: Backend, wanted: Plan) -> torch.Tensor:
    with backend.chosen():
        running = backend_of(current())
    if isinstance(running, AcceleratorBackend):
        device = torch.empty(0, device=DEVICE if backend.name == "cuda" else "cpu").device
        return sharing.run_on(running, wanted, device).cpu()
    assert isinstance(running, HostBackend)
    return running.run(wanted, lambda shape, dtype: memory.results.empty(shape, dtype).fill_(77))


@cache
def expected(seed: int) -> torch.Tensor:
    return result(REFERENCE, planned(seed))


@pytest.mark.parametrize("seed", [*range(SEEDS), *(pytest.param(n, marks=pytest.mark.sweep) for n in range(30, 800))])
def test_a_plan_is_what_the_reference_makes_of_it(backend: Backend, seed: int) -> None:
    helpers.assert_same(result(backend, planned(seed)), expected(seed))


def test_plans_of_all_kinds_are_tried() -> None:
    decodes = [each for seed in range(SEEDS) for each in planned(seed).decodes]
    stages: list[Any] = [stage for each in decodes for item in each.items for stage in item.stages]
    sized = {"elastic", "erase_image", "permute_channels", "convert"}  # not every image can take them
    effects = {op.name for op in STEPS.values() if isinstance(op, EffectOp)} - sized
    assert {getattr(stage, "op", None) for stage in stages} >= effects
    codes = {getattr(stage, "resample", 0) for stage in stages}
    assert codes >= {0, 1, 2, 3, 4, 5}
    assert len(codes) >= 10
    assert sum(getattr(stage, "levels", None) is not None for stage in stages) > 20
    assert sum(len(getattr(stage, "fills", ())) > 1 for stage in stages) > 20
    assert sum(bool(item.patches) for each in decodes for item in each.items) > 10
    assert sum(len(each.items) > 1 for each in decodes) > 10


REAL = {name: getattr(reference, name) for name in ("shown", "resized", "looked_up")}
WRONG: dict[str, tuple[str, Callable[..., Any]]] = {
    "no flips": ("shown", lambda pixels, *maps: REAL["shown"](pixels, *map(unflipped, maps[:2]), maps[2])),
    "one filter": ("resized", lambda pixels, height, width, code, box: REAL["resized"](pixels, height, width, 2, box)),
    "one colour": ("shown", lambda *given: REAL["shown"](*given[:3], given[3][:1] * len(given[3]))),
    "no levels": ("looked_up", lambda pixels, levels: pixels),
}


def unflipped(index: Index) -> Index:
    return index if index.step > 0 else index.flip()


@pytest.mark.parametrize(("name", "function"), WRONG.values(), ids=WRONG)
def test_another_definition_would_show(
    name: str, function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = [expected(seed) for seed in range(SEEDS)]
    monkeypatch.setattr(reference, name, function)
    assert any(not torch.equal(result(REFERENCE, planned(seed)), each) for seed, each in enumerate(right))


def test_a_broken_file() -> None:
    def batch() -> torch.Tensor:
        streams = [helpers.undecodable(seed=n) if n in (1, 3) else helpers.jpeg(64, 48, seed=n) for n in range(4)]
        return torch.stack([F.to_tensor(Image.open(BytesIO(each))) for each in streams])

    with REFERENCE.chosen(), pytest.raises(accel.DecodeError, match=r"\(image 1 of a batch of 4\)"):
        batch().numpy()
    with REFERENCE.chosen(on_error="replace"):
        sums = batch().sum((1, 2, 3))
    assert [bool(each) for each in sums] == [True, False, True, False]


def test_it_never_runs_by_itself() -> None:
    assert accel.image_backends()["reference"] is None
    assert accel.backend.find("reference").auto_rank is None
