"""A trial makes the same samples under two backends, and leaves no trace in the process that is measured."""

import json
import multiprocessing
import os
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset
from torchvision import transforms
from torchvision.datasets import ImageFolder

import accel
from accel.hooks.compiled import batch as in_one_go
from accel.profiling import collect, loading, trial
from accel.profiling.measured import Trial

SLEEP = 0.004


class Photos(Dataset[Any]):
    """JPEG files that are slow to come by."""

    made = 0

    def __init__(self, folder: Path) -> None:
        pixels = np.random.default_rng(0).integers(0, 255, (40, 50, 3), dtype=np.uint8)
        self.files = [folder / f"{number}.jpg" for number in range(5)]
        for file in self.files:
            Image.fromarray(pixels).resize((120, 100)).save(file)
        self.transform = transforms.Compose([transforms.RandomCrop(32), transforms.ToTensor()])

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        Photos.made += 1
        time.sleep(SLEEP)
        return self.transform(Image.open(self.files[index]).convert("RGB")), index


@pytest.mark.parametrize("workers", [0, 2])
def test_a_trial(tmp_path: Path, workers: int) -> None:
    loader: DataLoader[Any] = DataLoader(Photos(tmp_path), batch_size=2, num_workers=workers)
    its = trial.samples(loader)
    assert its is not None
    states = torch.get_rng_state(), random.getstate()
    made = Photos.made
    said: list[str] = []
    found = trial.measure(its, "cpu", said.append)
    assert isinstance(found, Trial)
    assert len(said) == 1
    assert found.images > 0
    assert found.took_s is not None
    assert found.took_s > 2 * found.images * SLEEP
    for seconds, cpu_s in ((found.seconds, found.cpu_s), (found.base_seconds, found.base_cpu_s)):
        assert seconds >= SLEEP  # each sample was made
        assert cpu_s > 0
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1] == random.getstate()
    assert Photos.made == made
    assert torch.utils.data.get_worker_info() is None
    assert accel.get_image_backend() == "torchvision"


def test_a_trial_goes_on_until_the_ratio_is_known() -> None:
    known, (base, even, short, long) = trial._known, ([trial._Time(s, s)] * 12 for s in (0.1, 0.02, 0.01, 0.05))
    uneven = [*short[:6], *long[:6]]
    assert known(base, even, 1.0)
    assert not known(base, uneven, 1.0)
    assert not known(base[:2], even[:2], 1.0)  # by chance, perhaps
    assert not known(base, even, 0.1)
    assert known(base, uneven, 3.1)
    assert known(base * 20, uneven * 20, 1.0)


def test_loaders_alike_are_tried_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script may make a loader for each epoch."""
    tried: list[trial.Samples] = []
    result = Trial(1, 1.0, 1.0, 2.0, 2.0)
    monkeypatch.setattr(trial, "measure", lambda its, name, say: (tried.append(its), result)[1])
    data = Photos(tmp_path)
    with accel.profile(show=False) as report:
        for batch_size in (2, 2, 2, 4):
            for _ in DataLoader(data, batch_size):
                pass
            collect.try_another(len(loading.records.loaders) - 1)
    assert len(tried) == 2
    assert report.measured.trials == {"cpu": result}


def test_batches_are_as_large_as_the_loaders(tmp_path: Path) -> None:
    sizes = tmp_path / "sizes"

    def collate(samples: list[int]) -> list[int]:
        with sizes.open("a") as file:
            file.write(f"{len(samples)}\n")
        return samples

    dataset: Any = list(range(100))
    its = trial.samples(DataLoader(dataset, 32, collate_fn=collate))
    assert its is not None
    assert trial.measure(its) is not None
    assert max(map(int, sizes.read_text().split())) == 32


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_made_as_in_a_worker(tmp_path: Path, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawn in one go, not image by image as for a loader that a dataset asks."""
    (tmp_path / "class").mkdir()
    Photos(tmp_path / "class")
    drawn, fetched = tmp_path / "drawn", in_one_go.fetched

    def noted(*args: Any) -> Any:
        made = fetched(*args)
        with drawn.open("a") as file:
            file.write(f"{isinstance(made, in_one_go.RecordedBatch) and len(made.sizes)}\n")
        return made

    monkeypatch.setattr(in_one_go, "fetched", noted)
    transform = transforms.Compose([transforms.RandomCrop(32), transforms.ToTensor()])
    its = trial.samples(DataLoader(ImageFolder(tmp_path, transform), 4, num_workers=workers))
    assert its is not None
    assert trial.measure(its) is not None
    assert "4\n" in drawn.read_text()


class Drawn(Dataset[Any]):
    """Samples that draw, and tell a file what, by which backend."""

    def __init__(self, told: Path) -> None:
        self.told = told

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> Any:
        draws = [float(torch.rand(())), random.random(), float(np.random.rand())]  # noqa: NPY002
        with self.told.open("a") as file:
            file.write(json.dumps([accel.get_image_backend(), index, *draws]) + "\n")
        return index


