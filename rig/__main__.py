"""``python -m rig WAY [BATCH...]``: batches through the cuda backend's kernels without a GPU, beside torchvision.

Exit status: 0 all are equal and nothing was found, 1 something was, 77 the way cannot be gone here.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import torch

from rig import races, sanitizers
from rig.batches import batches, by_kernels, by_torchvision, more_batches


@contextmanager
def _interpreted(seed: int) -> Iterator[None]:
    from rig.ptx.device import PtxDevice, installed

    with installed(PtxDevice(seed)):
        yield


@contextmanager
def _searched(seed: int) -> Iterator[None]:
    with races.finding_races(seed) as found:
        yield
        if lines := found.found():
            raise AssertionError("\n".join(lines))


WAYS: dict[str, Callable[[int], AbstractContextManager[None]]] = {
    "ptx": _interpreted,
    "races": _searched,
    "backwards": lambda seed: races.built_with(*races.ORDERS["backwards"]),
    "orders": lambda seed: races.built_with(*races.order(seed)),
    "sanitizers": lambda seed: sanitizers.kernels(),
}


def _break(mistake: str) -> None:
    """Make a mistake in the backend that the sanitizers should find."""
    from accel.backends.cuda import lowering, schedule

    if mistake == "too little room for coefficients":
        schedule.CoefficientJob.most_taps = property(lambda job: 2)  # type: ignore[assignment, method-assign]
    else:
        packed = lowering._packed_pass
        lowering._packed_pass = lambda *row: packed(*row[:3], row[3] and row[3] + 1, *row[4:])


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m rig", description=__doc__)
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("batches", nargs="*", metavar="BATCH", help="names in rig/batches.py [all of batches()]")
    parser.add_argument(
        "--seed", type=int, default=1, help="of orders of threads, and of memory's garbage [%(default)s]"
    )
    parser.add_argument("--mistake", choices=("too little room for coefficients", "a misaligned table"))
    args = parser.parse_intermixed_args(argv)
    if args.way == "sanitizers" and not sanitizers.present():
        return sanitizers.run_again()
    if args.mistake:
        _break(args.mistake)
    known, wrong = {**batches(), **more_batches()}, 0
    names = args.batches or list(batches())
    for name in names:
        try:
            with WAYS[args.way](args.seed):
                assert torch.equal(by_kernels(known[name]), by_torchvision(known[name])), "other values"
        except Exception as error:  # the other batches are still run
            wrong += 1
            print(f"{name}: {type(error).__name__}: {error}")
    print(f"{len(names)} batches, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
