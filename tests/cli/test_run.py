"""``python -m accel run``: the script's process is what it is under Python alone, and its children have the switch."""

import io
import json
import os
import signal
import sys
import zipfile
from pathlib import Path

import pytest

from accel.cli import run
from accel.cli.command_line import main
from accel.processes.launch.environment import SITE
from accel.profiling import progress
from accel.profiling.measured import Measured
from accel.profiling.report import Report
from accel.system import stderr
from tests.cli.ended import ENDS, Ended, ended
from tests.support.helpers import python
from tests.support.processes import linux

RUN = ("-m", "accel", "run", "--backend", "cpu")


def assert_alike(*words: str, options: tuple[str, ...] = (), **how: object) -> Ended:
    """Status, output and errors are those of Python alone."""
    expected, found = ended(*options, *words, **how), ended(*options, *RUN, *words, **how)  # type: ignore[arg-type]
    for name in ("returncode", "stdout", "stderr"):
        assert getattr(found, name) == getattr(expected, name)
    return found


EVERYTHING = """
import os, sys, warnings
if __name__ == "__main__":
    print(sys.argv, sys.path, __file__, __spec__ and __spec__.name)
    print(sys.flags, sys.warnoptions, sys._xoptions, sys.stdout.line_buffering)
    print([type(each).__name__ for each in sys.meta_path if type(each).__name__ != "SwitchOnImport"])
    print(sorted(sys.modules), sorted(set(os.environ) - {"ACCEL_RUN", "PYTHONPATH"}), os.getcwd())
    print(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else "")
    print(sys.stdin.read())
    sys.exit(sys.argv[1] if len(sys.argv) > 1 else 0)
"""


def test_the_process_is_that_of_python_alone(tmp_path: Path) -> None:
    script, package, archive = tmp_path / "script.py", tmp_path / "package", tmp_path / "archive.zip"
    package.mkdir()
    for file in (script, package / "__main__.py"):
        file.write_text(EVERYTHING)
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.writestr("__main__.py", EVERYTHING)
    how = {"cwd": tmp_path, "input": "typed", "environment": {"OMP_PROC_BIND": "true", "PYTHONUNBUFFERED": ""}}
    found = assert_alike("script.py", "left", "--backend", "x", "-m", "--", "-h", options=("-u", "-X", "dev"), **how)
    assert (found.returncode, found.stderr) == (1, "left\n")
    assert "typed" in found.stdout
    assert_alike("script.py", "--", "--profile", **how)
    for words in (("package",), (str(archive),), ("-m", "package", "-m", "x"), ("-m", "script")):
        assert_alike(*words, options=("-B", "-W", "ignore"), **how)
    assert_alike("-", "argument", **{**how, "input": "import sys\nprint(sys.argv, __name__)\n1 / 0"})


@linux
@pytest.mark.parametrize("how", ["raise", "import", "exit", "SIGINT", "SIGTERM", "SIGKILL"])
def test_it_ends_as_under_python_alone(tmp_path: Path, how: str) -> None:
    (tmp_path / "script.py").write_text(ENDS)
    (tmp_path / "torchvision.py").write_text("import os\nraise ImportError('there is none')\n")
    found = assert_alike("script.py", how, cwd=tmp_path)
    assert found.stdout == "begun\n"
    assert found.returncode == {"raise": 1, "import": 1, "exit": 5}.get(how) or -getattr(signal, how, 0)


ONLY = "import sys; 'accel' in sys.orig_argv"  # the launcher's own Python has one, too


