"""Plans of which a backend supports a part: its host runs the rest, and the results are put together."""

from io import BytesIO
from typing import Any

import pytest
import torch
from PIL import Image
from torchvision.transforms import functional as F

import accel
from accel.backend import AcceleratorBackend, HostBackend, Options
from accel.backends.reference import ReferenceBackend
from accel.planning.partition import going_on
from accel.planning.plan import Plan, plan
from accel.planning.stages import Effect, Stage
from accel.recipes.options import AcceleratorOptions
from accel.runtime import sharing
from accel.system import memory
from tests.support import helpers

CPU = torch.device("cpu")


def poisoned(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return memory.results.empty(shape, dtype).fill_(77)


def refusal(stage: Stage) -> str | None:
    return f"no {stage.op} here" if isinstance(stage, Effect) else None


class Partly(ReferenceBackend):
    ran: list[int]

    def supports(self, stage: Stage, device: torch.device | None = None) -> str | None:
        return refusal(stage)

    def run(self, plan: Plan, allocate: Any) -> torch.Tensor:
        self.ran = [item.position for wanted in plan.decodes for item in wanted.items]
        return super().run(plan, allocate)

    def describe(self, plan: Plan) -> list[str]:
        return ["runs: partly"]


class PartlyOnDevice(AcceleratorBackend):
    devices = ("cpu",)

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.host_part = Partly(Options(on_error=options.on_error))

    def supports(self, stage: Stage, device: torch.device | None = None) -> str | None:
        assert device == CPU
        return refusal(stage)

    def run_on(self, plan: Plan, device: torch.device) -> torch.Tensor:
        return self.host_part.run(plan, poisoned)

    @property
    def ran(self) -> list[int]:
        return self.host_part.ran


EQUALIZED = {"none": (), "some": (0, 3, 4), "last": (5,), "all": tuple(range(6))}


def batch(equalized: tuple[int, ...], broken: tuple[int, ...] = ()) -> Any:
    streams = [helpers.undecodable(seed=n) if n in broken else helpers.jpeg(64, 48, seed=n) for n in range(6)]
    images = [F.resize(Image.open(BytesIO(each)), [20, 30]) for each in streams]
    return torch.stack([F.to_tensor(F.equalize(each) if n in equalized else each) for n, each in enumerate(images)])


def planned(equalized: tuple[int, ...], broken: tuple[int, ...] = ()) -> Plan:
    with accel.image_backend("reference"):
        return plan(batch(equalized, broken).lazy.recipes)


def run(backend: Any, wanted: Plan) -> torch.Tensor:
    if isinstance(backend, AcceleratorBackend):
        return sharing.run_on(backend, wanted, CPU)
    (result,) = sharing.run_all(backend, [wanted], poisoned)
    if isinstance(result, Exception):
        raise result
    return result


def made(kind: str, **options: Any) -> Any:
    return Partly(Options(**options)) if kind == "host" else PartlyOnDevice(AcceleratorOptions(**options))


KINDS = pytest.mark.parametrize("kind", ["host", "device"])


@KINDS
@pytest.mark.parametrize("equalized", EQUALIZED.values(), ids=EQUALIZED)
def test_the_host_runs_what_is_not_supported(kind: str, equalized: tuple[int, ...]) -> None:
    backend, reason = made(kind), "no equalize here; the host ran it"
    before = accel.stats()["fallbacks"].get(reason, 0)
    helpers.assert_same(run(backend, planned(equalized)), batch(equalized))
    assert getattr(backend, "ran", []) == [n for n in range(6) if n not in equalized]
    assert accel.stats()["fallbacks"].get(reason, 0) == before + len(equalized)


def test_several_plans_at_once() -> None:
    plans = [planned(each) for each in EQUALIZED.values()]
    for found, each in zip(sharing.run_all(made("host"), plans, poisoned), EQUALIZED.values(), strict=True):
        helpers.assert_same(found, batch(each))


@KINDS
@pytest.mark.parametrize("broken", [(1, 3), (0, 2), (3, 4), (5,)], ids=str)
def test_the_first_image_that_fails_speaks(kind: str, broken: tuple[int, ...]) -> None:
    """Whoever runs it; and the others of a batch are delivered where it is replaced."""
    with pytest.raises(accel.DecodeError, match=rf"\(image {broken[0]} of a batch of 6\)"):
        run(made(kind), planned((0, 3, 4), broken))
    found = run(made(kind, on_error="replace"), planned((0, 3, 4), broken))
    kept = [n for n in range(6) if n not in broken]
    assert torch.equal(found[kept], batch((0, 3, 4))[kept])
    assert not found[list(broken)].any()


def test_explain_says_what_is_left_and_who_runs_it() -> None:
    lines = sharing.describe(made("host"), planned((0, 3)))
    assert lines[:2] == ["runs: partly", "left to the cpu backend, of 2 of 6 images: no equalize here"]
    assert lines[2].startswith("  decoder: ")
    assert sharing.describe(made("host"), planned(())) == ["runs: partly"]


def test_a_backend_is_not_its_own_host(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = made("host")
    monkeypatch.setitem(vars(backend), "on_host", backend)
    with pytest.raises(RuntimeError, match="no equalize here, and the backend is its own host"):
        run(backend, planned((1,)))


def test_a_backend_without_a_run_of_its_own_is_asked_by_the_other() -> None:
    class OneByOne(HostBackend):
        def run(self, plan: Plan, allocate: Any) -> torch.Tensor:
            return ReferenceBackend(self.options).run(plan, allocate)

    class Together(HostBackend):
        def run_all(self, plans: Any, allocate: Any) -> Any:
            return ReferenceBackend(self.options).run_all(plans, allocate)

    for backend in (OneByOne(Options()), Together(Options())):
        right, wrong = backend.run_all([planned(()), planned((), (2,))], poisoned)
        helpers.assert_same(right, batch(()))
        assert isinstance(wrong, accel.DecodeError)
        helpers.assert_same(backend.run(planned(()), poisoned), batch(()))
        with pytest.raises(accel.DecodeError, match="image 2"):
            backend.run(planned((), (2,)), poisoned)


@pytest.mark.parametrize("begun", [0, 1, 2])
def test_an_image_goes_on_from_the_pixels_of_its_first_stages(begun: int) -> None:
    """As after DALI: the rest of its stages, or all of them, on a source that is those pixels."""
    from accel.backends.reference import backend as reference
    from accel.runtime import read

    wanted = planned((0,)).decodes[0]
    (item,) = wanted.items
    assert len(item.stages) == 3
    pixels = read.pixels(wanted, 6, Options())
    for stage in item.stages[:begun]:
        after = reference.after_effect if isinstance(stage, Effect) else reference.after_pass
        pixels = after(pixels, stage)  # type: ignore[arg-type]
    rest = going_on(wanted, pixels, item.stages[begun:] if begun else None)
    assert isinstance(rest.items[0].stages[0], type(item.stages[0]))
    found = run(ReferenceBackend(Options()), planned((0,))._replace(decodes=(rest,)))
    assert torch.equal(found[0], batch((0,))[0])
