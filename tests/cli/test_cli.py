"""The command line, and the rooms it shares with the benchmark: what it says, writes and exits with."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image, JpegImagePlugin

import accel
from accel.cli import command_line, samples
from accel.cli.arguments import Red, WrongUsage
from accel.cli.command_line import main
from accel.cli.data import folder, open_folder
from accel.cli.harness import Contestant, TensorBatch, check, measure
from accel.cli.pipelines import PIPELINES
from tests.cli.wrong import make_wrong

FAST = ("--rounds", "1", "--batch-size", "5")


def test_info_shows_versions_backends_and_decoders(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["info", "--json", str(tmp_path / "new" / "info.json")]) == 0
    shown = capsys.readouterr().out
    found = json.loads((tmp_path / "new" / "info.json").read_text())
    assert found["versions"]["accel"] == accel.__version__
    assert found["versions"]["torch"] in shown
    assert found["machine"]["cores"] >= 1
    assert found["backends"] == accel.image_backends()
    assert found["backends"]["cpu"] is None
    assert found["decoders"]["pillow"] is None
    for name in [*found["versions"], *found["backends"], *found["decoders"]]:
        assert name in shown


def test_info_gives_the_reason_where_a_backend_cannot_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accel, "image_backends", lambda: {"cpu": None, "other": "its library is missing"})
    assert main(["info"]) == 0
    assert "its library is missing" in capsys.readouterr().out


def test_compare_with_workers_in_a_process_of_its_own(image_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    command = [sys.executable, "-m", "accel", "compare", "--data", str(image_folder), "--workers", "2", *FAST]
    done = subprocess.run(
        [*command, "--json", str(file)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # torch's threads wait for each other on a busy machine
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "all tensors and labels equal" in done.stdout
    assert "img/s" in done.stdout
    assert "host CPU ms/image" in done.stdout
    result = json.loads(file.read_text())
    assert result["equal"] is True
    assert result["data"]["images"] == 12
    assert result["settings"]["workers"] == 2
    assert [each["name"] for each in result["contestants"]] == ["torchvision", "accel, cpu"]
    for each in result["contestants"]:
        assert len(each["rounds"]) == 1
        assert each["images per second"] > 0
        assert each["host CPU ms per image"] > 0
    assert str(image_folder) not in file.read_text()


@pytest.mark.parametrize("pipeline", ["train", "eval"])
def test_compare_takes_a_flat_folder(
    pipeline: str, paths: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in paths[:3]:
        (tmp_path / Path(path).name).write_bytes(Path(path).read_bytes())
    (tmp_path / "labels.csv").write_text("not an image")
    arguments = ["--data", str(tmp_path), "--workers", "0", "--threads", "1", "--pipeline", pipeline, *FAST]
    assert main(["compare", *arguments]) == 0
    shown = capsys.readouterr()
    assert f"{pipeline} pipeline, 3 images ({tmp_path.name})" in " ".join(shown.out.split())
    assert "skipped 1 file" in shown.err
    assert "labels.csv" in shown.err


def test_compare_may_allow_for_a_little(paths: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By how much an inexact backend differs is shown; another picture is different still, and so is a label."""
    arguments = ["--data", str(Path(paths[0]).parent), "--workers", "0", "--threads", "1", "--no-exact", *FAST]
    file = tmp_path / "result.json"
    assert main(["compare", *arguments, "--json", str(file)]) == 0
    assert "0.0% of the values differ" in " ".join(capsys.readouterr().out.split())
    result = json.loads(file.read_text())
    assert result["settings"]["options"]["exact"] is False
    assert result["apart"] == {"largest": 0, "mean": 0, "share": 0}
    with pytest.MonkeyPatch.context() as patch:
        make_wrong(patch)
        assert main(["compare", *arguments, "--json", str(file)]) == 0
        apart = json.loads(file.read_text())["apart"]
        assert 0.05 < apart["largest"] < 0.07  # 0.001 of a standard deviation of 0.229
    with pytest.MonkeyPatch.context() as patch:
        from accel.backends.cpu import CpuBackend

        right = CpuBackend.run_all
        patch.setattr(CpuBackend, "run_all", lambda self, *args: [each.flip(3) for each in right(self, *args)])
        assert main(["compare", *arguments]) == 1
    assert "levels on average" in capsys.readouterr().err


