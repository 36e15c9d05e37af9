"""``python -m accel run --profile``: the command waits for the script, ends as it does, reports."""

import argparse
import json
import os
import pty
import signal
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from accel.cli import run, run_profile
from accel.processes.launch import environment, process
from accel.profiling import collect, loading, run_process
from accel.profiling.advice import Advice
from accel.profiling.measured import BatchTimes, Loader, Measured, Process, load
from accel.profiling.report import Report
from accel.system import log
from tests.cli.ended import ENDS, ended
from tests.support.processes import linux

RUN = ("-m", "accel", "run", "--backend", "cpu")
NOTHING = "accel run: nothing was measured: "


@linux
@pytest.mark.parametrize("how", ["raise", "exit", "SIGINT", "SIGTERM", "SIGKILL"])
def test_it_ends_as_the_script_does(tmp_path: Path, how: str) -> None:
    (tmp_path / "script.py").write_text(ENDS)
    expected = ended("script.py", how, cwd=tmp_path)
    found = ended(*RUN, "--profile", "script.py", how, cwd=tmp_path)
    assert (found.returncode, found.stdout) == (expected.returncode, expected.stdout)
    assert found.stderr.startswith(f"{expected.stderr}{NOTHING}")
    assert len(found.stderr.splitlines()) == len(expected.stderr.splitlines()) + 1


INTERRUPTED = """
import os, signal, time, torch, torchvision
from torch.utils.data import DataLoader
for number, _ in enumerate(DataLoader(torch.zeros(80), 2)):
    if number == 30:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)
"""


@linux
def test_ctrl_c_in_a_loop_over_a_loader(tmp_path: Path) -> None:
    """There is something to do at the end, and the script ends by the signal all the same."""
    (tmp_path / "script.py").write_text(INTERRUPTED)
    found = ended(*RUN, "--profile", "script.py", cwd=tmp_path)
    assert found.returncode == -signal.SIGINT, "as Python alone"
    assert "KeyboardInterrupt\naccel profile, " in found.stderr
    assert "31 batches of 2" in found.stderr


STARTED_ANEW = """
import torch, torchvision
from torch.utils.data import DataLoader
if __name__ == "__main__":
    for _ in DataLoader(torch.zeros(40), 2, num_workers=1, multiprocessing_context="spawn"):
        pass
"""


