"""The report: one screen, plain text where it is no terminal, JSON as docs/profiling.md describes it, a trace."""

import io
import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import accel
from accel.profiling import progress, trace
from accel.profiling.measured import STAGES, Loader, Measured, Sample, Spent, Trial, bucket, load, merged, total
from accel.profiling.report import Report
from accel.profiling.verdict import BOTTLENECKS
from tests.profiling.pipeline import Pipeline

DOCS = Path(accel.__file__).parent.parent / "docs" / "profiling.md"

BUSY = Pipeline(
    work={"read": (1.0, 0.0), "decode": (9.0, 1.0), "collate": (1.0, 1.0)},
    step=(3.0, 0.0),
    copy=0.5,
    cores=16,
    epochs=2,
    samples=[
        Sample("/home/u/train.py", 57, "__getitem__", "boxes = json.load(open(path))" * 4, 101, 40),
        Sample("/home/u/train.py", 90, "main", "loss.backward()", 100, 60),
    ],
)


def busy() -> Measured:
    measured = BUSY.run()
    measured.backend, measured.trials = "torchvision", {"cpu": Trial(16, 1e-4, 1e-4, 3e-4, 3e-4, 0.9)}
    return measured


KINDS = {
    "busy": busy,
    "nothing": Measured,
    "step": lambda: Pipeline(work={"decode": (1.0, 1.0)}, step=(20.0, 0.0)).run(),
    "startup": lambda: Pipeline(startup=300, epochs=4, batches=10, cores=8).run(),
    "alone": lambda: Pipeline(workers=0, step=(2.0, 0.0)).run(),
}


@pytest.mark.parametrize("kind", KINDS)
def test_one_screen(kind: str) -> None:
    report = Report(KINDS[kind]())
    text = str(report)
    assert len(text.splitlines()) <= 45
    assert max(map(len, text.splitlines())) <= 100
    assert "\x1b" not in text
    assert f"bottleneck: {report.bottleneck}" in text
    for each in report.advice:
        assert each.text[:60] in text
    file = io.StringIO()
    report.show(file)
    assert file.getvalue() == text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colours_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    file = Terminal()
    Report(busy()).show(file)
    assert "\x1b[" in file.getvalue()


def test_what_the_screen_says() -> None:
    text = str(Report(busy()))
    assert "computing 3.0" in text
    assert "copying 0.5" in text
    assert "train.py:57 boxes = json.load" in text
    assert re.search(r"your code, the loop: 100% in train.py:90 loss", text)
    assert 'set_image_backend("cpu")' in text
    assert "results stay bit-identical" in text
    assert "crops change" in text


@pytest.mark.parametrize(("key", "words"), [("at_most", "at most"), ("at_least", "at least")])
def test_the_screen_says_what_is_a_bound(key: str, words: str) -> None:
    report = Report(busy())
    assert f"predicted {words} " not in str(report)
    setattr(report.advice[0], key, True)
    assert f"predicted {words} " in str(report)
    assert report.to_dict()["advice"][0][key] is True


def test_not_measured_is_never_zero() -> None:
    measured = busy()
    for batch in measured.batches:
        batch.copy_ns = None
    measured.machine.busy = None
    report = Report(measured)
    assert report.stages["kernels"] is None
    assert report.step is not None
    assert report.step["copying"] is None
    text = str(report)
    assert "copying not measured" in text
    assert re.search(r"not measured in the workers: .*kernels", text)
    assert "cores: 16, not measured" in text
    for process in measured.processes:
        process.stages["kernels"] = Spent()
    assert Report(measured).stages["kernels"]["seconds"] == 0
    assert not re.search(r"not measured in the workers: .*kernels", str(Report(measured)))


def test_shares_add_up() -> None:
    report = Report(busy())
    assert report.step is not None
    assert sum(report.step[part]["share"] for part in ("computing", "waiting", "copying")) == pytest.approx(1)
    assert sum(report.step[part]["mean_ms"] for part in ("computing", "waiting", "copying")) == pytest.approx(
        report.step["mean_ms"]
    )


