"""torchdata: StatefulDataLoader, whose workers run a loop of its own, and torchdata.nodes, with processes of its own.

Each as its documentation has it, with accel's two lines in front.
"""

from pathlib import Path
from typing import Any

import pytest
import torch

import accel
from tests.support import helpers
from tests.support.ecosystem import proven
from tests.support.helpers import Files, Stream, assert_same
from tests.support.loaders import TIMEOUT, TRAIN

stateful_dataloader = helpers.optional("torchdata.stateful_dataloader")
nodes = helpers.optional("torchdata.nodes")

pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # which torchdata calls
METHODS = ["fork", "spawn", "forkserver"]


def loader(dataset: Any, workers: int, method: str = "fork", **options: Any) -> Any:
    if workers:
        options |= {"multiprocessing_context": method, "timeout": TIMEOUT}
    return stateful_dataloader.StatefulDataLoader(dataset, batch_size=3, num_workers=workers, **options)


@pytest.mark.parametrize(
    ("dataset", "workers", "method"),
    [(Files, 0, ""), *((Files, 2, method) for method in METHODS), (Stream, 0, ""), (Stream, 2, "fork")],
)
def test_a_stateful_loader(paths: list[str], dataset: Any, workers: int, method: str) -> None:
    def run() -> list[Any]:
        shuffled = {"shuffle": True} if dataset is Files else {}
        batches = list(loader(dataset(paths, TRAIN), workers, method, **shuffled))
        for batch in batches:
            (batch[0] if dataset is Files else batch).sum()
        return batches

    proven(run, images=len(paths))


@pytest.mark.parametrize(("workers", "method"), [(0, ""), (2, "fork")])
def test_an_epoch_that_is_resumed(paths: list[str], workers: int, method: str) -> None:
    def run() -> list[Any]:
        begun = loader(Files(paths, TRAIN), workers, method, shuffle=True)
        first = []
        for batch in begun:
            first.append(batch)
            if len(first) == 2:
                break
        state = begun.state_dict()
        torch.manual_seed(1)  # the random numbers of what is loaded after it are the worker's, seeded anew
        resumed = loader(Files(paths, TRAIN), workers, method, shuffle=True)
        resumed.load_state_dict(state)
        rest = list(resumed)
        assert sorted(torch.cat([labels for _, labels in first + rest]).tolist()) == list(range(len(paths)))
        return first + rest

    helpers.assert_equal_runs(run)


class Opened:
    """A user's own map function: an image of a path."""

    def __call__(self, path: str) -> torch.Tensor:
        image: torch.Tensor = TRAIN(helpers.open_rgb(path))
        return image


class Seeded(Opened):
    """The same from a seed, whichever worker it is that has the path."""

    def __call__(self, path: str) -> torch.Tensor:
        torch.manual_seed(len(path) + int(Path(path).stem))
        return super().__call__(path)


@pytest.mark.parametrize("method", ["thread", "fork", "spawn"])
def test_a_parallel_mapper(paths: list[str], method: str) -> None:
    def run() -> list[Any]:
        how: dict[str, Any] = {"method": "thread", "num_workers": 1}
        if method != "thread":
            how = {"method": "process", "multiprocessing_context": method, "num_workers": 2}
        mapped = nodes.ParallelMapper(nodes.IterableWrapper(paths), Seeded(), in_order=True, **how)
        collated = nodes.Mapper(nodes.Batcher(mapped, 3), torch.utils.data.default_collate)
        batches = list(nodes.Loader(collated))
        for batch in batches:
            batch.sum()
        return [batches, 0]

    expected = run()
    before = accel.stats()["images"]
    with accel.image_backend("cpu"):
        if method == "thread":
            accel.set_image_backend("cpu")  # threads see the process's
        actual = run()
    assert_same(actual, expected)
    assert accel.stats()["images"] - before == len(paths)


SCRIPT = """
import sys
from PIL import Image
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata import nodes
from torchvision import transforms as T
import torch

class Data:
    transform = T.Compose([T.Resize((30, 40)), T.ToTensor()])
    def __init__(self, paths): self.paths = paths
    def __len__(self): return len(self.paths)
    def __getitem__(self, index):
        return self.transform(Image.open(self.paths[index]).convert("RGB")), "accel" in sys.modules

if __name__ == "__main__":
    import accel
    accel.set_image_backend("cpu")
    data = Data(sys.argv[2:])
    method = sys.argv[1]
    batches = list(StatefulDataLoader(data, batch_size=2, num_workers=1, multiprocessing_context=method))
    assert all(known.all() for _, known in batches)
    assert accel.stats()["images"] == len(data), accel.stats()
    node = nodes.ParallelMapper(nodes.IterableWrapper(range(len(data))), data.__getitem__, 1, True, "process", method)
    items = list(nodes.Loader(node))
    assert all(known for _, known in items)
    assert all(type(image) is torch.Tensor for image, _ in items), "computed where it was made"
    assert accel.stats()["images"] == 2 * len(data), accel.stats()
    print("done")
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_script_that_sets_the_backend_under_its_main_guard(paths: list[str], tmp_path: Path, method: str) -> None:
    """Nothing that the workers import is accel's."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    assert helpers.script(script, method, *paths).split() == ["done"]
