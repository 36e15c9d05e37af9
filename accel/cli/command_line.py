"""The arguments of all commands, checked before torch is imported, so that wrong ones are answered at once.

Modules that this one imports import neither torch nor the rest of accel.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from accel.cache.size import CacheSize
from accel.cli import run
from accel.cli.arguments import WrongUsage, at_least, cannot_read, command
from accel.system.cores import cores
from accel.system.imports import LazyModule
from accel.system.version import __version__

_screen = LazyModule("accel.cli.screen", draws=True)  # it imports rich

PIPELINES = ("train", "eval")
"""The names of the standard pipelines."""


def begin() -> None:
    """Check the arguments if Python was started for a command, and import torch; called before the rest of accel is.

    ``run`` begins and ends here.
    """
    python_options = run.interpreter_options()
    if python_options is None:
        return
    words = sys.argv[1:]
    if words[:1] == ["run"]:
        sys.exit(run.command_line(words[1:], python_options))
    args = parser().parse_args(words)
    if status := command(args.command)(_checked)(args):
        sys.exit(status)
    with _screen.Bar("loading torch and torchvision", moving=True):
        import_module("accel.hooks")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status; wrong usage exits with 2."""
    args = parser().parse_args(argv)
    return command(args.command)(_run)(args)


def _run(args: argparse.Namespace) -> int:
    _checked(args)
    status: int = import_module(f"accel.cli.{args.command}").run(args)
    return status


def parser() -> argparse.ArgumentParser:
    """Make the parser of all commands."""
    made = argparse.ArgumentParser(
        prog="python -m accel",
        description="Unchanged torchvision scripts, decoded and augmented by accel's image backends.",
    )
    made.add_argument("--version", action="version", version=f"accel {__version__}")
    commands = made.add_subparsers(title="commands", required=True, dest="command", metavar="COMMAND")
    run.add_parser(commands)
    _compare(
        commands.add_parser(
            "compare",
            help="run the standard ImageNet pipeline with and without accel",
            description="Run the standard ImageNet pipeline through ImageFolder and DataLoader under torchvision and "
            "under an image backend, in turns. Check that all tensors and labels are equal, then show the speeds.",
            epilog="Exit status: 0 all equal, 1 different (no speeds are shown), 2 wrong usage.",
        )
    )
    _verify(
        commands.add_parser(
            "verify",
            help="compare a folder's images, through torchvision and through a backend",
            description="Run a folder's images through torchvision and through an image backend: every op of accel's "
            "table, and the standard pipelines. Each op is tried on at least 20 images of all sizes, modes and chroma "
            "subsamplings, and on more until two minutes have passed. Print the largest difference of each, and write "
            "a picture of the worst images that differ: torchvision, accel, and 32 times their difference. The last "
            "line is the verdict.",
            epilog="Exit status: 0 all equal (with --inexact, any difference), 1 different, 2 wrong usage.",
        )
    )
    _cache(
        commands.add_parser(
            "cache",
            help="what is kept from run to run: list, verify, fill, clear",
            description='Show what a cache (the option cache="64GB", or cache="/folder:400GB") has of files, read all '
            "of it and check it, fill it ahead of a training, or empty it. Nobody may use it while it is emptied.",
        )
    )
    _pack(
        commands.add_parser(
            "pack",
            help="a dataset as a few tar files with an index, and back",
            description="Write the pictures of a dataset into tar files (shards) and an index that says where each "
            "lies: ImageFolder reads them under accel, and WebDataset, DALI, Energon and tar as they are. A run that "
            "was killed is resumed by the same command. All is read again and compared before the index gets its name.",
            epilog="Exit status: 0 done, 1 damaged (--check, --unpack), 2 wrong usage, or the source cannot be packed.",
        )
    )
    info = commands.add_parser(
        "info",
        help="versions, machine, backends and decoders",
        description="Show the versions accel runs with, the machine, every backend and JPEG decoder, and the "
        "reason where one cannot run.",
    )
    info.add_argument("--json", type=Path, metavar="FILE", help="write the same to FILE")
    warm = commands.add_parser(
        "warm",
        help="compile everything ahead of time",
        description="Compile all that runs on the host, in several processes, and keep it in the folder that "
        "ACCEL_CACHE_DIR names (else in the user's cache). It serves any installation of this version on machines "
        "with the same kind of processor; other machines compile their own. What is there already stays.",
    )
    processes = "compile in so many processes (default: one for each core)"
    warm.add_argument("--processes", type=at_least(1), metavar="N", help=processes)
    return made


