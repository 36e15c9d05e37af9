"""The choice of the pictures that ops are tried on: deterministic, balanced, of all kinds."""

from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from accel.cli import pairs
from accel.cli.samples import picture

OPS = 95
GROUPS = [list(range(150)), list(range(150, 190)), list(range(190, 197)), [197], [198, 199]]


def test_every_op_gets_every_picture_once() -> None:
    for op in range(OPS):
        assert sorted(pairs.pictures(GROUPS, op, OPS)) == list(range(200))
        assert list(pairs.pictures(GROUPS, op, OPS)) == list(pairs.pictures(GROUPS, op, OPS))


def test_twenty_pictures_are_of_all_kinds() -> None:
    kind = {place: number for number, group in enumerate(GROUPS) for place in group}
    counted: Counter[int] = Counter()
    for op in range(OPS):
        chosen = list(islice(pairs.pictures(GROUPS, op, OPS), 20))
        of_kinds = Counter(kind[place] for place in chosen)
        assert of_kinds.keys() == set(range(len(GROUPS)))
        assert of_kinds[0] <= of_kinds[1] + 1 <= of_kinds[2] + 3, "none has more than its share"
        counted.update(chosen)
    assert counted.keys() == set(range(200)), "together they see all pictures"
    assert max(counted[place] for place in GROUPS[0]) <= 3 * min(counted[place] for place in GROUPS[0])


@pytest.mark.parametrize("samples", [1, 2, 3, 4, 5, 20])
def test_every_sample_is_tried_with_every_kind(samples: int) -> None:
    for first in range(0, 100, samples):
        assert {pairs.sample(attempt, samples) for attempt in range(first, first + samples)} == set(range(samples))
    met = {(pairs.sample(attempt, samples), attempt % 4) for attempt in range(400)}
    assert len(met) == 4 * samples


def test_kinds_are_told_apart(tmp_path: Path) -> None:
    made = {
        "a.jpg": ("RGB", (64, 48), {}),
        "b.jpg": ("RGB", (66, 48), {}),
        "subsampling.jpg": ("RGB", (64, 48), {"subsampling": "4:4:4"}),
        "mode.jpg": ("L", (64, 48), {}),
        "progressive.jpg": ("RGB", (64, 48), {"progressive": True}),
        "size.jpg": ("RGB", (640, 480), {}),
        "format.png": ("RGB", (64, 48), {}),
    }
    for name, (mode, size, options) in made.items():
        picture(1, size, mode).save(tmp_path / name, **options)
    (tmp_path / "broken.jpg").write_bytes(b"no image")
    files = [str(tmp_path / name) for name in (*made, "broken.jpg")]
    assert pairs.kinds(files) == [[0, 1], *([place] for place in range(2, 8))]


def test_not_all_headers_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "_LOOKED_AT", 2)
    monkeypatch.setattr(pairs, "_kind", len)
    assert pairs.kinds(["a", "bb", "c", "ccc"]) == [[0], [1], [2, 3]]