def test_empty_until_something_is_measured() -> None:
    report = Report()
    assert "nothing measured" in str(report)
    assert "nothing measured" in report._repr_html_()
    with pytest.raises(RuntimeError, match="when the block"):
        report.bottleneck  # noqa: B018
    report.fill(busy())
    assert report.bottleneck in BOTTLENECKS
    before = report.bottleneck
    report.fill(Pipeline(work={"decode": (1.0, 1.0)}, step=(20.0, 0.0)).run())
    assert report.bottleneck == "step" != before


def test_a_notebook_shows_the_screen() -> None:
    page = Report(busy())._repr_html_()
    assert page.startswith("<pre")
    assert "bottleneck: " in page
    assert "<script" not in page


# -- JSON ---------------------------------------------------------------------------------------------------


def documented() -> set[str]:
    """The keys of the table in the docs, with those of what they hold: "step.waiting.share"."""
    table = DOCS.read_text().split("<!-- keys -->")[1].split("<!-- /keys -->")[0]
    found = set()
    for line in table.strip().splitlines()[2:]:
        _, names, meaning, *_ = [*line.split("|"), ""]
        outer = re.findall(r"`([\w.]+)`", names)
        found |= {*outer, *(name.split(".")[0] for name in outer)}
        listed = (
            []
            if not outer or outer[0] in ("bottleneck", "counters", "backend", "failed")
            else re.findall(r"`(\w+)`", meaning)
        )
        inner = [name for name in listed if name not in ("step", "worker", "main", "loading", "loop", "iter")]
        found |= {f"{name}.{each}" for name in outer for each in inner}
    return found


def keys(value: Any, name: str = "") -> Iterator[str]:
    """The same of real output: stages, options, changes and counters have names of their own."""
    if isinstance(value, list):
        for each in value:
            yield from keys(each, name)
    elif isinstance(value, dict) and name not in ("options", "counters", "advice.change", "tried.change"):
        for key, each in value.items():
            below = name if name == "stages" and key in STAGES else f"{name}.{key}".lstrip(".")
            yield below
            yield from keys(each, below)


def test_the_keys_are_those_of_the_docs() -> None:
    report = Report(busy())
    report.tried = {"text": "", "change": {"backend": "cpu"}, "predicted_rate": 2.0, "measured_rate": 2.0}
    assert 'afterwards 16 of your samples were made under "cpu" as well, in 0.9 s' in str(report)
    data = json.loads(report.to_json())
    assert data["advice"]
    assert data["user"]
    real = set(keys(data))
    assert real == documented()
    assert set(data["stages"]) == set(STAGES)
    assert data["bottleneck"] in BOTTLENECKS


def test_every_name_and_stage_is_in_the_docs() -> None:
    text = DOCS.read_text()
    stages, bottlenecks = text.split("## Stages")[1].split("## ")[0], text.split("## Bottlenecks")[1].split("## ")[0]
    named = {name for line in bottlenecks.splitlines() for name in re.findall(r"`(\w+)`", (line + "||").split("|")[1])}
    assert named == set(BOTTLENECKS)
    assert {
        name for line in stages.splitlines() for name in re.findall(r"`(\w+)`", (line + "||").split("|")[1])
    } == set(STAGES)


@pytest.mark.parametrize("kind", KINDS)
def test_json_of_every_kind(kind: str, tmp_path: Path) -> None:
    report = Report(KINDS[kind]())
    report.save(tmp_path / "new" / "profile.json")
    data = json.loads((tmp_path / "new" / "profile.json").read_text(), parse_constant=lambda name: pytest.fail(name))
    assert set(data) >= {"bottleneck", "stages", "step", "advice"}


# -- measured -----------------------------------------------------------------------------------------------


