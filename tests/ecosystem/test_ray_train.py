"""Ray Train: rows are recorded on any node, and two workers of a TorchTrainer compute torchvision's images of them."""

from pathlib import Path

import torch

from tests.support import helpers

helpers.optional("ray.train.torch")

SCRIPT = """
import os, sys
os.environ["RAY_AUTH_MODE"] = "disabled"
import torch
import accel
accel.set_image_backend("cpu", threads=1)
import ray
from PIL import Image
from ray import train
from ray.train.torch import TorchTrainer
from torchvision import transforms as T

TRAIN = T.Compose([T.RandomResizedCrop(32), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize([0.5], [0.25])])
EPOCHS = 2
folder, *paths = sys.argv[1:]

def loop(config):
    rows = train.get_dataset_shard("train")
    for epoch in range(EPOCHS):
        batches = [*rows.iter_torch_batches(batch_size=3, collate_fn=accel.wire.collate)]
        images, labels = (torch.cat([batch[name] for batch in batches]) for name in ("image", "label"))
        rank = train.get_context().get_world_rank()
        torch.save((accel.stats()["images"], images, labels), f"{folder}/{epoch} {rank}.pt")

ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="error")
ray.data.DataContext.get_current().enable_progress_bars = False
items = [{"bytes": open(path, "rb").read(), "path": path, "label": n} for n, path in enumerate(paths)]
rows = ray.data.from_items(items).repartition(4).map_batches(accel.ray.Recorder(TRAIN, seed=7, key="path"))
scaling, run = train.ScalingConfig(num_workers=2), train.RunConfig(storage_path=f"{folder}/runs")
TorchTrainer(loop, datasets={"train": rows}, scaling_config=scaling, run_config=run).fit()
ray.shutdown()

for epoch in range(EPOCHS):
    images = []
    with accel.image_backend("torchvision"):
        for path in paths:
            accel.ray.draw_from(7, epoch, (path,))
            images.append(TRAIN(Image.open(path).convert("RGB")))
    torch.save(torch.stack(images), f"{folder}/{epoch}.pt")
"""


def test_two_workers_of_a_trainer(paths: list[str], tmp_path: Path) -> None:
    """Each row goes to one of them; in the second epoch it is another crop."""
    (tmp_path / "job.py").write_text(SCRIPT)
    helpers.script(tmp_path / "job.py", str(tmp_path), *paths, folder=tmp_path)
    expected = [torch.load(tmp_path / f"{epoch}.pt") for epoch in (0, 1)]
    for epoch in (0, 1):
        found = [torch.load(tmp_path / f"{epoch} {rank}.pt") for rank in (0, 1)]
        computed, images, labels = zip(*found, strict=True)
        assert sum(computed) == (1 + epoch) * len(paths)
        assert sorted(torch.cat(labels).tolist()) == [*range(len(paths))]
        assert torch.equal(torch.cat(images)[torch.cat(labels).argsort()], expected[epoch])
    assert not torch.equal(*expected)