def test_workers_that_are_started_anew_under_torchvision(tmp_path: Path) -> None:
    """What they write to is sent to them but once."""
    (tmp_path / "script.py").write_text(STARTED_ANEW)
    words = ("-m", "accel", "run", "--backend", "torchvision", "--profile", "--json", "profile.json", "script.py")
    found = ended(*words, cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    assert json.loads((tmp_path / "profile.json").read_text())["stages"]["collate"]["count"] == 20


WAITS = """
import signal, sys, time
def handle(number, frame):
    print("got", signal.Signals(number).name, flush=True)
for name in ("SIGINT", "SIGTERM", "SIGUSR1"):
    signal.signal(getattr(signal, name), handle)
print("begun", flush=True)
for line in iter(sys.stdin.readline, "end\\n"):
    time.sleep(0.2)  # a second signal would come by now
    print("line", flush=True)
sys.exit(7)
"""


@linux
@pytest.mark.parametrize("ignored", [False, True])
def test_signals_are_handed_on_once(tmp_path: Path, ignored: bool) -> None:
    """Those that the command is sent; what a terminal sends comes to the script itself.

    Also those that were ignored when the command was started, as a shell does for what it runs in the background.
    """
    (tmp_path / "script.py").write_text(WAITS)
    words = [sys.executable, *RUN, "--profile", "script.py"]
    words = ["/bin/sh", "-c", 'trap "" INT QUIT; exec "$@"', "sh", *words] if ignored else words
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(words, cwd=tmp_path, text=True, start_new_session=True, **pipes) as started:
        assert started.stdin is not None
        assert started.stdout is not None
        assert started.stdout.readline() == "begun\n"
        for name in ("SIGINT", "SIGTERM", "SIGUSR1"):
            started.send_signal(getattr(signal, name))
            assert started.stdout.readline() == f"got {name}\n"
        assert started.communicate("end\n", timeout=60)[0] == ""
    assert started.returncode == 7

    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.execv(words[0], words)
    shown = b""

    def show(text: bytes) -> None:
        nonlocal shown
        while text not in shown:
            shown += os.read(terminal, 1024)

    show(b"begun")
    os.write(terminal, b"\x03")
    show(b"got SIGINT")
    os.write(terminal, b"a\nend\n")
    show(b"line")
    assert shown.count(b"got") == 1
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


TRAINS = """
import os, subprocess, sys, torch
from torch.utils.data import DataLoader
from torchvision import datasets, transforms as T

if __name__ == "__main__":
    if len(sys.argv) == 2:  # starts ranks
        environment = {**os.environ, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
        words = [sys.executable, __file__, sys.argv[1]]
        ranks = [subprocess.Popen([*words, rank], env={**environment, "RANK": rank}) for rank in "01"]
        sys.exit(max(rank.wait() for rank in ranks))
    data = datasets.ImageFolder(sys.argv[1], T.Compose([T.RandomResizedCrop(32), T.ToTensor()]))
    loader = DataLoader(torch.utils.data.ConcatDataset([data] * 4), 4, num_workers=1)
    for images, _ in loader:
        images.sum()
    print("workers", loader.num_workers, loader.prefetch_factor, flush=True)
    if sys.argv[2] == "fail":
        raise ValueError("mine")
"""


def test_a_report_on_a_script_that_fails(image_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(TRAINS)
    words = ("--json", "report.json", "--trace", "new/trace.json", "script.py", str(image_folder), "fail")
    with tempfile.TemporaryDirectory() as temporary:  # of a short name: sockets are made in it
        found = ended(*RUN, *words, cwd=tmp_path, environment={"TMPDIR": temporary})
        left = list(Path(temporary).glob("accel*"))
    assert (found.returncode, found.stdout) == (1, "workers 1 2\n")
    assert not left
    assert "ValueError: mine\naccel profile" in found.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["batches"], report["images"], report["backend"]) == (12, 48, "cpu")
    assert report["stages"]["decode"]["count"] >= 48
    trace = json.loads((tmp_path / "new" / "trace.json").read_text())["traceEvents"]
    assert {each["args"]["name"] for each in trace if each["name"] == "process_name"} >= {"main process"}


def test_a_report_on_a_script_that_fails_in_its_first_batch(tmp_path: Path) -> None:
    script = "from torch.utils.data import DataLoader\nimport torchvision\n"
    (tmp_path / "script.py").write_text(
        f"{script}for _ in DataLoader([1, 2, 3], 2, collate_fn=lambda _: {{}}[7]): pass"
    )
    found = ended(*RUN, "--json", "report.json", "--trace", "trace.json", "script.py", cwd=tmp_path)
    assert found.returncode == 1
    assert "KeyError: 7\naccel profile" in found.stderr
    assert "it ended with KeyError: 7" in found.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["batches"], report["failed"], len(report["loaders"])) == (0, "KeyError: 7", 1)
    assert report["stages"]["collate"]["count"]