def test_measured_goes_through_a_file(tmp_path: Path) -> None:
    measured = busy()
    measured.events = [(1, 2, "decode", 3, 4)]
    assert load(tmp_path) is None
    for _ in range(2):  # the second one replaces the first
        measured.save(tmp_path / "1.pickle")
    found = load(tmp_path)
    assert found is not None
    assert len(found.batches) == len(measured.batches)
    assert (found.events, found.samples, found.machine) == (measured.events, measured.samples, measured.machine)


def test_ranks_are_put_together() -> None:
    one = BUSY.run()
    parts = [BUSY.run(), replace(one, machine=replace(one.machine, cores=16))]
    for rank, part in enumerate(parts):
        for process in part.processes:
            process.pid += 1000 * rank
            process.rank = rank
        part.machine.world_size = 2
        part.counters = {"images": 5, "fallbacks": {"x": 1}, "replaced files": ["a"]}
    both = merged(parts)
    assert [loader.number for loader in both.loaders] == [0, 1]
    assert {batch.pid for batch in both.batches} == {100, 1100}
    assert both.counters == {"images": 10, "fallbacks": {"x": 2}, "replaced files": ["a"]}
    single, double = Report(parts[0]), Report(both)
    assert double.bottleneck == single.bottleneck
    assert double.to_dict()["rate"] == pytest.approx(2 * single.to_dict()["rate"], rel=0.02)


def test_histograms() -> None:
    spent = Spent()
    for ns in (1, 2, 100, 10**6, 10**6, 10**15):
        spent.add(ns, 1)
    assert (spent.count, spent.cpu_ns, sum(spent.histogram)) == (6, 6, 6)
    assert [bucket(2**power) for power in (0, 1, 10)] == [0, 4, 40]
    assert bucket(2**10 - 1) == 39
    middle = spent.percentile(60)
    assert middle is not None
    assert abs(middle / 10**6 - 1) < 0.1
    assert Spent().percentile(50) is None
    whole = total([spent, Spent(1, 5, None, [1])])
    assert (whole.count, whole.cpu_ns, sum(whole.histogram)) == (7, None, 7)


# -- trace and live line ------------------------------------------------------------------------------------


def traced() -> Measured:
    measured = BUSY.run()
    measured.events = [
        (100, 100, "unpack", 5_500_000, 40_000),
        (101, 101, "decode", 5_000_000, 2_000_000),
        (102, 7, "read", 6_000_000, 1_000),
    ]
    measured.processes[1].rank = 3
    for batch in measured.batches:  # clocks begin anywhere
        batch.requested_ns += 5_000_000
    return measured