def test_another_sitecustomize_is_chained(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import sitecustomize, sys\nprint(sitecustomize.__file__, sys.path)")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "sitecustomize.py").write_text(f"{ONLY} or print('chained', __name__)")
    found = assert_alike(str(tmp_path / "script.py"), environment={"PYTHONPATH": str(tmp_path / "other")})
    assert found.stdout.startswith(f"chained sitecustomize\n{tmp_path}")
    (tmp_path / "other" / "sitecustomize.py").write_text(f"{ONLY} or 1 / 0")
    assert_alike(str(tmp_path / "script.py"), environment={"PYTHONPATH": str(tmp_path / "other")})


CHILDREN = """
import multiprocessing, subprocess, sys
from concurrent.futures import ProcessPoolExecutor

class Mine:
    def __init__(self, number):
        self.number = number

def known(mine):
    return mine.number, sorted({"accel", "json", "torch", "torchvision"} & set(sys.modules))

def chosen():
    import torchvision, accel
    return accel.get_image_backend(), getattr(accel.processes.switch.current().options, "threads", None)

def in_pool(method, function, *arguments):
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(method)) as pool:
        return pool.submit(function, *arguments).result()

def in_python():
    code = "import accel, torchvision; from accel.processes import switch; "
    code += "print(accel.get_image_backend(), switch.current().options.threads)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

if __name__ == "__main__":
    assert known(Mine(1)) == (1, [])
    for method in ("spawn", "forkserver"):
        assert in_pool(method, known, Mine(2)) == (2, [])
    assert in_pool("spawn", chosen) == ("cpu", 1), "without the switch in this process"
    assert in_python() == ["cpu", "1"]

    import torchvision
    assert [each for each in sys.meta_path if type(each).__name__ == "SwitchOnImport"] == []
    assert chosen() == in_pool("fork", chosen) == ("cpu", 1)
    import accel
    with accel.image_backend("torchvision"):
        assert in_pool("spawn", chosen)[0] == "torchvision"
    accel.set_image_backend("cpu", threads=2)
    assert in_python() == ["cpu", "2"]
    accel.set_image_backend("torchvision")
    assert in_pool("forkserver", chosen)[0] == "torchvision"
    code = "import torchvision, sys; print('accel' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout.split() == [b"False"]
    print("done")
"""


@pytest.mark.sweep
def test_children(tmp_path: Path) -> None:
    """By every start method; the script's own choice goes before what was told, also in what it starts."""
    (tmp_path / "script.py").write_text(CHILDREN)
    found = ended(*RUN, "--option", "threads=1", "script.py", cwd=tmp_path)
    assert (found.returncode, found.stdout) == (0, "done\n"), found.stderr


RANKS = """
import sys
import torch.distributed
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import datasets, transforms

torch.distributed.init_process_group("gloo")
data = datasets.ImageFolder(sys.argv[1], transforms.ToTensor())
for images, _ in DataLoader(data, 1, sampler=DistributedSampler(data), num_workers=1):
    images.sum()
print(f"rank {torch.distributed.get_rank()}: {sys.modules['accel'].stats()['images']}", flush=True)
torch.distributed.destroy_process_group()
"""


LOADER = """
import sys, torch
from torch.utils.data import DataLoader
from torchvision import datasets, transforms as T

if __name__ == "__main__":
    torch.manual_seed(0)
    steps = T.Compose([T.RandomResizedCrop(32), T.ToTensor()])
    loader = DataLoader(datasets.ImageFolder(sys.argv[1], steps), 5, num_workers=1, multiprocessing_context=sys.argv[2])
    accel = sys.modules.get("accel")
    print([images.double().sum().item() for images, _ in loader], accel and accel.stats()["images"])
"""


@pytest.mark.sweep
def test_ranks(image_folder: Path, tmp_path: Path) -> None:
    """torchrun's: processes that it starts anew."""
    (tmp_path / "script.py").write_text(RANKS)
    words = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "script.py")
    found = ended(*RUN, *words, str(image_folder), cwd=tmp_path, environment={"OMP_NUM_THREADS": "1"})
    assert found.returncode == 0, found.stderr
    assert sorted(found.stdout.splitlines()) == ["rank 0: 6", "rank 1: 6"]


