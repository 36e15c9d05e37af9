"""accel.ray.Recorder in Ray Data: equal to torchvision's, in every epoch, order, number of processes, and retry."""

from pathlib import Path

import pytest
import torch

from tests.support import helpers

helpers.optional("ray")

SCRIPT = """
import os, sys
os.environ["RAY_AUTH_MODE"] = "disabled"
dead, without, *paths = sys.argv[1:]

import torch
import accel
accel.set_image_backend("cpu", threads=1)
import ray
from PIL import Image
from torchvision import transforms as T

TRAIN = T.Compose([T.RandomResizedCrop(32), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize([0.5], [0.25])])

class KillsOnce:
    def __init__(self, dead):
        self.dead = dead

    def __call__(self, image):
        if not os.path.exists(self.dead):
            open(self.dead, "w").close()
            os._exit(1)
        return TRAIN(image)

def expected(epoch):
    images = []
    with accel.image_backend("torchvision"):
        for path in paths:
            accel.ray.draw_from(7, epoch, (path,))
            images.append(TRAIN(Image.open(path).convert("RGB")))
    return torch.stack(images)

def found(rows, **options):
    batches = [*rows.iter_torch_batches(batch_size=5, collate_fn=accel.wire.collate, **options)]
    labels = torch.cat([batch["label"] for batch in batches])
    return torch.cat([batch["image"] for batch in batches])[labels.argsort()]

ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
ray.data.DataContext.get_current().enable_progress_bars = False
items = [{"bytes": open(path, "rb").read(), "path": path, "label": n} for n, path in enumerate(paths)]
rows = ray.data.from_items(items)
recorder = accel.ray.Recorder(TRAIN, seed=7, key="path")
recorded = rows.repartition(3).map_batches(recorder, batch_size=4)
results = {"first epoch": (found(recorded), expected(0)), "second epoch": (found(recorded), expected(1))}
options = {"seed": 7, "key": "path", "epoch": 0}
shuffled = rows.random_shuffle().map_batches(accel.ray.Recorder(TRAIN, **options), batch_size=3)
results["another order"] = found(shuffled), expected(0)
def actors(transform):
    return rows.map_batches(
        accel.ray.Recorder, fn_constructor_args=(transform,), fn_constructor_kwargs=options, concurrency=2, batch_size=2
    )

results["actors"] = found(actors(TRAIN)), expected(0)
results["a killed actor"] = found(actors(KillsOnce(dead + " actor"))), expected(0)
killed = rows.map_batches(accel.ray.Recorder(KillsOnce(dead + " worker"), **options), batch_size=4)
results["a killed worker"] = found(killed), expected(0)
assert os.path.exists(dead + " actor") and os.path.exists(dead + " worker")

def fails(rows, **given):
    try:
        rows.map_batches(accel.ray.Recorder(TRAIN, **options), **given).take_all()
    except Exception as error:
        return str(error)

results["errors"] = (
    fails(rows, runtime_env={"env_vars": {"PYTHONPATH": without}}),
    fails(ray.data.from_items([items[0], {**items[1], "bytes": b"text"}])),
)
torch.save(results, "results.pt")
ray.shutdown()
"""


def test_rows_are_torchvisions_however_they_are_recorded(paths: list[str], tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(SCRIPT)
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "accel.py").write_text("raise ModuleNotFoundError(\"No module named 'accel'\")")
    arguments = [str(tmp_path / "dead"), str(tmp_path / "without"), *paths]
    helpers.script(tmp_path / "job.py", *arguments, folder=tmp_path, timeout=600)
    results = torch.load(tmp_path / "results.pt")
    without, damaged = results.pop("errors")
    assert "No module named 'accel'" in without
    assert "cannot identify image file" in damaged
    assert f"the row of path {paths[1]!r}" in damaged
    assert len(results) == 6
    for name, (found, expected) in results.items():
        assert torch.equal(found, expected), name
    assert not torch.equal(results["first epoch"][1], results["second epoch"][1])


NODES = """
import os, sys, threading, time
os.environ["RAY_AUTH_MODE"] = "disabled"
import torch
import accel
accel.set_image_backend("cpu", threads=1)
import ray
from PIL import Image
from ray.cluster_utils import Cluster
from torchvision import transforms as T

TRAIN = T.Compose([T.RandomResizedCrop(32), T.RandomHorizontalFlip(), T.ToTensor()])
paths = sys.argv[1:]

def slow(image):
    time.sleep(1)
    return TRAIN(image)

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
node = cluster.add_node(num_cpus=1)
ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
assert len(ray.nodes()) == 2
ray.data.DataContext.get_current().enable_progress_bars = False
items = [{"bytes": open(path, "rb").read(), "path": path, "label": n} for n, path in enumerate(paths)]
recorder = accel.ray.Recorder(slow, seed=7, key="path", epoch=0)
rows = ray.data.from_items(items).repartition(len(paths)).map_batches(recorder)
timer = threading.Timer(8, cluster.remove_node, (node,), {"allow_graceful": False})
timer.start()
batches = [*rows.iter_torch_batches(batch_size=5, collate_fn=accel.wire.collate)]
timer.join()
alive = sum(each["Alive"] for each in ray.nodes())
labels = torch.cat([batch["label"] for batch in batches])
images = []
for path in paths:
    with accel.image_backend("torchvision"):
        accel.ray.draw_from(7, 0, (path,))
        images.append(TRAIN(Image.open(path).convert("RGB")))
found = torch.cat([batch["image"] for batch in batches])[labels.argsort()]
torch.save((found, torch.stack(images), alive), "results.pt")
ray.shutdown()
cluster.shutdown()
"""


@pytest.mark.sweep
def test_a_killed_node(paths: list[str], tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(NODES)
    helpers.script(tmp_path / "job.py", *paths, folder=tmp_path)
    found, expected, alive = torch.load(tmp_path / "results.pt")
    assert torch.equal(found, expected)
    assert alive == 1
