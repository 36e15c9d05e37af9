"""An interrupt (Ctrl-C) that arrives in a finalizer, where Python drops it."""

import pytest

from tests.support.processes import finished, linux, started

pytestmark = linux

LOST = """
import atexit, os, signal, sys, time, accel, numpy
from accel.system import memory

def what():
    {what}
    time.sleep(0)
    print("went on")

class Finalized:
    def __del__(self):
        what()

def leased():
    memory.lease(numpy.zeros(9, numpy.uint8), 9).on_release = what

accel.set_image_backend(sys.argv[1])
{before}
try:
    {then}
    time.sleep(float(sys.argv[2]))
    print("nothing came")
except KeyboardInterrupt:
    print("interrupted")
"""
INTERRUPT = "os.kill(os.getpid(), signal.SIGINT)"


def run(backend: str, seconds: float, then: str, what: str = INTERRUPT, before: str = "") -> tuple[int, str, str]:
    return finished(started(LOST.format(what=what, then=then, before=before), backend, str(seconds)))


@pytest.mark.parametrize("then", ["leased()", "time.sleep(0.3); leased()"])
def test_one_in_a_finalizer_of_accels_comes_again(then: str) -> None:
    """It ends a system call that waits, too."""
    assert run("cpu", 60, then) == (0, "interrupted\n", "")


@pytest.mark.parametrize(("backend", "then"), [("torchvision", "leased()"), ("cpu", "Finalized()")])
def test_others_are_pythons(backend: str, then: str) -> None:
    """Where accel steps aside, and in another class's finalizer."""
    status, out, err = run(backend, 0.3, then)
    assert (status, out) == (0, "nothing came\n")
    assert "KeyboardInterrupt" in err


@pytest.mark.parametrize("hook", ["sys.unraisablehook", "None"])
def test_other_errors_are_printed(hook: str) -> None:
    before = f"accel.set_image_backend('torchvision'); sys.unraisablehook = {hook}; accel.set_image_backend('cpu')"
    status, out, err = run("cpu", 0.3, "leased()", "1 // 0", before)
    assert (status, out) == (0, "nothing came\n")
    assert "ZeroDivisionError" in err


def test_a_program_that_handles_them_is_told_of_one() -> None:
    handler = "def handle(*_):\n    print('told')\n    raise KeyboardInterrupt\nsignal.signal(signal.SIGINT, handle)"
    status, out, err = run("cpu", 0.3, "leased()", before=handler)
    assert (status, out) == (0, "told\nnothing came\n")
    assert "KeyboardInterrupt" in err


def test_one_while_the_program_ends_ends_one_function() -> None:
    before = "atexit.register(print, 'saved')\natexit.register(what)"
    status, out, err = run("cpu", 0, "pass", before=before)
    assert (status, out) == (0, "nothing came\nsaved\n")
    assert "KeyboardInterrupt" in err
