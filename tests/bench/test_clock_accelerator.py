"""The device that is a clock: each part that is slowest sets the rate."""

import pytest

from bench.clock_accelerator import Times, fitted, rate

FAST = Times(worker=10.0, main=500.0, waits=0.0, kernels=500.0)


@pytest.mark.parametrize(
    ("times", "workers", "expected"),
    [
        (FAST._replace(worker=100.0), 4, 40_000),
        (FAST._replace(main=5_000.0), 8, 102_400),
        (FAST._replace(main=2_000.0, waits=3_000.0), 8, 102_400),
        (FAST._replace(kernels=8_000.0), 8, 64_000),
    ],
)
def test_the_slowest_part_sets_the_rate(times: Times, workers: int, expected: float) -> None:
    assert rate(times, 512, workers) == pytest.approx(expected, rel=0.02)


def test_what_was_measured_is_found_again() -> None:
    def step(images: float, workers: float, main: float, idle: float) -> dict[str, float]:
        return {
            "images/s": images,
            "workers, CPU s a s": workers,
            "main, CPU s a s": main,
            "share of time without a kernel": idle,
        }

    steps = {
        "accel, DataLoader, 4 workers": step(60_000, 4.8, 0.4, 0.7),
        "accel, DataLoader, 8 workers": step(100_000, 8.8, 0.7, 0.5),
        "accel, DataLoader, 12 workers": step(100_000, 9.0, 0.7, 0.5),
    }
    found = fitted(steps)
    assert found[4].worker == pytest.approx(4e6 / 60_000)
    assert found[12].main + found[12].waits == pytest.approx(512 * 1e6 / 100_000)
    assert rate(found[4], 512, 4) == pytest.approx(60_000, rel=0.02)
    assert rate(found[8], 512, 8) == pytest.approx(100_000, rel=0.02)
