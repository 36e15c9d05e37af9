"""A training of two ranks that is run by launchers: each step has the same loss with and without accel.

    script.py FOLDER CACHE [kill]

CACHE: a cache's folder, or "auto". kill: rank 1 is killed in the second epoch. The numbers of the ranks and of their
workers are added to a file "processes" in the folder for temporary files.
"""

import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

import accel

EPOCHS = 2
COUNTED = "images", "indexes", "indexed", "results", "results used"


def note(*processes: int) -> None:
    with open(Path(tempfile.gettempdir()) / "processes", "a") as file:
        print(*processes, file=file)


def trained(root: str, kills: bool = False) -> list[float]:
    """The losses of this rank."""
    torch.manual_seed(0)
    steps = [T.RandomCrop(32)] if sys.argv[2] == "auto" else [T.Resize((40, 40)), T.RandomCrop(32)]
    data = ImageFolder(root, T.Compose([*steps, T.RandomHorizontalFlip(), T.ToTensor()]))
    sampler: Any = DistributedSampler(data, seed=1)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 2)))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    losses = []
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        batches: Any = iter(DataLoader(data, 8, sampler=sampler, num_workers=1))
        note(os.getpid(), batches._workers[0].pid)
        for images, labels in batches:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            losses.append(loss.item())
            if kills and epoch == 1 and distributed.get_rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
    return losses


def main() -> None:
    root, cache, *kills = sys.argv[1:]
    if accel.get_image_backend() == "torchvision":  # else `accel run` has set it
        accel.set_image_backend("cpu", cache=cache)
    distributed.init_process_group("gloo")
    losses = trained(root, bool(kills))
    stats = accel.stats()
    with accel.image_backend("torchvision"):
        assert trained(root) == losses
    assert len(losses) == 2 * EPOCHS, losses
    assert stats["fallbacks"] == {}, stats
    both = torch.tensor([stats[name] for name in COUNTED])
    distributed.all_reduce(both)
    if distributed.get_rank() == 0:
        print(dict(zip(COUNTED, both.tolist(), strict=True)), flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