def _compare(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--data", type=Path, metavar="DIR", help="an ImageFolder tree or a flat folder of images [made for the run]")
    add(
        "--pipeline",
        choices=PIPELINES,
        default="train",
        help="train: RandomResizedCrop(224), RandomHorizontalFlip; eval: Resize(256), CenterCrop(224); "
        "then ToTensor, Normalize [%(default)s]",
    )
    add("--backend", default="auto", metavar="NAME", help="what to compare with [%(default)s]")
    workers = "DataLoader's num_workers, for both [%(default)s]"
    add("--workers", type=at_least(0), default=min(2, cores()), metavar="N", help=workers)
    add("--batch-size", type=at_least(1), default=50, metavar="N", help="[%(default)s]")
    add("--rounds", type=at_least(1), default=3, metavar="N", help="epochs of each; medians are shown [%(default)s]")
    add("--limit", type=at_least(1), metavar="N", help="use N images of the folder [all]")
    threads = "threads of torch and of the backend in this process [one for each core]"
    add("--threads", type=at_least(1), metavar="N", help=threads)
    add(
        "--exact",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="the backend's option; --no-exact: all tensors may differ a little, and by how much is shown [--exact]",
    )
    digest = "print the content digest of an epoch instead: SHA-256 of the files and of all that is done to them"
    add("--digest", action="store_true", help=digest)
    add("--json", type=Path, metavar="FILE", help="write all figures to FILE")


def _verify(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("folder", type=Path, metavar="DIR", help="an ImageFolder tree or a flat folder of images")
    add("--all", action="store_true", help="try every op on every image, however long that takes")
    add("--backend", default="auto", metavar="NAME", help="what to compare with [%(default)s]")
    add("--device", metavar="DEVICE", help="where an accelerator's backend computes [the first GPU]")
    add("--inexact", action="store_true", help="let the backend differ (exact=False), and say by how much")
    add("--limit", type=at_least(1), metavar="N", help="use N images of the folder [all]")
    add("--picture", action="store_true", help="write the picture even if nothing differs")
    add("--sheet", type=Path, default=Path("verify.png"), metavar="FILE", help="the picture's file [%(default)s]")
    add("--worst", type=at_least(1), default=8, metavar="N", help="images on the picture [%(default)s]")
    add("--json", type=Path, metavar="FILE", help="write all figures to FILE")


def _cache(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    actions = ("list", "verify", "fill", "clear")
    add("action", nargs="?", choices=actions, default="list", help="default: list")
    where = "default: the user's, in memory; fill: with a size, as the option"
    add("folder", nargs="?", metavar="FOLDER", help=where)
    add(
        "--data",
        type=Path,
        metavar="DIR",
        help="verify: decode the JPEG files below DIR again, and compare; fill: put in half-decoded what random crops "
        "need of these",
    )
    processes = "fill: in so many processes (default: one for each core)"
    add("--processes", type=at_least(1), metavar="N", help=processes)


def _pack(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    sources = (
        "an ImageFolder tree; a .csv with the columns path and label; or an array dataset of torchvision, such as "
    )
    add("source", metavar="SRC", help=sources + "CIFAR10:folder or MNIST:folder:test. With an option below, a pack")
    add("target", nargs="?", metavar="DST", help="a new or empty folder, or an unfinished pack of the same source")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--unpack", action="store_true", help="write the tree of the pack SRC into the new folder DST")
    what.add_argument("--check", action="store_true", help="compare the pack SRC with its index, and all digests")
    add("--shard-size", type=_size, default="1GB", metavar="SIZE", help="of a shard, at most about [%(default)s]")
    add("--workers", type=at_least(1), metavar="N", help="so many processes [one for each core]")
    errors = "a file that is no picture or cannot be read: stop, or leave it out and report it [%(default)s]"
    add("--on-error", choices=("raise", "skip"), default="raise", help=errors)
    rewritten = "rewrite JPEG files that are decoded faster then, with the same pixels; needs libjpeg-turbo's jpegtran"
    add("--lossless", action="store_true", help=rewritten)
    add("--idx", action="store_true", help="also write DALI's index of each shard")
    add("--wids", action="store_true", help="also write wids.json, the index of WebDataset's wids")


def _size(text: str) -> int:
    size, folder, _ = CacheSize.parse(text)
    if folder is not None:
        raise ValueError
    return size


_size.__name__ = "size"  # its name in argparse's messages


def _checked(args: argparse.Namespace) -> int:
    """Refuse what is known to be wrong without torch; return 0.

    Raises:
        WrongUsage: the arguments exclude each other, there is no such folder or image in it, or no such backend.
    """
    if args.command == "cache":
        _check_cache(args)
    elif args.command == "pack":
        if args.check == (args.target is not None):
            raise WrongUsage("--check needs a pack, and nothing else" if args.check else "it needs SRC and DST")
    elif args.command in ("compare", "verify"):
        compares = args.command == "compare"
        options = args.threads is not None or not args.exact if compares else args.inexact or args.device is not None
        if (wrong := run.wrong_backend(args.backend, any_options=options)) is not None:
            raise WrongUsage(wrong)
        folder = args.data if compares else args.folder
        if folder is not None:
            _check_folder(folder)
    return 0


def _check_cache(args: argparse.Namespace) -> None:
    if args.data is not None and not args.data.is_dir():
        raise WrongUsage(f"there is no such folder: {args.data}")
    if args.processes is not None and args.action != "fill":
        raise WrongUsage("--processes is for fill")
    if args.action == "fill" and (args.data is None or args.folder is None):
        raise WrongUsage("fill needs what the option cache has, such as /folder:400GB, and --data DIR")
    if args.action == "fill":
        try:
            CacheSize.parse(args.folder)
        except ValueError as error:
            raise WrongUsage(str(error)) from error
    if args.data is not None and args.action not in ("verify", "fill"):
        raise WrongUsage("--data is for verify and fill")


def _check_folder(folder: Path) -> None:
    if not any(names for _, _, names in os.walk(folder, onerror=cannot_read, followlinks=True)):
        raise WrongUsage(f"no images in {folder}")
