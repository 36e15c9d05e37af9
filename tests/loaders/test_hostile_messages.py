"""Messages between a training's processes: no other user can open them, and what is cut is an error."""

import os
from pathlib import Path

import pytest
import torch

import accel
from accel.codec import store
from accel.processes import sent_files
from accel.processes.sent_files import HEADER, SentFiles
from accel.system import memory
from tests.backends.cuda.cropped import COLOUR, cropped, values
from tests.support.processes import in_child, linux

pytestmark = linux


@pytest.mark.parametrize("left", [0, 100, HEADER - 8, HEADER, HEADER + 500])
def test_a_message_that_is_cut_is_an_error(left: int) -> None:
    with accel.image_backend("cuda", device="cpu", threads=1):
        sent = sent_files.pack(cropped(COLOUR))
        assert sent is not None
        cut = SentFiles(sent.data[:left].clone())

        def is_refused() -> bool:
            with pytest.raises(Exception):  # noqa: B017  of any type: which part is missed first is chance
                values(sent_files.unpack(cut))
            return True

        assert in_child(is_refused)(), "it ends no process"


def test_what_processes_share_has_no_name_that_another_user_could_open() -> None:
    there = set(os.listdir("/dev/shm"))
    shared = memory.shared((1 << 20,), torch.uint8)
    with accel.image_backend("cpu", threads=1):
        assert store.current() is not None
        maps = Path("/proc/self/maps").read_text().splitlines()
    mapped = [line.split(maxsplit=5)[5] for line in maps if "rw-s" in line and "accel" in line]
    assert mapped
    ranks = f"/memfd:accel-ranks-{os.getpid()} (deleted)"
    assert {name for name in mapped if name not in ("/memfd:accel (deleted)", ranks)} == set()
    assert not {name for name in set(os.listdir("/dev/shm")) - there if str(os.getpid()) in name}
    assert shared.is_shared()