def test_a_script_without_a_line_of_accel(image_folder: Path, tmp_path: Path) -> None:
    """The same values, from workers that accel reached."""
    (tmp_path / "script.py").write_text(LOADER)
    plain = python(LOADER, str(image_folder), "fork")
    found = ended(*RUN, "script.py", str(image_folder), "spawn", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    assert plain.endswith("] None\n")
    assert found.stdout == plain.replace("None", "12")
    said = (
        "accel run: accel is on (backend 'cpu'): 12 images computed by this process and its workers, all the fast way."
    )
    assert found.stderr.splitlines() == [said], "by the script's process, and by none that it starts"


@pytest.mark.parametrize("content", ["garbage", '{"backend": "cpu"}', "[" * 9999])
def test_an_environment_that_accel_did_not_write_is_refused(content: str, tmp_path: Path) -> None:
    told = {"ACCEL_RUN": content, "PYTHONPATH": str(SITE)}
    found = ended("-c", "print('begun')\nimport torchvision\nprint('never')", cwd=tmp_path, environment=told)
    assert (found.returncode, found.stdout) == (2, "begun\n")
    assert found.stderr.startswith("accel run: ACCEL_RUN was not set by `python -m accel run`")
    assert "Traceback" not in found.stderr


def test_what_is_wrong_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "script.py").write_text("print('begun')\nimport torchvision\nprint('never')")
    found = ended(*RUN, "--option", "thread=1", "script.py", cwd=tmp_path)
    assert (found.returncode, found.stdout) == (2, "begun\n")
    assert found.stderr.startswith("accel run: backend 'cpu' has no option 'thread'")
    assert "Traceback" not in found.stderr
    assert main(["run", "--backend", "none", "script.py"]) == 2
    assert "run: unknown image backend 'none'; known are 'auto', 'torchvision', 'cpu'" in capsys.readouterr().err
    for option in ("-E", "-I", "-S"):
        found = ended(option, *RUN, "script.py", cwd=tmp_path)
        assert found.returncode == (2 if option != "-S" else 1)
    with pytest.raises(SystemExit):
        main(["run", "--option", "threads", "script.py"])
    assert main(["run", "--backend", "torchvision", "--option", "threads=1", "script.py"]) == 2
    assert "takes no options" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (["-m", "accel", "run", "x"], []),
        (["-u", "-X", "dev", "-m", "accel", "run", "x"], ["-u", "-X", "dev"]),
        (["-maccel", "run", "x"], []),
        (["-W", "ignore", "-Bm", "accel", "run", "x"], ["-W", "ignore", "-B"]),
        (["-um", "other", "run", "x"], None),
        (["-m", "other.accel", "run", "x"], None),
        (["script.py", "run", "x"], None),
    ],
)
def test_pythons_own_options(monkeypatch: pytest.MonkeyPatch, words: list[str], options: list[str] | None) -> None:
    """What imports accel may be a package of somebody else's that has a command named run."""
    monkeypatch.setattr(sys, "orig_argv", ["python", *words])
    monkeypatch.setattr(sys, "argv", ["-m", "run", "x"] if words[0] != "script.py" else words)
    assert run.interpreter_options() == options


def test_values_of_options() -> None:
    given = ["a=2", "b=False", "c=None", "d=cpu", "e=cuda:0", "f=", "g={1, 2}", "h=a=b"]
    expected = [2, False, None, "cpu", "cuda:0", "", "{1, 2}", "a=b"]
    assert [run._option(text)[1] for text in given] == expected
    json.dumps(expected)


# -- where nobody reads standard error, or there is none -------------------------------------------------------------


TRAINS = """
import torch, torchvision
from torch.utils.data import DataLoader
for _ in range(2):
    for _ in DataLoader(torch.zeros(40), 2):
        pass
print("trained")
"""


@linux
@pytest.mark.parametrize("kind", ["nobody reads it", "there is none"])
def test_standard_error_that_nobody_reads(kind: str, tmp_path: Path) -> None:
    """``2>&1 >FILE | head``, and ``2>&-``: a trial is announced as an epoch ends, a report shown; files are written."""
    (tmp_path / "script.py").write_text(TRAINS)
    (tmp_path / "start.py").write_text(f"""
import os, sys
reading, writing = os.pipe()
os.close(reading)
os.dup2(writing, 2) if {kind == "nobody reads it"} else os.close(2)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
""")
    words = ("-m", "accel", "run", "--backend", "torchvision", "--progress", "--json", "a.json", "--trace", "b.json")
    found = ended("start.py", *words, "script.py", cwd=tmp_path)
    assert (found.returncode, found.stdout) == (0, "trained\n")
    assert json.loads((tmp_path / "a.json").read_text())["batches"] == 40
    assert json.loads((tmp_path / "b.json").read_text())["traceEvents"]


@pytest.mark.parametrize("kind", ["none", "closed", "gone", "a file", "another"])
def test_a_line_on_standard_error(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream: io.TextIOBase | None = None
    if kind == "gone":
        reading, writing = os.pipe()
        os.close(reading)
        stream = os.fdopen(writing, "w")
    elif kind in ("closed", "a file"):
        stream = (tmp_path / "file").open("w+", encoding="ascii")
        stream.write("before\n")
    elif kind == "another":
        stream = io.StringIO()
    if kind == "closed":
        assert stream is not None
        stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    stderr.say("é")
    assert not stderr.is_terminal()
    assert progress.Line()._closed
    if kind in ("a file", "another"):
        assert stream is not None
        stream.seek(0)
        assert stream.read() == ("before\n\\xe9\n" if kind == "a file" else "é\n")
    if stream is not None:
        stream.close()  # nothing has stayed in its buffer that would fail now


def test_a_report_that_nobody_reads() -> None:
    """The error is the one that ``print`` raises, and standard output is left as it is."""

    class Gone(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        Report(Measured()).show(Gone())
