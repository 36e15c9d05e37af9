"""python -m bench.serving: latencies, checked before they are measured; its contestants, which are bench.gpu's too."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import accel
from accel.cli.error_stats import Different
from bench import serving
from bench.contestants.servers import SERVERS, Server, requests

CPU = torch.device("cpu")


def named(*titles: str) -> list[Server]:
    return [each for each in SERVERS if each.title in titles]


@pytest.fixture
def command(image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that measures some contestants, and returns the exit status and the file's requests."""

    def run(*servers: Server) -> tuple[int, dict[str, Any]]:
        monkeypatch.setattr(serving, "SERVERS", servers)
        out = tmp_path / "result.json"
        status = serving.main(["--data", str(image_folder), "--rounds", "2", "--out", str(out)])
        return status, json.loads(out.read_text())["requests"] if out.exists() else {}

    monkeypatch.setattr(accel, "image_backends", lambda: {"torchvision": None, "cpu": None, "cuda": "no such device"})
    return run


def test_requests_are_measured(command: Any) -> None:
    titles = ("torchvision v1, PIL", "torchvision v2, tensors", "accel.submit, cpu", "accel.submit, cuda")
    gone = SERVERS[0]._replace(title="gone", modules=("no_such_module",))
    status, requests = command(*named(*titles), gone)
    assert status == 0
    assert list(requests) == ["1", "8", "32"]
    for found in requests.values():
        ours = found["accel.submit, cpu"]
        assert ours["difference in levels"]["max"] == 0
        assert len(ours["ms"]) == 2
        assert ours["ms"][0] - 1e-3 <= ours["p50 ms"] <= ours["p99 ms"] <= ours["ms"][1] + 1e-3
        assert 0 < found["torchvision v2, tensors"]["difference in levels"]["max"] <= 2
        assert found["accel.submit, cuda"]["not run"] == "no such device"
    *_, before, last = serving.table(requests).rows
    assert list(before) == ["accel.submit, cuda", "no such device", "", ""]
    assert list(last) == ["gone", "not installed: no_such_module", "", ""]


def answers(value: float) -> Any:
    return lambda device, pool: lambda files: torch.full((len(files), 3, 224, 224), value)


def test_wrong_answers_are_not_measured(command: Any) -> None:
    """Of an exact contestant: nothing is; of others, only these are not."""
    status, requests = command(SERVERS[0], Server("wrong", "", answers(9.0)))
    assert status == 0
    assert "levels on average" in requests["1"]["wrong"]["not run"]
    assert "ms" in requests["1"][SERVERS[0].title]
    status, unchanged = command(SERVERS[0], Server("wrong", "", answers(9.0), exact=True))
    assert status == 1
    assert unchanged == requests


@pytest.mark.parametrize("server", SERVERS, ids=lambda server: server.title)
def test_answers_are_torchvisions(server: Server, paths: list[str]) -> None:
    """All that are exact equal its values, where the kernels of the device are a stand-in's as well."""
    for module in server.modules:
        pytest.importorskip(module)
    files = [Path(path).read_bytes() for path in paths[:3]]
    with server.opened(CPU) as answer:
        stats = server.check(answer, CPU, files)
        assert stats.images == (0 if server.exact else 3)
        with pytest.raises(Different):
            server.check(lambda given: answer(given[::-1]), CPU, files)


def test_requests_are_for_the_files_that_follow() -> None:
    asked = requests([b"a", b"b", b"c"], 2)
    assert [next(asked) for _ in range(3)] == [[b"a", b"b"], [b"c", b"a"], [b"b", b"c"]]
