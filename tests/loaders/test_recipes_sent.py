"""What the workers of an accelerator's loader send: recipes and files, in shared memory that is used again."""

import os
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader
from torchvision import transforms as T

import accel
from accel.workers import slot_pool
from tests.support.cuda import needs_compiler
from tests.support.helpers import Files, is_lazy, undecodable
from tests.support.processes import linux

FIXED = T.Compose([T.Resize((16, 24)), T.ToTensor(), T.Normalize([0.5] * 3, [0.2] * 3)])
pytestmark = [linux, needs_compiler]


@pytest.mark.parametrize("start", ["fork", pytest.param("spawn", marks=pytest.mark.sweep)])
def test_slots_are_used_again_when_nobody_looks_at_them(paths: list[str], start: str) -> None:
    files = Files(paths * 4, FIXED)
    with accel.image_backend("torchvision"):
        wanted = [images for images, _ in DataLoader(files, batch_size=2)]
    with accel.image_backend("cuda", device="cpu"):
        loader = DataLoader(
            files, batch_size=2, num_workers=1, persistent_workers=True, multiprocessing_context=start, timeout=60
        )
        before = set(slot_pool._known)
        first, iterator = None, iter(loader)
        (arena,) = [known.arena for number, known in slot_pool._known.items() if number not in before]
        for number in range(4):
            for place, (images, _) in enumerate(iterator if number == 0 else loader):
                assert is_lazy(images)
                if first is None:
                    first = images  # stays as recipes while others come and go
                else:
                    assert torch.equal(images.to("cpu"), wanted[place])
                del images
        assert torch.equal(first.to("cpu"), wanted[0])  # type: ignore[union-attr]
        assert arena.taken.max() >= 4 * len(wanted)  # every batch took one
        assert 0 < (arena.taken > 0).sum() <= 8
        assert os.fstat(arena._file).st_blocks * 512 < 8 << 20
        del first
        assert (arena.sent == arena.ended).all()
        assert not any("shared memory" in reason for reason in accel.stats()["fallbacks"])


def test_errors_of_files_in_slots_have_names_and_places(paths: list[str], tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.jpg"
    damaged.write_bytes(undecodable())
    files = Files([*paths[:3], str(damaged)], FIXED)
    with accel.image_backend("cuda", device="cpu"):
        (good, _), (bad, _) = DataLoader(files, batch_size=2, num_workers=1, timeout=60)
        good.to("cpu")
        with pytest.raises(accel.DecodeError, match=rf"{damaged.name}.*image 1 of a batch of 2.*dataset index 3"):
            bad.to("cpu")
    with accel.image_backend("cuda", device="cpu", on_error="replace"):
        _, (bad, _) = DataLoader(files, batch_size=2, num_workers=1, timeout=60)
        assert torch.equal(bad.to("cpu")[1], torch.full((3, 16, 24), -2.5))
