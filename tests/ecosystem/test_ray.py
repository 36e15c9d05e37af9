"""Ray: remote functions and Ray Data as their documentation has them, with accel's two lines in front."""

import os
from pathlib import Path

import pytest
import torch

import accel
from accel.hooks import ray as hook
from tests.support import helpers

helpers.optional("ray")

SCRIPT = """
import io, os, sys
os.environ["RAY_AUTH_MODE"] = "disabled"
backend, order, *paths = sys.argv[1:]

if order == "first":
    import accel
    accel.set_image_backend(backend)

import logging
logging.basicConfig(level=logging.WARNING, format="said: %(message)s", stream=sys.stdout)
import numpy as np
import ray
import torch
from PIL import Image
from torchvision import transforms as T

T_TRAIN = T.Compose([T.RandomResizedCrop(32), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize([0.5], [0.25])])

def transformed(path):
    torch.manual_seed(len(path))
    return T_TRAIN(Image.open(path).convert("RGB"))

def used():
    accel = sys.modules.get("accel")
    return 0 if accel is None else accel.stats()["images"]

def row(row):
    torch.manual_seed(len(row["bytes"]))
    image = T_TRAIN(Image.open(io.BytesIO(row["bytes"])).convert("RGB"))
    image.sum()
    return {"image": image, "label": len(row["bytes"]), "used": used()}

@ray.remote
def images(paths):
    batch = torch.stack([transformed(path) for path in paths])
    batch.sum()
    return batch, used()

@ray.remote
def image(path):
    return transformed(path)

@ray.remote
def without_images():
    return any(name in sys.modules for name in ("accel", "torchvision"))

@ray.remote
class Actor:
    def __init__(self, paths):
        self.paths = paths

    def get(self, index):
        return transformed(self.paths[index]).numpy(), used()

options = {"num_cpus": 2, "include_dashboard": False, "log_to_driver": False, "logging_level": "error"}
if order == "own":
    import accel
    accel.set_image_backend(backend)
    def setup():
        import accel
        accel.set_image_backend(backend)
    options["runtime_env"] = {"worker_process_setup_hook": setup}
ray.init(**options)
if order == "lazy":
    import accel
    accel.set_image_backend(backend)

print("without images", ray.get(without_images.remote()))
batch, count = ray.get(images.remote(paths))
results = [batch, *ray.get([image.remote(path) for path in paths])]
actor = Actor.remote(paths)
found = [ray.get(actor.get.remote(index)) for index in range(len(paths))]
results += [torch.from_numpy(values.copy()) for values, _ in found]
print("used", count, max(count for _, count in found), end=" ")
if order == "first":
    ray.data.DataContext.get_current().enable_progress_bars = False
    data = ray.data.read_binary_files(paths).map(row)
    rows = sorted(data.take_all(), key=lambda row: row["label"])
    print(max(row["used"] for row in rows), end=" ")
    results += [torch.from_numpy(np.array(row["image"])) for row in rows]
    rows = sorted(ray.data.read_images(paths, mode="RGB", include_paths=True).map(
        lambda row: {"path": row["path"], "image": T.Compose([T.ToTensor(), T.Resize((20, 30))])(row["image"])}
    ).take_all(), key=lambda row: row["path"])
    results += [torch.from_numpy(np.array(row["image"])) for row in rows]
print()
torch.save(results, "results.pt")
ray.shutdown()
"""


def run(folder: Path, backend: str, order: str, paths: list[str]) -> tuple[list[str], list[torch.Tensor]]:
    folder.mkdir()
    (folder / "job.py").write_text(SCRIPT)
    lines = helpers.script(folder / "job.py", backend, order, *paths, folder=folder).splitlines()
    return lines, torch.load(folder / "results.pt")


def test_two_lines_are_enough(paths: list[str], tmp_path: Path) -> None:
    _, expected = run(tmp_path / "plain", "torchvision", "first", paths)
    lines, actual = run(tmp_path / "accel", "cpu", "first", paths)
    helpers.assert_same(actual, expected)
    assert "without images False" in lines, "a worker that has no use for accel does not import it"
    used = lines[-1].split()
    assert used[0] == "used"
    assert len(used) == 4
    assert all(int(count) > 0 for count in used[1:])
    assert not [line for line in lines if line.startswith("said")]


@pytest.mark.parametrize("order", ["lazy", "own"])
def test_workers_that_accel_cannot_reach(paths: list[str], tmp_path: Path, order: str) -> None:
    """Ray was there first, or has another hook, which can set the backend itself: it is said."""
    lines, _ = run(tmp_path / "accel", "cpu", order, paths)
    assert len([line for line in lines if line.startswith("said: Ray")]) == 1
    assert (int(lines[-1].split()[1]) > 0) == (order == "own")


def test_the_hook_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_RUNTIME_ENV_HOOK", raising=False)
    with accel.image_backend("cpu"):
        assert os.environ["RAY_RUNTIME_ENV_HOOK"] == "accel.hooks.ray.runtime_env"
        given = {"env_vars": {"A": "1"}}
        assert hook.runtime_env(given).keys() == {"env_vars", "worker_process_setup_hook"}
        assert given == {"env_vars": {"A": "1"}}
    assert "RAY_RUNTIME_ENV_HOOK" not in os.environ
    assert hook.runtime_env(None) is None
    monkeypatch.setenv("RAY_RUNTIME_ENV_HOOK", "mine")
    with accel.image_backend("cpu"):
        assert os.environ["RAY_RUNTIME_ENV_HOOK"] == "mine"