@pytest.fixture
def four_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make four pictures where a command would make many."""
    write = samples.write
    monkeypatch.setattr(samples, "write", lambda root, on_image: write(root, 4, on_image))


@pytest.mark.usefixtures("four_samples")
def test_compare_makes_its_own_images(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--workers", "0", *FAST]) == 0
    assert "4 images (made for the run)" in " ".join(capsys.readouterr().out.split())


def test_compare_shows_no_speeds_where_a_tensor_differs(
    monkeypatch: pytest.MonkeyPatch, image_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_wrong(monkeypatch)
    file = tmp_path / "result.json"
    assert main(["compare", "--data", str(image_folder), "--workers", "0", "--json", str(file), *FAST]) == 1
    shown = capsys.readouterr()
    assert "img/s" not in shown.out
    expected = Path(open_folder(image_folder).files[4])  # the last of the first batch
    assert str(expected) in shown.err.replace("\n", "")
    result = json.loads(file.read_text())
    assert result["equal"] is False
    assert result["difference"]["file"] == expected.name
    assert "contestants" not in result


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--backend", "nonsense"), "unknown image backend 'nonsense'"),
        (("--backend", "torchvision", "--threads", "1"), "takes no options"),
        (("--data", "nowhere/at/all"), "cannot read the folder nowhere/at/all: No such file"),
    ],
)
def test_compare_explains_wrong_usage(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *arguments]) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert not shown.out


@pytest.mark.parametrize("arguments", [("--rounds", "0"), ("--pipeline", "both"), ("--workers", "-1")])
def test_arguments_out_of_range_are_refused(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main(["compare", *arguments])
    assert exit.value.code == 2
    assert arguments[0] in capsys.readouterr().err


def test_compare_says_when_torchvision_cannot_load_the_images(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.jpg").write_bytes(b"no image")
    assert main(["compare", "--data", str(tmp_path), "--workers", "0", *FAST]) == 2
    assert "torchvision cannot load the images: UnidentifiedImageError" in capsys.readouterr().err


def test_a_folder_is_opened_in_the_same_order_every_time(image_folder: Path, paths: list[str]) -> None:
    data = open_folder(image_folder)
    assert data.files == open_folder(image_folder).files
    assert data.files != paths
    assert sorted(data.files) == sorted(paths)
    assert data.dataset.classes == ["cat", "dog"]
    assert open_folder(image_folder, limit=5).files == data.files[:5]
    assert data.repeated().files == data.files * 8


def test_a_tree_is_taken_without_what_lies_beside_it(image_folder: Path, paths: list[str], tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "none").mkdir()
    for target in (tmp_path / "one" / "a.jpg", tmp_path / "b.jpg"):
        target.write_bytes(Path(paths[0]).read_bytes())
    data = open_folder(tmp_path)
    assert data.files == [str(tmp_path / "one" / "a.jpg")]
    assert data.notes == ["left out 1 file beside the class folders"]


def test_a_folder_without_images_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing to see")
    with pytest.raises(WrongUsage, match="no images in"):
        open_folder(tmp_path)


def test_samples_are_the_same_every_time_and_of_many_kinds(tmp_path: Path) -> None:
    counted: list[int] = []
    for name in ("one", "two"):
        samples.write(tmp_path / name, 17, lambda: counted.append(1))
    one, two = (sorted((tmp_path / name).rglob("*.jpg")) for name in ("one", "two"))
    assert len(counted) == 34
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in two]
    kinds = set()
    for path in one:
        with Image.open(path) as image:
            kinds.add("grey" if image.mode == "L" else JpegImagePlugin.get_sampling(image))
    assert kinds == {"grey", 0, 1, 2}  # 4:4:4, 4:2:2 and 4:2:0


@pytest.mark.usefixtures("four_samples")
def test_made_images_are_removed_after_an_error() -> None:
    roots = []

    def stop() -> None:
        with folder(None) as (root, _):
            assert any(root.rglob("*.jpg"))
            roots.append(root)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stop()
    assert not roots[0].exists()


def contestant(
    name: str,
    change: Callable[[int, list[torch.Tensor]], list[torch.Tensor]] = lambda n, batch: batch,
    batches: int = 2,
    reference: Contestant | None = None,
) -> Contestant:
    """Random batches of three, each changed by ``change``."""

    def epoch(seed: int) -> Iterator[TensorBatch]:
        torch.manual_seed(seed)
        for number in range(batches):
            yield tuple(change(number, [torch.rand(3, 2, 2), torch.arange(3)]))

    return Contestant(name, epoch, lambda number: FILES[3 * number : 3 * number + 3], reference)


def in_second(
    change: Callable[[list[torch.Tensor]], object],
) -> Callable[[int, list[torch.Tensor]], list[torch.Tensor]]:
    def apply(number: int, batch: list[torch.Tensor]) -> list[torch.Tensor]:
        if number == 1:
            change(batch)
        return batch

    return apply


def fail(batch: list[torch.Tensor]) -> None:
    raise OSError("broken")


FILES = [f"{number}.jpg" for number in range(6)]


def test_check_passes_equal_contestants_and_restores_the_random_state() -> None:
    counted: list[int] = []
    state = torch.get_rng_state()
    reference = contestant("a")
    some = [reference, contestant("b", reference=reference), contestant("c", reference=reference)]
    assert check(some, counted.append) == {}
    assert [each.batches for each in some] == [2, 2, 2]
    assert all(each.first > 0 for each in some)
    assert counted == [3, 3]
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("change", "batches", "file", "what"),
    [
        (in_second(lambda batch: batch[0][1].add_(0.5)), 2, "4.jpg", "100% of the values differ"),
        (in_second(lambda batch: batch[1][2].add_(5)), 2, "5.jpg", "label 7 instead of 2"),
        (in_second(lambda batch: batch.__setitem__(0, batch[0].double())), 2, "3.jpg", "float64"),
        (in_second(fail), 2, "3.jpg", "in the batch of 3 files that begins with it, OSError: broken"),
        (in_second(lambda batch: batch.pop()), 2, "3.jpg", "3 tensors instead of 6"),
        (in_second(bool), 1, "3.jpg", "the epoch ends before it"),
        (in_second(bool), 3, "5.jpg", "the epoch goes on after it"),
    ],
)
def test_check_names_the_first_file_that_differs(change: Any, batches: int, file: str, what: str) -> None:
    """And goes on with those that do not."""
    reference, counted = contestant("a"), list[int]()
    others = [contestant("b", change, batches, reference), contestant("c", reference=reference)]
    (difference,) = check([reference, *others], counted.append).values()
    assert (difference.contestant, difference.reference, difference.file) == ("b", "a", file)
    assert what in difference.what
    assert counted == [3, 3]


def test_a_difference_on_the_clock_is_red() -> None:
    """One that comes with the second seed; and an epoch costs time and leaves the threads alone."""
    threads, reference = torch.get_num_threads(), contestant("a")
    same = contestant("b", reference=reference)
    same.threads = threads + 1
    check([reference, same])
    measure([reference, same], 2)
    assert torch.get_num_threads() == threads
    assert all(cost.seconds > 0 and cost.cpu_seconds >= 0 for each in (reference, same) for cost in each.rounds)
    assert len(same.rounds) == 2
    seeds: list[int] = []

    def later(seed: int) -> Iterator[TensorBatch]:
        seeds.append(seed)
        return contestant("b", lambda number, batch: [seed * batch[0], batch[1]]).epoch(seed)

    same.epoch = later
    with pytest.raises(Red, match=r"b differs from a, first in \d.jpg: 100% of the values differ"):
        measure([reference, same], 2)
    assert seeds == [1, 2]


# -- the command line ------------------------------------------------------------------------------------------------


HEAVY = {"torch", "torchvision", "numpy"}
COMMANDS = ("run", "compare", "verify", "cache", "info", "warm")
WRONG = (
    ("",),
    ("nonsense",),
    ("run",),
    ("run", "--backend", "nonsense", "script.py"),
    ("compare", "--rounds", "0"),
    ("compare", "--backend", "nonsense"),
    ("compare", "--backend", "torchvision", "--threads", "1"),
    ("compare", "--data", "nowhere"),
    ("verify",),
    ("verify", "nowhere"),
    ("verify", "{empty}"),
    ("verify", "{empty}", "--backend", "nonsense"),
    ("cache", "nonsense"),
    ("cache", "fill"),
    ("cache", "fill", "1PB", "--data", "{empty}"),
    ("cache", "verify", "/folder", "--data", "nowhere"),
    ("info", "--json"),
    ("warm", "--processes", "0"),
)


def imported(*words: str) -> tuple[int, set[str], str]:
    """The exit status of a command, the modules that it imported, and what it printed."""
    command = [sys.executable, "-X", "importtime", "-m", "accel", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    times = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    others = [line for line in done.stderr.splitlines() if line not in times]
    return done.returncode, {line.rpartition("|")[2].strip() for line in times}, "\n".join([done.stdout, *others])


@pytest.mark.parametrize(
    "words", [("--help",), ("--version",), *((command, "--help") for command in COMMANDS)], ids=str
)
def test_help_imports_no_torch(words: tuple[str, ...]) -> None:
    status, modules, printed = imported(*words)
    assert status == 0
    assert "accel" in printed
    assert modules & HEAVY == set()


@pytest.mark.parametrize("words", WRONG, ids=str)
def test_wrong_arguments_import_no_torch(words: tuple[str, ...], tmp_path: Path) -> None:
    status, modules, printed = imported(*(word.format(empty=tmp_path) for word in words if word))
    assert status == 2
    assert "Traceback" not in printed
    assert printed.strip().splitlines()[-1].startswith(("python -m accel", *COMMANDS))
    assert modules & HEAVY == set()


def test_a_command_shows_at_once_that_it_loads_torch() -> None:
    """And imports it, so that the tests above would see it."""
    status, modules, printed = imported("cache", "list", "/nowhere/at/all")
    assert status == 2
    assert modules >= HEAVY
    assert printed.splitlines()[1] == "loading torch and torchvision"


def test_all_commands_check_the_same_in_this_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"verify: no images in {tmp_path}\n"
    (tmp_path / "file").write_text("")
    assert main(["compare", "--data", str(tmp_path / "file")]) == 2
    assert "cannot read the folder" in capsys.readouterr().err


def test_pipelines_are_those_of_the_command_line() -> None:
    assert tuple(PIPELINES) == command_line.PIPELINES
