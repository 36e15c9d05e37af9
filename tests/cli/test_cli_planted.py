"""``python -m accel verify`` finds one bit that is wrong on every picture, whatever the op."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from accel.cli import verify
from accel.cli.command_line import main
from accel.cli.samples import picture
from accel.ops import OPS
from accel.ops.helpers import THREADS
from accel.ops.row import KernelOp
from accel.recipes.recipe import Recipe
from accel.runtime import compute


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Coloured and grey pictures."""
    folder = tmp_path_factory.mktemp("pictures")
    for number, mode in enumerate(("RGB", "L", "RGB", "RGB")):
        picture(number, (83, 64), mode).save(folder / f"{number}.jpg")
    return folder


def wrong(values: torch.Tensor) -> torch.Tensor:
    """A copy with one other bit, the lowest of a value."""
    values = values.clone()
    values.view(-1)[values.numel() // 2 :][:1].view(torch.uint8)[0] ^= 1
    return values


def names(steps: Any) -> Iterator[str]:
    for name, params in steps:
        yield name
        for each in params:
            yield from names(getattr(each, "steps", ()))


def plant(op: str, patch: pytest.MonkeyPatch) -> None:
    """Make accel differ in one bit where it computes the op: in the function, or else in images that have the step."""
    row = OPS[op]
    if isinstance(row, KernelOp):
        patch.setitem(OPS, op, replace(row, apply=lambda *given: wrong(row.apply(*given))))
    right = compute.several

    def several(batches: list[tuple[list[Recipe], bool]], *more: Any) -> Any:
        has = [any(op in names(each.steps) for each in recipes) for recipes, _ in batches]
        return [wrong(each) if yes else each for yes, each in zip(has, right(batches, *more), strict=True)]

    if not isinstance(row, KernelOp):
        patch.setattr(compute, "several", several)


@pytest.mark.filterwarnings("ignore:.*deprecated")
@pytest.mark.parametrize("op", [op for op in OPS if op != THREADS])
def test_a_wrong_bit_is_found(
    op: str, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = {
        name: ways
        for name, ways in verify.standard().items()
        if name == op or name.startswith("grey") or (not OPS[op].samples and "pipeline" in name)
    }
    monkeypatch.setattr(verify, "standard", lambda: rows)
    monkeypatch.setattr(verify, "_SECONDS", 0)
    plant(op, monkeypatch)
    assert main(["verify", str(pictures), "--backend", "cpu", "--sheet", str(tmp_path / "sheet.png")]) == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith("DIFFERENT")
