"""The benchmark: that it measures what it says, and reports nothing on a red check. No timings are asserted."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from mmap import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import accel
from accel.backends.cuda.device import Device
from accel.cli import costs
from accel.cli.arguments import Red
from accel.cli.costs import Cost
from accel.cli.error_stats import Different, ErrorStats
from accel.cli.harness import TensorBatch, compare
from bench import measure, report, usage
from bench.__main__ import main
from bench.contestants import CONTESTANTS
from bench.contestants.contestant import Contestant, Epoch
from bench.contestants.scripts import TorchvisionV1
from bench.measure import Entry, check_likely, levels, take_turns
from bench.null_accelerator import FolderRecipes, Recipes
from bench.pipelines import PIPELINES, Draw, Images, Job, boxes_after, boxes_of
from bench.tables import tables
from bench.workloads import WORKLOADS, scaling, side_by_side
from tests.cli.wrong import make_wrong

V1 = CONTESTANTS["torchvision-v1"]


def run(folder: Path, out: Path, *workloads: str, against: str = "torchvision-v1") -> dict[str, Any]:
    """The result file's content after one round of some workloads."""
    arguments = ["--data", str(folder), "--rounds", "1", "--against", against, "--images", "6", "--out", str(out)]
    assert main([*workloads, *arguments]) == 0
    content: dict[str, Any] = json.loads(out.read_text())
    return content


def entries(result: dict[str, Any], workload: str) -> dict[str, Any]:
    return {each["name"]: each for each in result["workloads"][workload]["entries"]}


def job_of(paths: list[str], pipeline: str = "train", batch_size: int = 2, workers: int = 0) -> Job:
    return Job(PIPELINES[pipeline], Images(files=paths), range(len(paths)), batch_size, workers=workers)


def pixels(count: int = 6) -> Images:
    generator = np.random.default_rng(0)
    return Images(pixels=[generator.integers(0, 256, (32, 32, 3), np.uint8) for _ in range(count)])


# -- the command --------------------------------------------------------------------------------------------


