"""Figures in documents: each is that of its result file, and none of speed is without one."""

import json
import re
from pathlib import Path

import pytest

from bench import figures, picture, report
from bench.__main__ import main
from bench.machine import RESULTS, ROOT

SPEED = re.compile(
    r"\d[\d.,]* ?(?:ms|µs|ns|images/s)\b"
    r"|\d[\d.,]*(?:x\b(?! \d)|% (?:faster|slower)| times (?:as (?:fast|long)|faster|slower))"
)
LIMITS = (  # of the code's, and of what is asked for; nothing that was measured
    *("run 2.5 ms late or more", "by 0.2 ms each time, and at most by half"),
    *(
        "4 ns per byte are assumed",
        "1.5 ns for planes",
        "and 500 ns per image",
        "5,000 or 10,000 images/s",
        "0 to 5% faster, one photo slower",
    ),
)


def without_a_file(text: str) -> list[str]:
    """Figures of speed that are made of no result file, outside blocks of code."""
    text = re.sub(r"```.*?```", "", re.sub(r"<!-- = .*?<!-- / -->", "", text, flags=re.DOTALL), flags=re.DOTALL)
    for each in LIMITS:
        text = text.replace(each, "")
    return SPEED.findall(text)


@pytest.mark.parametrize("page", figures.PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_figures_are_those_of_the_results(page: Path) -> None:
    text = page.read_text()
    assert text == figures.filled(text), "run python -m bench figures"
    assert without_a_file(text) == []
    assert figures.undisclosed(text) == []


@pytest.mark.parametrize("name", picture.FILES)
def test_pictures_are_those_of_the_results(name: str) -> None:
    assert picture.FILES[name].read_text() == picture.draw(figures.content(picture.RESULTS), name)


def test_the_report_is_that_of_the_results() -> None:
    drawn = {file.stem: file for file in (ROOT / "bench" / "plots").glob("*.png")}
    text = report.text([json.loads(file.read_text()) for file in report.files()], drawn)
    assert text == (ROOT / "bench" / "REPORT.md").read_text(), "run python -m bench report"


def test_a_figure_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "RESULTS", tmp_path)
    made = {"a, b": {"images/s": 12345.6, "ms": 0.5}, "list": [{"name": "x = y", "share": 0.123}, {"name": "z"}]}
    (tmp_path / "made-here.json").write_text(json.dumps(made))
    for what, shown in {
        "made-here.json > a, b > images/s : ,.0f": "12,346",
        "made-here.json > a, b > images/s : ~2 ,.0f": "12,000",
        "made-here.json > list > name=x = y > share : .0%": "12%",
        "made-here.json > list > 0 > share : .2f": "0.12",
        "made-here.json > list > 0 > name : .1": "x",
        "made-here.json > a, b > images/s / made-here.json > a, b > ms : .1f": "24691.2",
    }.items():
        text = f"before <!-- = {what} -->old<!-- / --> after <!-- = {what} --><!-- / -->"
        assert (
            figures.filled(text)
            == f"before <!-- = {what} -->{shown}<!-- / --> after <!-- = {what} -->{shown}<!-- / -->"
        )


def test_results_of_a_gpu_are_none_of_the_hosts() -> None:
    """What ``--device cpu`` writes names no card."""
    files = list((RESULTS / "gpu").iterdir())
    assert files
    for file in files:
        made = json.loads(file.read_text())
        assert made["device"].startswith(tuple(made["machine"]["cuda devices"])), file.name


def test_a_gpu_files_commit_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside figures that were made with uncommitted changes; and what was measured on two cards is not divided."""
    monkeypatch.setattr(figures, "RESULTS", tmp_path)
    (tmp_path / "gpu").mkdir()
    for name, dirty, card in (("dirty-card", True, "one"), ("clean", False, "one"), ("another", False, "two")):
        made = {"commit": "0123456789", "uncommitted changes": dirty, "device": card, "n": 4}
        (tmp_path / "gpu" / f"{name.replace('-', '_')}.json").write_text(json.dumps(made))
    said = figures.filled("<!-- = gpu/dirty_card.json : commit -->?<!-- / -->")
    assert "with uncommitted changes at 01234567<" in said
    assert ">at 01234567<" in figures.filled("<!-- = gpu/clean.json : commit -->?<!-- / -->")
    figure = "<!-- = gpu/dirty_card.json > n : .0f -->4<!-- / -->"
    assert figures.undisclosed(f"{figure} {said}") == figures.undisclosed(figure.replace("dirty_card", "clean")) == []
    assert len(figures.undisclosed(f"{figure}\n\n{said}")) == 1
    assert figures.undisclosed(f"{said}:\n\n| {figure} |") == [], "a table, and what introduces it"
    one, *others = (f"gpu/{name}.json > n" for name in ("clean", "dirty_card", "another"))
    assert ">1<" in figures.filled(f"<!-- = {one} / {others[0]} : .0f --><!-- / -->")
    with pytest.raises(ValueError, match=r"of several cards: one, two"):
        figures.filled(f"<!-- = {one} / {others[1]} : .0f --><!-- / -->")


@pytest.mark.parametrize(
    "text",
    [
        "<!-- = gone.json > train : .1f -->1<!-- / -->",
        "<!-- = cache.json > train > gone : .1f -->1<!-- / -->",
        "<!-- = cache.json > train : .1f -->1<!-- / -->",
        "<!-- = bench.json > workloads > train > entries > contestant=gone > ratio : .1f -->1<!-- / -->",
        "<!-- = no such table -->1<!-- / -->",
        "<!-- = kernels -->without an end",
        "1<!-- / --> without a beginning",
    ],
)
def test_a_figure_that_cannot_be_made(text: str) -> None:
    with pytest.raises(ValueError, match=r"not in bench/results|or the reverse"):
        figures.filled(text)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- = cache.json > train > medians > full : .0f -->9<!-- / -->")
    monkeypatch.setattr(figures, "PAGES", (page,))
    monkeypatch.setattr(picture, "FILES", {"train": tmp_path / "train.svg"})
    assert main(["figures"]) == 0
    assert page.read_text() == "<!-- = cache.json > train > medians > full : .0f -->0<!-- / -->"
    assert (tmp_path / "train.svg").read_text().startswith("<svg")
    page.write_text("<!-- = cache.json > gone : .0f -->9<!-- / -->")
    assert main(["figures"]) == 1
    assert "cache.json > gone" in capsys.readouterr().err


def test_a_figure_without_a_file_would_be_seen() -> None:
    wrong = "2.5 times as fast; 3x torchvision's; 1,000 images/s, and 7 µs; 3 times faster, 5% slower."
    assert len(without_a_file(wrong)) == 6
    fine = "<!-- = kernels -->2.5 ms<!-- / -->; 3x3 and 500 x 375; run 2.5 ms late or more\n```\n3 ms\n```\n"
    assert without_a_file(fine) == []


def test_pictures_can_be_read_on_a_phone() -> None:
    """A phone has some 360 pixels between the margins; what is no wider is not made smaller."""
    for file in picture.FILES.values():
        text = file.read_text()
        width = re.search(r'viewBox="0 0 (\d+) ', text)
        assert width is not None
        assert int(width[1]) <= 350
        assert min(map(float, re.findall(r"font(?:-size)?: ([\d.]+)px", text))) >= 12
