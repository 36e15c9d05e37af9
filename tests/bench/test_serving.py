"""python -m bench.serving: latencies, checked before they are measured."""

import json
from pathlib import Path

import pytest

from bench import serving


def test_requests_are_measured(image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = (serving.Torchvision(), serving.TorchvisionTensors(), serving.Submit(), serving.SubmitCuda())
    monkeypatch.setattr(serving, "CONTESTANTS", chosen)
    monkeypatch.setattr(serving.SubmitCuda, "why_not", lambda _: "no such device")
    out = tmp_path / "result.json"
    assert serving.main(["--data", str(image_folder), "--rounds", "2", "--out", str(out)]) == 0
    requests = json.loads(out.read_text())["requests"]
    assert list(requests) == ["1", "8", "32"]
    for found in requests.values():
        ours = found["accel.submit, cpu"]
        assert ours["difference in levels"]["max"] == 0
        assert len(ours["ms"]) == 2
        assert ours["ms"][0] - 1e-3 <= ours["p50 ms"] <= ours["p99 ms"] <= ours["ms"][1] + 1e-3
        assert found["torchvision v2, tensors"]["difference in levels"]["max"] <= 2
        assert found["accel.submit, cuda"]["not run"] == "no such device"
    *_, last = serving.table(requests).rows
    assert list(last) == ["accel.submit, cuda", "no such device", "", ""]