def test_workloads_are_measured_and_shown(
    image_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "results" / "result.json"
    result = run(image_folder, out, "train", "eval", "recording", "cifar", against="torchvision-v2")
    assert result["data"] == {"name": image_folder.name, "images": 12}
    assert str(image_folder) not in out.read_text()
    assert set(result) >= {"date", "commit", "machine", "versions", "rounds", "command", "contestants"}
    assert result["contestants"] == dict.fromkeys(("torchvision-v1", "torchvision-v2", "accel-cpu"), "runs")

    train = entries(result, "train")
    assert list(train) == ["torchvision v1, PIL", "torchvision v2, tensors", "accel, cpu"]
    assert all(len(each["rounds"]) == 1 and each["threads"] == 1 for each in train.values())
    assert train["torchvision v1, PIL"]["ratio"] == 1
    assert train["accel, cpu"]["exact"]
    assert 0 < train["torchvision v2, tensors"]["difference in levels"]["max"] <= 2  # its decoder's or its resize's
    assert result["workloads"]["train"]["cores"] == [0] or len(result["workloads"]["train"]["cores"]) == 1
    assert list(result["workloads"]["recording"]["microseconds per image"]["accel, recording only"]) == [
        *("load", "RandomResizedCrop", "RandomHorizontalFlip", "ToTensor", "Normalize", "stack", "CPU in all"),
    ]
    shown = capsys.readouterr().out
    assert "ImageNet train pipeline" in shown
    assert "RandomHorizontalFlip" in shown


@pytest.mark.parametrize("pipeline", ["detection", "decode", "jitter", "randaugment", "trivialaugment", "large_eval"])
def test_accel_is_exact_in_the_other_pipelines(
    monkeypatch: pytest.MonkeyPatch, pipeline: str, image_folder: Path, tmp_path: Path
) -> None:
    make = side_by_side.jpegs
    monkeypatch.setattr(side_by_side, "jpegs", lambda setting, size, count: make(setting, (300, 280), count))
    found = entries(run(image_folder, tmp_path / "result.json", pipeline), pipeline)
    assert list(found) == ["torchvision v1, PIL", "accel, cpu"]
    assert all(each["rounds"] for each in found.values())


def test_a_red_check_reports_nothing(
    monkeypatch: pytest.MonkeyPatch, image_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_wrong(monkeypatch)
    out = tmp_path / "result.json"
    arguments = ["train", "--against", "accel-cpu", "--rounds", "1", "--data", str(image_folder), "--out", str(out)]
    assert main(arguments) == 1
    shown = capsys.readouterr()
    assert not shown.out
    assert "accel, cpu differs from torchvision v1, PIL" in shown.err
    assert ".jpg" in shown.err
    assert not out.exists()


@pytest.mark.parametrize("arguments", [("nonsense",), ("--against", "nonsense"), ("--data", "nowhere")])
def test_wrong_usage(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("bench: ")
    assert not shown.out


def test_names_are_unique() -> None:
    assert len({each.title for each in CONTESTANTS.values()}) == len(CONTESTANTS)
    assert len({each.title for each in WORKLOADS.values()}) == len(WORKLOADS)
    assert all(name == each.name for name, each in WORKLOADS.items())
    assert all(set(PIPELINES) >= each.pipelines >= each.own_draws for each in CONTESTANTS.values())


# -- what contestants are given -----------------------------------------------------------------------------


@pytest.mark.parametrize("pipeline", ["train", "cifar", "detection"])
def test_draws_are_torchvisions(paths: list[str], pipeline: str) -> None:
    """Rebuilt by hand from its draws, an epoch equals torchvision's."""
    from torchvision.transforms import functional as F

    chosen = PIPELINES[pipeline]
    images = pixels(12) if chosen.source == "pixels" else Images(files=paths)
    job = Job(chosen, images, range(12), 12)
    load = CONTESTANTS["torchvision-v1"]
    with load.open(job) as epoch:
        (wanted,) = epoch(3)
    drawn = job.draws(3)
    assert any(draw.flip for draw in drawn)
    assert not all(draw.flip for draw in drawn)
    images_wanted = wanted[0::2] if chosen.boxes else wanted
    for index, (draw, expected) in enumerate(zip(drawn, images_wanted, strict=True)):
        image = _open(images[index])
        image = F.pad(image, chosen.pad)
        if draw.box is not None:
            image = F.crop(image, *draw.box)
        if draw.size is not None:
            image = F.resize(image, list(draw.size))
        if draw.flip:
            image = F.hflip(image)
        torch.testing.assert_close(F.normalize(F.to_tensor(image), chosen.mean, chosen.std), expected)
        if chosen.boxes:
            torch.testing.assert_close(boxes_after(job.sizes[index], draw), wanted[2 * index + 1])


def _open(source: Any) -> Any:
    from PIL import Image

    return Image.open(source).convert("RGB") if isinstance(source, str) else Image.fromarray(source)


def test_boxes_lie_in_the_image() -> None:
    boxes = boxes_of((30, 50))
    assert (boxes[:, :2] < boxes[:, 2:]).all()
    assert (boxes >= 0).all()
    assert (boxes <= torch.tensor([50, 30, 50, 30])).all()
    flipped = boxes_after((30, 50), Draw(size=(60, 100), flip=True))
    assert torch.equal(flipped[:, 0], 100 - 2 * boxes[:, 2])


# -- checks -------------------------------------------------------------------------------------------------


class _Wrong(TorchvisionV1):
    """A contestant that is wrong from its n-th epoch on, in one value."""

    key = title = "wrong"

    def __init__(self, first: int, by: float = 0.001) -> None:
        self.first, self.by = first, by

    @contextmanager
    def open(self, job: Job) -> Iterator[Epoch]:
        with super().open(job) as right:

            def epoch(seed: int) -> Iterator[TensorBatch]:
                for batch in right(seed):
                    if seed >= self.first:
                        batch[0][0, 0, 0] += self.by
                    yield batch

            yield epoch


@pytest.mark.parametrize("first", [0, 1])
def test_wrong_values_are_found_before_and_while_it_is_timed(paths: list[str], first: int) -> None:
    job = job_of(paths[:4])
    right = Entry("right", V1, job)
    with pytest.raises(Red, match=r"wrong differs from right, first in .*\.jpg: .*% of the values differ"):
        take_turns([right, Entry("wrong", _Wrong(first), job, right)], rounds=1)


def test_differences_of_the_inexact_are_stated(paths: list[str]) -> None:
    job = job_of(paths[:4])
    inexact = _Wrong(0, by=10 / 255 / 0.229)
    inexact.exact = False
    right = Entry("right", V1, job)
    other = Entry("other", inexact, job, right)
    take_turns([right, other], rounds=2)
    stated = other.stats
    assert stated is not None
    assert stated.largest == pytest.approx(10, abs=1e-3)
    assert stated.share == pytest.approx(1 / (2 * 3 * 224 * 224))
    assert stated.mean == pytest.approx(10 * stated.share, rel=1e-3)


def test_checks_can_fail() -> None:
    batch = torch.randn(2, 3, 4, 4)
    compare(batch, batch.clone(), ["a", "b"])
    check_likely(batch, batch.flip(3))
    for wrong in (batch[:1], batch.double(), batch[..., :3]):
        for check in (lambda b: compare(batch, b, ["a", "b"]), lambda b: check_likely(batch, b)):
            with pytest.raises(Different):
                check(wrong)
    with pytest.raises(Different, match="not finite"):
        compare(batch, batch / 0, ["a", "b"], ErrorStats(levels(PIPELINES["train"])))
    with pytest.raises(Different, match="mean"):
        check_likely(batch, batch + 5)


class _Broken(Contestant):
    key = title = "broken"
    pipelines = frozenset(PIPELINES)

    def __init__(self, fail: Callable[[], Any]) -> None:
        self.fail = fail

    @contextmanager
    def open(self, job: Job) -> Iterator[Epoch]:
        self.fail()
        yield lambda seed: iter(())


def _raise() -> None:
    raise ValueError("its library is too old")


def test_a_contestant_that_fails_is_listed(paths: list[str]) -> None:
    job = job_of(paths[:2])
    missing = _Broken(_raise)
    missing.modules = ("no_such_module",)
    others = {"fails": _Broken(_raise), "makes nothing": _Broken(int), "missing": missing}
    right = Entry("right", V1, job)
    failed = [Entry(name, each, job, right) for name, each in others.items()]
    take_turns([right, *failed], rounds=1)
    assert len(right.rounds) == 1
    reasons = [each.why_not or "" for each in failed]
    assert "its library is too old" in reasons[0]
    assert "the epoch ends before it" in reasons[1]
    assert reasons[2] == "not installed: no_such_module"
    assert not any(each.rounds for each in failed)
    notes = tables({"title": "t", "entries": [measure.as_data(each, right) for each in failed]})[0].notes
    assert len(notes) == 3


# -- figures ------------------------------------------------------------------------------------------------


def test_medians_and_ratios_are_those_of_the_rounds() -> None:
    images = pixels(10)
    long = Job(PIPELINES["cifar"], images, range(10), 5)
    short = Job(PIPELINES["cifar"], images, range(5), 5)
    first, other = Entry("first", V1, long), Entry("other", V1, short)
    first.rounds = [Cost(9, 4), Cost(2, 3), Cost(3, 8)]
    other.rounds = [Cost(1, 1), Cost(1, 1), Cost(0.5, 2)]
    assert (first.seconds, first.cpu_seconds) == (0.3, 0.4)
    assert measure.ratio(first, first) == 1
    assert measure.ratio(other, first) == 3  # of 4.5, 1 and 3
    data = measure.as_data(first, first)
    assert (data["lowest ms"], data["highest ms"]) == (200, 900)


def test_cpu_time_counts_processes_that_still_run(paths: list[str]) -> None:
    job, before = job_of(paths[:4] * 4, workers=1), set(costs.descendants())
    with V1.open(job) as epoch:
        begin = costs.cpu_seconds()
        assert len(list(epoch(0))) == 8
        assert set(costs.descendants()) > before
        assert costs.cpu_seconds() > begin
    assert set(costs.descendants()) <= before


def test_peak_memory_sees_what_is_gone_again() -> None:
    with usage.PeakMemory() as peak:
        with mmap(-1, 256 << 20) as held:  # fresh from the system
            held.write(bytes(256 << 20))
            peak.look()
        assert usage.resident(os.getpid()) < peak.highest
    assert peak.highest - peak.before >= 64 << 20  # beside it others' pages may have been given back


def test_pinned_is_undone() -> None:
    before = os.sched_getaffinity(0)
    with usage.pinned(1) as cores:
        assert os.sched_getaffinity(0) == set(cores)
        assert len(cores) == 1
    assert os.sched_getaffinity(0) == before


# -- the report ---------------------------------------------------------------------------------------------


def test_the_report_says_who_is_faster(monkeypatch: pytest.MonkeyPatch, image_folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(scaling, "_LEVELS", (0, 1))
    monkeypatch.setattr(scaling, "_memory", lambda setting, found: [])
    out = tmp_path / "result.json"
    result = run(image_folder, out, "train", "recording", "scaling", against="torchvision-v2")
    target = tmp_path / "made" / "REPORT.md"
    assert main(["report", str(out), "--out", str(target)]) == 0
    text = target.read_text()
    assert result["commit"][:10] in text
    assert "| torchvision v2, tensors |" in text
    assert "not run" not in text
    for name in ("train", "scaling"):
        assert f"](plots/{name}.png)" in text
        assert (target.parent / "plots" / f"{name}.png").read_bytes().startswith(b"\x89PNG")

    short = report.short([result])
    assert "submission only" in short

    ours, theirs = (entries(result, "train")[name] for name in ("accel, cpu", "torchvision v2, tensors"))
    theirs["median ms"] = 3.0
    theirs["rounds"] = [{**each, "seconds": each["seconds"] / 2} for each in ours["rounds"]]
    said = report.must_show(result["workloads"])
    assert "**Faster: torchvision v2, tensors, 3.000 ms (2.00x accel), pixels off by up to" in said
    theirs["rounds"] = [{**each, "seconds": each["seconds"] * 4} for each in ours["rounds"]]
    said = report.must_show(result["workloads"])
    assert "the fastest of all that ran; next is torchvision v2, tensors, 3.000 ms (0.25x accel), pixels off" in said
    assert "µs of host CPU an image" in said


def test_no_report_without_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path / "none.json"), "--out", str(tmp_path / "REPORT.md")]) == 2
    assert "run python -m bench first" in capsys.readouterr().err
    assert not (tmp_path / "REPORT.md").exists()


# -- feeding an accelerator ---------------------------------------------------------------------------------


def test_feed_and_memory(image_folder: Path, tmp_path: Path) -> None:
    result = run(image_folder, tmp_path / "result.json", "feed", against="torchvision-v1")
    rows = {each["name"]: each for each in result["workloads"]["feed"]["feed"]}
    assert "torchvision v1, PIL, 1 worker" in rows
    for dataset in ("", ", ImageFolder"):
        recipes = rows[f"accel, host part for an accelerator{dataset}, 1 worker"]
        assert set(recipes["needed"]) == {"3000", "5000", "10000"}
        assert all(0 <= share <= 1 for share in recipes["waiting"].values())


def test_a_device_that_does_nothing_declines_no_picture(monkeypatch: pytest.MonkeyPatch, paths: list[str]) -> None:
    """The memory that its report comes back to held something else before."""
    monkeypatch.setattr(Device, "pinned", lambda _, size: torch.full((size,), 255, dtype=torch.uint8))
    who, job, before = FolderRecipes(), job_of(paths, workers=1), accel.stats()["fallbacks"]
    with who.open(job) as epoch:
        for seed in range(3):
            with who.in_force(job):
                assert sum(map(len, epoch(seed))) == len(paths)
    assert accel.stats()["fallbacks"] == before


def test_recipes_cross_process_borders_as_files(monkeypatch: pytest.MonkeyPatch, paths: list[str]) -> None:
    monkeypatch.setattr(scaling, "_PROBED", 8)
    monkeypatch.setattr(scaling, "_BATCH", 4)
    decoded = scaling.probe(CONTESTANTS["accel-cpu"], 1, paths[:4])
    recorded = scaling.probe(Recipes("kept"), 1, paths[:4])
    assert decoded["bytes across process borders per image"] == 4 * 3 * 224 * 224
    files = sum(Path(path).stat().st_size for path in paths[:4]) / 4
    assert files < recorded["bytes across process borders per image"] + files / 2 < files + 3000
    assert recorded["peak MB"] > 50


def test_recipes_are_checked(monkeypatch: pytest.MonkeyPatch, image_folder: Path, tmp_path: Path) -> None:
    make_wrong(monkeypatch)
    arguments = ["feed", "--against", "accel-cpu", "--rounds", "1", "--data", str(image_folder), "--images", "4"]
    assert main([*arguments, "--out", str(tmp_path / "out.json")]) == 1
