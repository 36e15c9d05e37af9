"""What commands show meanwhile: bars in a terminal, lines elsewhere; texts that break between words."""

import io
import re

import pytest
from rich.console import Console

from accel.cli import screen
from accel.cli.harness import compiling
from accel.codec.jpeg import MARKERS
from accel.system.native import object_cache, units

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
    monkeypatch.setattr(units, "_units", [])
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