def test_the_trace(tmp_path: Path) -> None:
    trace.write(traced(), tmp_path / "a" / "trace.json")
    events = json.loads((tmp_path / "a" / "trace.json").read_text())["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {100: "main process", 101: "rank 3: worker 0 of loader 0", 102: "worker 1 of loader 0"}
    slices = [event for event in events if event["ph"] == "X"]
    assert min(event["ts"] for event in slices) == 0
    (decode,) = [event for event in slices if event["name"] == "decode"]
    assert (decode["dur"], decode["pid"], decode["tid"]) == (2000, 101, 101)
    assert all(0 <= event["tid"] < 2**32 for event in slices)  # perfetto takes another for the process's own
    (batches,) = [event for event in events if event["name"] == "thread_name"]
    assert (batches["pid"], batches["args"]["name"]) == (100, "batches")
    waits = [event for event in slices if event["name"].startswith("wait for batch")]
    assert len(waits) == BUSY.batches * BUSY.epochs
    assert {event["tid"] for event in waits} == {batches["tid"]} != {100}
    ordered = [event for event in slices if event["tid"] == batches["tid"]]
    for before, after in pairwise(ordered):  # on one track nothing overlaps
        assert before["ts"] + before["dur"] <= after["ts"] + 0.01


def test_perfetto_opens_the_trace(tmp_path: Path) -> None:
    processor = pytest.importorskip("perfetto.trace_processor")
    trace.write(traced(), tmp_path / "trace.json")
    try:
        opened = processor.TraceProcessor(trace=str(tmp_path / "trace.json"))
    except Exception as error:  # its own program is fetched at first use
        pytest.skip(f"perfetto's trace processor does not run here: {error}")
    with opened:
        rows = list(opened.query("select count(*) as n from slice where name = 'decode' and dur = 2000000"))
        processes = {row.name for row in opened.query("select name from process where name is not null")}
        (errors,) = opened.query("select sum(value) as n from stats where severity = 'error'")
    assert rows[0].n == 1
    assert {"main process", "worker 1 of loader 0"} <= processes
    assert not errors.n


def test_the_line_is_nothing_when_piped() -> None:
    file = io.StringIO()
    line = progress.Line(file)
    line.update(busy())
    line.close()
    assert file.getvalue() == ""


def seen(written: str) -> list[str]:
    """The lines of a terminal on which this was written, for the few sequences that the line uses."""
    lines: list[str] = [""]
    row = column = 0
    for each in re.findall(r"\x1b\[\d*[A-Z]|.", written, re.DOTALL):
        if each == "\n":  # as terminals have it: to the begin of the next line
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        elif each == "\r":
            column = 0
        elif each == "\x1b[J":
            lines = [*lines[:row], lines[row][:column]]
        elif each == "\x1b[A":
            row -= 1
        elif each.startswith("\x1b[") and each.endswith("G"):
            column = int(each[2:-1]) - 1
        else:
            assert not each.startswith("\x1b"), each
            lines[row] = f"{lines[row][:column]:{column}}{each}{lines[row][column + 1 :]}"
            column += 1
    return lines


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Standard error, which pytest sets anew between a fixture and a test."""
    monkeypatch.setenv("TERM", "xterm-256color")
    file = Terminal()
    monkeypatch.setattr(sys, "stderr", file)
    return file


def test_the_line_stands_below_what_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    line = progress.Line()
    measured = busy()
    bar = sys.stderr  # as a bar keeps it
    line.update(measured)
    said = progress.words(measured)
    assert seen(terminal.getvalue()) == [said]
    print("epoch 0", file=sys.stderr)
    assert seen(terminal.getvalue()) == ["epoch 0", said]
    for percent in (7, 42, 100):
        bar.write(f"\r{percent}%")
        line.update(measured)
        assert seen(terminal.getvalue()) == ["epoch 0", f"{percent}%", said]
    print(" ...", file=sys.stderr)
    assert seen(terminal.getvalue()) == ["epoch 0", "100% ...", said]
    line.close()
    assert seen(terminal.getvalue()) == ["epoch 0", "100% ...", ""]
    assert sys.stderr is terminal
    bar.write("loss 0.5\n")
    line.update(measured)
    assert seen(terminal.getvalue()) == ["epoch 0", "100% ...", "loss 0.5", ""]


def test_the_line_gives_way_to_who_moves_the_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    line = progress.Line()
    line.update(busy())
    sys.stderr.write("outer\ninner\x1b[A")
    line.update(busy())
    sys.stderr.write("\rOUTER")
    assert seen(terminal.getvalue()) == ["OUTER", "inner"]
    line.close()


def test_the_line_of_a_forked_process_is_its_parents(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    line = progress.Line()
    line.update(busy())
    before = terminal.getvalue()
    monkeypatch.setattr(line, "pid", os.getpid() + 1)
    sys.stderr.write("a worker's\n")
    assert terminal.getvalue() == f"{before}a worker's\n"
    line.close()


def test_the_line_is_refreshed_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    file = Terminal()
    line = progress.Line(file)
    measured = busy()
    line.update(measured)
    line.update(measured)
    written = file.getvalue()
    line.close()
    line.update(measured)
    assert written.count("images/s") == 2
    assert written.count("\n") == 0
    assert f"bottleneck: {Report(measured).bottleneck}" in written
    assert progress.words(Measured(loaders=[Loader(0)])) == "accel: waiting for batches"
