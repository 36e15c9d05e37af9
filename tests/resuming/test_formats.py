"""States of earlier versions: read, or refused by name."""

from pathlib import Path

import pytest
import torch

import accel
from accel.resuming import state
from bench.resume import cases
from bench.resume.cases import Case

pytestmark = pytest.mark.filterwarnings("ignore")  # of loaders with more workers than cores

KEPT = Path(__file__).with_name("state_1.pt")
"""Of one persistent worker behind an epoch, with a generator of NumPy's, written in format 1."""


def test_format_1_is_read() -> None:
    found = state.parsed(torch.load(KEPT, weights_only=True))
    assert found["loader"]["samples"] == 26
    (note,) = found["workers"]
    assert sorted(note["states"]["own"]) == ["collate_fn.generator", "dataset.generator"]
    assert len(note["indices"]) == 2
    assert len(note["record"]) == 32
    assert len(found["main"]["torch"]) == len(torch.get_rng_state())


def test_of_other_versions_it_is_refused_by_name(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = torch.load(KEPT, weights_only=True)
    case = Case(dataset="own", planted="numpy", workers=1, persistent=True)
    with accel.image_backend("cpu"):
        loader = cases.loader(case, root)
        monkeypatch.setattr(state, "versions", lambda: saved["versions"] | {"torch": "9.0"})
        with pytest.raises(accel.ResumeError, match=r"torch was '.*' and is '9\.0'"):
            loader.load_state_dict(saved)  # type: ignore[attr-defined]
        monkeypatch.setattr(state, "versions", lambda: saved["versions"])
        loader.load_state_dict(saved)  # type: ignore[attr-defined]
        assert len(list(loader)) == 7