@pytest.mark.parametrize("workers", [0, 2])
def test_both_backends_have_the_same_random_numbers(tmp_path: Path, workers: int) -> None:
    """In each turn, and other ones in the next."""
    its = trial.samples(DataLoader(Drawn(tmp_path / "told"), 10, num_workers=workers))
    assert its is not None
    found = trial.measure(its)
    assert found is not None
    drawn: dict[str, list[Any]] = {"torchvision": [], "cpu": []}
    for line in (tmp_path / "told").read_text().splitlines():
        backend, *rest = json.loads(line)
        drawn[backend].append(rest)
    one, other = drawn.values()
    assert len(one) >= found.images
    assert one == other
    assert len({number for _, *numbers in one for number in numbers}) > found.images


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(range(10))


class Broken(Photos):
    def __getitem__(self, index: int) -> Any:
        raise ValueError("no such sample")


class Deadly(Photos):
    def __getitem__(self, index: int) -> Any:
        os._exit(1)


def test_what_cannot_be_tried(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "accel")
    assert trial.samples(DataLoader(Endless())) is None
    assert trial.samples(DataLoader(Photos(tmp_path), batch_size=None)) is None
    assert trial.samples(DataLoader(Photos(tmp_path), num_workers=1, multiprocessing_context="spawn")) is None
    its = trial.samples(DataLoader(Photos(tmp_path)))
    assert its is not None
    assert trial.measure(its, "no such backend") is None
    with accel.image_backend("cpu"):
        assert trial.measure(its, "cpu") is None
    broken = trial.samples(DataLoader(Broken(tmp_path)))
    assert broken is not None
    assert trial.measure(broken) is None
    assert "no such sample" in caplog.text
    deadly = trial.samples(DataLoader(Deadly(tmp_path)))
    assert deadly is not None
    assert trial.measure(deadly) is None
    assert "was killed" in caplog.text


class OneFile(Dataset[Any]):
    """Records of a file that is open, which are read one after the other."""

    size = 500

    def __init__(self, file: Path) -> None:
        file.write_bytes(b"".join(bytes([number % 251]) * self.size for number in range(400)))
        self.file = file.open("rb")

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> Any:
        self.file.seek(index * self.size)
        return torch.frombuffer(bytearray(self.file.read(self.size)), dtype=torch.uint8)


def test_files_stay_where_they_are(tmp_path: Path) -> None:
    dataset = OneFile(tmp_path / "records")
    loader = DataLoader(dataset, batch_size=5)
    its = trial.samples(loader)
    assert its is not None
    for number, batch in enumerate(loader):
        assert torch.equal(batch[:, 0], torch.arange(5 * number, 5 * number + 5) % 251)
        assert (batch == batch[:, :1]).all()
        if number == 10:
            assert trial.measure(its, "cpu") is not None
    dataset.file.close()


class Remote(OneFile):
    """Samples that somebody at the other end of a connection has."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def __getitem__(self, index: int) -> Any:
        self.connection.send_bytes(b"?")
        return torch.frombuffer(bytearray(self.connection.recv_bytes()), dtype=torch.uint8)


def test_nobody_else_is_talked_to() -> None:
    here, there = multiprocessing.Pipe()
    its = trial.samples(DataLoader(Remote(here), batch_size=5))
    assert its is not None
    here.send_bytes(b"for the parent")
    assert trial.measure(its, "cpu") is None
    assert there.recv_bytes() == b"for the parent"
    assert not there.poll()


class Noisy(Photos):
    """Samples of which a file is told, and standard output."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.log = (folder / "log").open("w")

    def __getitem__(self, index: int) -> Any:
        self.log.write("sample")
        self.log.flush()
        os.write(1, b"sample")
        return super().__getitem__(index)


def test_nothing_is_written_twice(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    dataset = Noisy(tmp_path)
    its = trial.samples(DataLoader(dataset))
    assert its is not None
    dataset.log.write("not flushed yet")
    assert trial.measure(its, "cpu") is not None
    dataset.log.close()
    assert (tmp_path / "log").read_text() == "not flushed yet"
    assert capfd.readouterr().out == ""


class Compiled(Dataset[Any]):
    """Samples of which the other backend's seventh takes long, once, as where kernels are compiled."""

    made = 0

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> Any:
        self.made += accel.get_image_backend() == "cpu"
        if self.made == trial._REPEATED + trial._FIRST + 1:
            self.made += 1
            time.sleep(0.4)
        return index


def test_what_is_compiled_is_no_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it takes longer than a trial may."""
    monkeypatch.setattr(trial, "_LEAST_S", 0.02)
    monkeypatch.setattr(trial, "_MOST_S", 0.3)
    its = trial.samples(DataLoader(Compiled(), 4))
    assert its is not None
    found = trial.measure(its)
    assert found is not None
    assert found.took_s is not None
    assert found.took_s > 0.4
    assert found.seconds * found.images < 0.4
