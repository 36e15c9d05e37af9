"""What commands show meanwhile: bars in a terminal, lines elsewhere; texts that break between words."""

import io
import json
import re

import pytest
from rich.console import Console

from accel.cli import screen
from accel.cli.error_stats import Different, ErrorStats
from accel.cli.harness import compiling
from accel.cli.tables import Table, markdown, show
from accel.codec.jpeg import MARKERS
from accel.system.native import object_cache, units
from bench.machine import ROOT
from bench.tables import tables
from tests.support import inside

LONG = "torchvision cannot load what /a/folder/:x:/[file].jpg has, and so there is nothing that could be compared here"


def console(terminal: bool) -> Console:
    return Console(file=io.StringIO(), width=80, force_terminal=terminal, color_system=None, highlight=False)


def shown(terminal: Console) -> list[str]:
    assert isinstance(terminal.file, io.StringIO)
    return [line.rstrip() for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.file.getvalue()).splitlines()]


@pytest.fixture(params=[True, False], ids=["terminal", "file"])
def err(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Console:
    made = console(request.param)
    monkeypatch.setattr(screen, "err", made)
    monkeypatch.setattr(screen, "out", made)
    return made


def test_texts_break_between_words_in_a_terminal(err: Console) -> None:
    for tell in (screen.note, screen.say, lambda text: screen.fail("verify", text)):
        err.file = io.StringIO()
        tell(LONG)
        lines = shown(err)
        assert " ".join(lines).endswith(LONG)
        assert len(lines) == (2 if err.is_terminal else 1)
        assert all(len(line) <= 80 for line in lines) == err.is_terminal


def test_a_bar_shows_its_title_at_once(err: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(screen.time, "monotonic", lambda: now)
    with screen.Bar("a title", 8, counted=False) as bar:
        assert any(line.startswith("a title") for line in shown(err))
        bar.advance()
        now += 11
        bar.say("another title")
        bar.advance()
        now += 11
        bar.advance(2)
    if err.is_terminal:
        assert any(re.match(r"another title .* 50%", line) for line in shown(err))
    else:
        assert [re.sub(", about .* left", "", line) for line in shown(err)] == [
            *("a title", "another title: 12%", "another title: 50%")
        ]


def test_what_is_being_compiled_is_shown(err: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    units.ready([MARKERS])
    code = object_cache.read(MARKERS.file)
    inside.forget_units(monkeypatch)
    unit = units.Unit(MARKERS.name, *MARKERS.sources, seconds=MARKERS.seconds)
    unit.function("codec.jpeg.markers", "first_marker", "u1[1] int")
    monkeypatch.setattr(object_cache, "read", lambda file: None)

    def compiled(missing: dict[units.Unit, bytes | None], processes: int, done: units.Done) -> None:
        for unit in missing:
            missing[unit] = code
            done(unit)

    monkeypatch.setattr(units, "_in_processes", compiled)
    monkeypatch.setattr(screen, "_EVERY", 0)
    with screen.Bar("comparing", 8) as bar, compiling(bar, "comparing"):
        assert units.ready([unit]) == [unit]
    lines = [line.split("  ")[0] for line in shown(err)]
    assert any(re.fullmatch(r"compiling once, about \d+ s on an idle.*", line) for line in lines), lines
    assert lines.index("comparing") < len(lines) - 1 - lines[::-1].index("comparing")
    assert not units.watchers


# -- tables: whole in 80 columns, Markdown where the output goes elsewhere -------------------------------------------


RESULTS = sorted((ROOT / "bench" / "results").glob("bench*.json"))
WIDE = [
    table for file in RESULTS for part in json.loads(file.read_text())["workloads"].values() for table in tables(part)
]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """A terminal of 80 columns, and all that is printed there."""
    text = io.StringIO()
    console = Console(file=text, width=80, force_terminal=True, color_system=None, highlight=False)
    monkeypatch.setattr(screen, "out", console)
    return text


@pytest.mark.parametrize("table", WIDE, ids=lambda table: table.title[:30])
def test_80_columns_show_every_figure(table: Table, terminal: io.StringIO) -> None:
    show(table)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue())
    assert "\u2026" not in shown
    assert all(len(line.rstrip()) <= 80 for line in shown.splitlines())
    words = shown.split()
    for row in table.rows:
        assert all(cell in words for cell in row[1:] if cell and " " not in cell), row


def test_what_fits_is_one_table(terminal: io.StringIO) -> None:
    show(Table("a title", ("", "img/s"), [("accel, cpu", "1,234")], ["a note"]))
    assert [line.strip() for line in terminal.getvalue().splitlines() if line.strip()] == [
        *("a title", "img/s", "\u2500" * 17, "accel, cpu  1,234", "a note"),
    ]


def test_elsewhere_it_is_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("a title", ("op", "equal?", "ms"), [("a|b [c]", "yes", "1.8")] * 2, ["a note"], text=2)
    show(table)
    printed = capsys.readouterr().out
    assert printed.rstrip() == markdown(table).rstrip()
    assert printed.splitlines()[2:5] == ["| op | equal? | ms |", "| --- | --- | ---: |", "| a\\|b [c] | yes | 1.8 |"]
    for wide in WIDE:
        show(wide)
        assert max(map(len, capsys.readouterr().out.splitlines())) >= len(" | ".join(wide.columns))


def test_differences_in_levels() -> None:
    import torch

    zeros, stats = torch.zeros(3, 2, 2), ErrorStats(most=6)
    assert stats.add(zeros, zeros.clone(), "same") == 0
    other = zeros.clone()
    other[0, 0, 0], other[1, 0, 0] = 2 / 255, 0.4 / 255
    assert stats.add(zeros, other, "other") == pytest.approx(2)
    assert (stats.images, stats.equal, stats.worst) == (2, 1, "other")
    assert (stats.values, stats.differing) == (24, 1)
    assert (stats.share, stats.mean) == (pytest.approx(1 / 24), pytest.approx(2.4 / 24))
    anything = ErrorStats(least=0)
    anything.add(zeros, other)
    assert anything.differing == 2
    for wrong, reason in (
        (zeros + 7 / 255, "7 levels on average"),
        (zeros / 0, "not finite"),
        (zeros[0], "instead of"),
    ):
        with pytest.raises(Different, match=reason):
            stats.add(zeros, wrong)
    assert ErrorStats().add(torch.tensor([[[1]]]), torch.tensor([[[3]]])) == 2  # integers are levels
    assert ErrorStats(torch.full((1, 1, 1), 9.0)).add(torch.zeros(2, 4), torch.ones(2, 4)) == 1  # and boxes are pixels
