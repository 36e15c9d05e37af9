"""``python -m accel run``: an unmodified script, under the switch.

The script is run by a Python of its own, which replaces this process: its arguments, its ``__main__``, its exit status
and its signals are the same as without accel. The environment tells it, and all processes that it starts, of the
switch.

This process imports neither torch nor the rest of accel: if OpenMP is set to bind threads, these would bind it, and the
script with it, to cores.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any

from accel.errors import meant
from accel.processes.launch import environment


def command_line(words: list[str], python_options: list[str]) -> int:
    """Run the command with these arguments in a Python with these options; before the rest of accel is imported."""
    parser = argparse.ArgumentParser(prog="python -m accel run", allow_abbrev=False, **_DESCRIPTION)
    _add_arguments(parser)
    return run(parser.parse_args(words), python_options)


def interpreter_options() -> list[str] | None:
    """The options of this Python, if it was started as ``python [options] -m accel ...``; else None."""
    if sys.argv[:1] != ["-m"]:  # its value while Python looks for the module
        return None
    *options, module = sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv) + 1] or [""]
    if module == "accel":
        option = options.pop()
    else:
        option, module = module.removesuffix("accel"), "accel" if module.endswith("accel") else module
    if module != "accel" or not (option.startswith("-") and option.endswith("m")) or option.startswith("--"):
        return None  # another package, which has a "run" of its own, imports accel
    return options if option == "-m" else [*options, option[:-1]]


_DESCRIPTION: dict[str, Any] = {
    "usage": "python -m accel run [options] script.py ...\n       python -m accel run [options] -m module ...",
    "description": "Run an unmodified script under an image backend, with all processes that it starts. A script that "
    "calls accel.set_image_backend has what it asks for.",
    "epilog": "Arguments, output and exit status are the script's; 2 if there is no such backend or option, or if it "
    "cannot run here. Pythons that are started with -I, -E or -S, or without the environment, are not reached.",
}


def add_parser(commands: Any) -> None:
    """Add this command to the command line."""
    parser = commands.add_parser("run", help="run an unmodified script", allow_abbrev=False, **_DESCRIPTION)
    _add_arguments(parser)
    parser.set_defaults(run=run)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--backend", default="auto", metavar="NAME", help="the image backend [%(default)s]")
    add(
        "--option", action="append", default=[], type=_option, metavar="NAME=VALUE", help="one of the backend's options"
    )
    add("--profile", action="store_true", help="report what holds the training back, and what would help")
    add("--json", metavar="FILE", help="write the report's data to FILE")
    add("--trace", metavar="FILE", help="write a trace that ui.perfetto.dev opens")
    add("--progress", action="store_true", help="show a line with the rate and the bottleneck meanwhile")
    add("--try", dest="attempt", action="store_true", help="then run the script again, with the first advice taken")
    what = "have pools of BLAS, OpenMP and OpenCV use one thread in DataLoader workers (needs threadpoolctl)"
    add("--limit-threads", action="store_true", help=what)
    add("--tune-file", metavar="FILE", help="where what was found about prefetching is kept, and taken from")
    add("-m", dest="module", action="store_true", help="script is a module's name")
    what = "a file, a folder or zip file with a __main__.py, or - for standard input; and its own arguments"
    add("script", nargs=argparse.PARSER, help=what)  # takes everything that follows, also "--"


def _option(text: str) -> tuple[str, Any]:
    """An argparse type: ``name=value``, whose value is a Python literal, or a string without quotes."""
    name, equals, value = text.partition("=")
    if not (name.isidentifier() and equals):
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE, got {text!r}")
    try:
        literal = ast.literal_eval(value)
        json.dumps(literal)
    except (ValueError, SyntaxError, TypeError):
        return name, value
    return name, literal


def run(args: argparse.Namespace, python_options: Sequence[str] = ()) -> int:
    """Become the script's process, or wait for it if a report is wanted; return its exit status, 2: wrong usage."""
    wrong = wrong_backend(args.backend, any_options=bool(args.option))
    if args.limit_threads and args.backend == "torchvision":
        wrong = "--limit-threads needs a backend of accel's"
    if args.limit_threads and find_spec("threadpoolctl") is None:
        wrong = "--limit-threads needs threadpoolctl: pip install threadpoolctl"
    if sys.flags.ignore_environment or sys.flags.no_site:
        wrong = "Python's options -I, -E and -S keep the switch from the script: what tells it is the environment"
    if wrong is not None:
        print(f"run: {wrong}", file=sys.stderr)
        return 2
    words = [sys.executable, *python_options, *(["-m"] if args.module else []), *args.script[args.script[0] == "--" :]]

    if args.profile or args.json or args.trace or args.attempt:
        return int(import_module("accel.cli.run_profile").run(args, words, partial(variables_for, args)))
    variables = variables_for(args, {"folder": None, "progress": True} if args.progress else None)
    # Windows cannot replace a process by another program
    return subprocess.call(words, env=variables) if os.name == "nt" else os.execve(words[0], words, variables)


def variables_for(
    args: argparse.Namespace, profile: dict[str, Any] | None, backend: str | None = None, **options: Any
) -> dict[str, str]:
    """The environment of the script; ``backend``, ``options``: in place of, and besides, those of the command line."""
    own = dict(args.option) if backend in (None, args.backend) else {}
    tuned = {environment.TUNE_FILE: os.path.abspath(args.tune_file)} if args.tune_file else {}
    return environment.with_settings(
        {**os.environ, **tuned}, backend or args.backend, {**own, **options}, profile, args.limit_threads
    )


def wrong_backend(backend: str, *, any_options: bool) -> str | None:
    """An error in a backend's name that is known before it is imported; None: there is none."""
    if backend == "torchvision" and any_options:
        return "backend 'torchvision' takes no options"
    known = ["auto", "torchvision", *sorted(entry.name for entry in entry_points(group="accel.backends"))]
    if backend in known:
        return None
    return f"unknown image backend {backend!r}; known are {', '.join(map(repr, known))}{meant(backend, known)}"
