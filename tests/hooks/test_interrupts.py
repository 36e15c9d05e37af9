"""An interrupt (Ctrl-C) that arrives in a finalizer, where Python drops it."""

import pytest

from tests.support.processes import finished, linux, started

INTERRUPTED = """
import os, signal, sys, time, accel

class Finalized:
    def __del__(self):
        {what}
        time.sleep(0)
        print("went on")

accel.set_image_backend(sys.argv[1])
try:
    for _ in range(int(sys.argv[2])):
        Finalized()
    time.sleep(int(sys.argv[3]))
    print("nothing came")
except KeyboardInterrupt:
    print("interrupted")
"""
INTERRUPT = INTERRUPTED.format(what="os.kill(os.getpid(), signal.SIGINT)")


@linux
@pytest.mark.parametrize("times", ["1", "3"])
def test_an_interrupt_in_a_finalizer_comes_again(times: str) -> None:
    """It ends a system call that waits, too."""
    assert finished(started(INTERRUPT, "cpu", times, "60")) == (0, "interrupted\n", "")


@linux
def test_where_accel_steps_aside_it_is_lost() -> None:
    status, out, err = finished(started(INTERRUPT, "torchvision", "1", "1"))
    assert (status, out) == (0, "nothing came\n")
    assert "KeyboardInterrupt" in err


@linux
def test_other_errors_in_finalizers_are_printed() -> None:
    status, out, err = finished(started(INTERRUPTED.format(what="1 // 0"), "cpu", "1", "1"))
    assert (status, out) == (0, "nothing came\n")
    assert "ZeroDivisionError" in err