@linux
def test_what_cannot_be_written_is_said(image_folder: Path, tmp_path: Path) -> None:
    """Before the script runs, where it is known by then; later, its status and the report on the screen stay."""
    (tmp_path / "script.py").write_text("import os, sys\nos.makedirs('late.json')\n" + TRAINS)
    early = ended(*RUN, "--trace", "script.py/trace.json", "script.py", cwd=tmp_path)
    assert (early.returncode, early.stdout) == (2, "")
    assert early.stderr == "accel run: script.py/trace.json cannot be written\n"
    found = ended(*RUN, "--trace", "late.json", "script.py", str(image_folder), "0", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    assert "bottleneck: " in found.stderr
    assert "accel run: late.json could not be written: " in found.stderr


@linux
def test_a_script_that_is_killed_leaves_no_trace(image_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(f"{TRAINS}\n    import os\n    os.kill(os.getpid(), 9)\n")
    with tempfile.TemporaryDirectory() as temporary:
        how = {"cwd": tmp_path, "environment": {"TMPDIR": temporary}}
        assert ended(*RUN, "--trace", "trace.json", "script.py", str(image_folder), "0", **how).returncode == -9
        assert not list(Path(temporary).glob("accel-*"))


@linux
@pytest.mark.parametrize("when", ["import os", "    for images, _ in loader:"])
def test_a_process_that_outlives_the_command_goes_on(image_folder: Path, tmp_path: Path, when: str) -> None:
    """The folder for what it measures has gone: before it begins, or before it ends."""
    gone = "__import__('shutil').rmtree(__import__('json').loads(os.environ['ACCEL_RUN'])['profile']['folder'], True)"
    place = f"{when}, sys; {gone}; import os" if when == "import os" else f"{when}\n        {gone}"
    (tmp_path / "script.py").write_text(TRAINS.replace(when, place))
    found = ended(*RUN, "--trace", "trace.json", "script.py", str(image_folder), "0", cwd=tmp_path)
    assert (found.returncode, found.stdout) == (0, "workers 1 2\n"), found.stderr
    assert found.stderr.startswith(NOTHING)


@pytest.mark.sweep
def test_ranks_make_one_report(image_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(TRAINS)
    found = ended(*RUN, "--json", "report.json", "script.py", str(image_folder), cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["batches"], report["machine"]["world_size"]) == (24, 2)
    assert len({loader["pid"] for loader in report["loaders"]}) == 2


@pytest.mark.sweep
def test_advice_is_tried(image_folder: Path, tmp_path: Path) -> None:
    """The script is run again, and what is measured then stands beside what was predicted."""
    (tmp_path / "script.py").write_text(TRAINS)
    found = ended(*RUN, "--try", "--json", "report.json", "script.py", str(image_folder), "0", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    first = next((each for each in report["advice"] if each["change"]), None)
    if first is None:
        assert "there is no advice that could be tried" in found.stderr
        return
    assert found.stdout.count("workers") == 2
    assert report["tried"]["change"] == first["change"]
    assert report["tried"]["measured_rate"] > 0
    assert found.stderr.index("accel run: the script will run twice") < found.stderr.index("accel profile")
    mark = found.stderr.index("accel run: a second run, with")
    assert found.stderr.index("tried: ", mark) > 0


def test_arguments_of_loaders_like_one_are_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    data = TensorDataset(torch.arange(12))
    like = {"dataset": "torch.utils.data.dataset.TensorDataset", "num_workers": 0, "batch_size": 4}
    change = {"num_workers": 2, "prefetch_factor": 3}
    for batch_size, workers in ((4, 2), (3, 0)):
        loader = DataLoader.__new__(DataLoader)
        run_process._construct(DataLoader.__init__, loader, data, batch_size, shuffle=True, change=change, like=like)
        assert (loader.num_workers, loader.batch_size) == (workers, batch_size)
        assert type(loader.sampler).__name__ == "RandomSampler"


def test_what_a_second_run_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of the loader, of the backend, of its options; and how the launcher passes it on."""
    report = Report(Measured())
    slow = mock.Mock(loader=Loader(0, batch_size=4, num_workers=1, dataset="a.B"))
    monkeypatch.setattr(Report, "flow", slow)
    like = {"dataset": "a.B", "num_workers": 1, "batch_size": 4}
    expected: list[tuple[dict[str, Any], dict[str, Any], tuple[str, dict[str, Any]]]] = [
        ({"num_workers": 4}, {"loader": {"change": {"num_workers": 4}, "like": like}}, ("cpu", {"exact": True})),
        ({"backend": "reference"}, {}, ("reference", {})),
        ({"threads": 2}, {}, ("cpu", {"exact": True, "threads": 2})),
    ]
    told: list[dict[str, Any]] = []

    def ran(words: list[str], given: dict[str, str]) -> int:
        told.append(json.loads(given[environment.VARIABLE]))
        return 0

    monkeypatch.setattr(process, "ended", ran)
    for change, profile, _ in expected:
        found, other = run_profile._changes(Advice("text", change, 1.0, 2.0, "", True), report)
        assert found == profile
        arguments = argparse.Namespace(backend="cpu", option=[("exact", True)], limit_threads=False, tune_file=None)
        run_profile._measured([], partial(run.variables_for, arguments), found, **other)
    assert [(each["backend"], each["options"]) for each in told] == [row[2] for row in expected]
    assert [each["profile"].get("loader") for each in told] == [row[1].get("loader") for row in expected]


@pytest.mark.parametrize("trial", [True, False])
def test_a_second_run_tries_no_other_backend(trial: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "ends", [])
    monkeypatch.setattr(loading, "listeners", [])
    monkeypatch.setattr(loading.records, "samples", {1: None})
    for owner, name in ((run_process, "Finalize"), (collect, "start"), (collect, "stop")):
        monkeypatch.setattr(owner, name, mock.Mock())
    now = run_process._Profile({"folder": str(tmp_path), **({} if trial else {"trial": False})})
    now.start()
    assert bool(loading.ends) == trial
    collect.stop.return_value.loaders = []  # type: ignore[attr-defined]
    now.end()
    assert bool(loading.records.samples) == trial
    told = mock.Mock(return_value={})
    monkeypatch.setattr(process, "ended", lambda *given: 0)
    monkeypatch.setattr(run_profile, "_changes", lambda *given: ({}, {}))
    run_profile._try(mock.Mock(advice=[mock.Mock(change={"threads": 2}, text="")]), [], told, False)
    assert told.call_args.args[0]["trial"] is False


def test_what_was_left_is_whole_and_put_together(tmp_path: Path) -> None:
    assert load(tmp_path) is None
    for pid in (11, 12):
        measured = Measured(
            processes=[Process(pid, "main", rank=pid - 11)],
            loaders=[Loader(0)],
            batches=[BatchTimes(0, 0, number, 4, number, 10) for number in range(3)],
        )
        for _ in range(2):  # the later one takes the place of the one before
            measured.save(tmp_path / f"{pid}.pickle")
    (tmp_path / "13.new").write_text("{half")
    whole = load(tmp_path)
    assert whole is not None
    assert [(each.pid, each.rank) for each in whole.processes] == [(11, 0), (12, 1)]
    assert {(each.pid, each.loader) for each in whole.batches} == {(11, 0), (12, 1)}
    assert len(whole.batches) == 6


def test_a_choice_is_told_to_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(environment.VARIABLE, raising=False)
    environment.choose("cpu", {})
    assert environment.VARIABLE not in os.environ, "this process was told nothing"
    before = {"PYTHONPATH": os.pathsep.join(["", "mine", str(environment.SITE)]), "OTHER": "x"}
    made = environment.with_settings(before, "cpu", {"threads": 2}, {"folder": None})
    assert made["PYTHONPATH"].split(os.pathsep) == [str(environment.SITE), "", "mine"]
    assert environment.with_settings({}, "cpu", {})["PYTHONPATH"] == str(environment.SITE)
    monkeypatch.setenv(environment.VARIABLE, made[environment.VARIABLE])
    environment.choose("cuda", {"device": "cpu"})
    told = environment.settings()
    assert told is not None
    assert (told["backend"], told["options"], told["profile"]) == ("cuda", {"device": "cpu"}, {"folder": None})
    said: list[tuple[Any, ...]] = []
    monkeypatch.setattr(log, "note", lambda *text: said.append(text))
    environment.choose("cpu", {"odd": object()})
    told = environment.settings()
    assert told is not None
    assert (told["backend"], told["options"], len(said)) == ("torchvision", {}, 1)


@linux
@pytest.mark.parametrize("foreground", [False, True])
def test_what_a_terminal_sends_is_not_handed_on(monkeypatch: pytest.MonkeyPatch, foreground: bool) -> None:
    sent: list[int] = []

    class Program:
        send_signal = sent.append

        def wait(self) -> int:
            for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
                signal.raise_signal(number)
            return 4

    monkeypatch.setattr(process, "_in_foreground", lambda: foreground)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: Program())
    assert process.ended(["program"], {}) == 4
    assert sent == ([signal.SIGTERM] if foreground else [signal.SIGINT, signal.SIGQUIT, signal.SIGTERM])


def test_a_status_is_passed_on() -> None:
    assert process.end_as(3) == 3
    assert process.ended([sys.executable, "-c", "import sys; sys.exit(5)"], os.environ) == 5
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
