"""Ray Data: any node reads and records, and where the training runs, its batches are computed.

python train_ray.py
"""

import tempfile
from pathlib import Path
from typing import Any

import ray
import torch
from PIL import Image
from ray.data.collate_fn import NumpyBatchCollateFn
from torchvision import transforms as T

import accel

TRANSFORM = T.Compose([T.RandomResizedCrop(64), T.RandomHorizontalFlip(), T.ToTensor()])


def write_photos(folder: Path) -> None:
    """Write 32 JPEG files of two classes: coloured gradients."""
    for number in range(32):
        file = folder / ("cats", "dogs")[number % 2] / f"{number:02}.jpg"
        file.parent.mkdir(exist_ok=True)
        channels = [Image.radial_gradient("L").rotate(10 * number + angle) for angle in (0, 90, 180)]
        Image.merge("RGB", channels).resize((160 + number, 120)).save(file)


class Collate(NumpyBatchCollateFn):
    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return accel.wire.collate(batch)


def labelled(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "label": int("dogs" in row["path"])}


def main() -> None:
    accel.set_image_backend("cpu")  # before ray.init
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    ray.data.DataContext.get_current().execution_options.preserve_order = True
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        write_photos(Path(folder))
        rows = ray.data.read_binary_files(folder, include_paths=True).map(labelled)
        rows = rows.map_batches(accel.ray.Recorder(TRANSFORM, seed=0, key="path"))
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 64 * 64, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for batch in rows.iter_torch_batches(batch_size=8, collate_fn=Collate()):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(batch["image"]), batch["label"])
            loss.backward()
            optimizer.step()
        print(f"loss {loss.item():.6f}")
    print(accel.summary())


if __name__ == "__main__":
    main()
