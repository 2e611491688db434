#!/usr/bin/env python3
"""What the demo is asked to do. Run by itself it checks the options, or prints their help, with nothing but Python's
own library: `tools/dev demo` does so before it sets up and builds.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
from collections.abc import Sequence

from tierd.quantity import byte_count

HERE = pathlib.Path(__file__).resolve().parent
BLOCK = 2 << 20
SSD_MIN = 64 << 20  # A daemon makes no smaller file.
VOCABULARY = 256


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Of ``words``, else of the command line."""
    parser = argparse.ArgumentParser(
        prog="tools/dev demo",
        description="Trains a byte-level GPT twice, in plain torch and with all of it in tierd, and compares.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--steps", type=positive, default=60, help="training steps of each run")
    parser.add_argument("--layers", type=positive, default=8, help="of the model")
    parser.add_argument("--width", type=positive, default=512, help="of a layer")
    parser.add_argument("--heads", type=positive, default=8, help="of a layer")
    parser.add_argument("--context", type=positive, default=128, help="bytes the model sees")
    parser.add_argument("--batch", type=positive, default=2, help="sequences in a step")
    threads = min(8, len(os.sched_getaffinity(0)))
    parser.add_argument("--threads", type=positive, default=threads, help="of torch, both runs")
    parser.add_argument("--seed", type=int, default=1, help="of model and order of bytes")
    default_arena = "an eighth of the optimizer states"
    parser.add_argument("--arena", type=quantity, default="", help=f"of the daemon; empty: {default_arena}")
    parser.add_argument("--ssd", type=quantity, default="2GiB", help="size of the daemon's file")
    parser.add_argument("--spin", choices=["auto", "always", "never"], default="auto", help="of daemon and client")
    parser.add_argument("--directory", default="", help="where the daemon's file goes; empty: the build folder")
    parser.add_argument("--no-baseline", action="store_true", help="only the run with tierd (nothing is compared)")
    parser.add_argument("--json", default="", help="file to append the figures to, as one JSON line")
    arguments = parser.parse_args(words)
    if arguments.width % arguments.heads:
        parser.error(f"--heads {arguments.heads} do not divide --width {arguments.width}")
    if arena_bytes(arguments) == 0:
        parser.error("the arena would be less than 2 MiB: state --arena, or train a larger model")
    if ssd_bytes(arguments) < SSD_MIN:
        parser.error(f"--ssd {arguments.ssd} is too small: the daemon's file takes 64MiB or more")
    return arguments


def positive(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return number


def quantity(text: str) -> str:
    """Empty, or a size."""
    try:
        byte_count(text or None, "the size")
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def state_bytes(arguments: argparse.Namespace) -> int:
    """Of both moments of every parameter."""
    width = int(arguments.width)
    block = 12 * width * width + 13 * width
    parameters = (2 * VOCABULARY + int(arguments.context) + 2) * width + int(arguments.layers) * block
    return parameters * 2 * 4


def arena_bytes(arguments: argparse.Namespace) -> int:
    if arguments.arena:
        return byte_count(arguments.arena, "arena") // BLOCK * BLOCK
    return state_bytes(arguments) // 8 // BLOCK * BLOCK


def ssd_bytes(arguments: argparse.Namespace) -> int:
    return byte_count(arguments.ssd or None, "ssd")


def training_command(arguments: argparse.Namespace, socket: str) -> list[str]:
    """One run of training.py; without a socket that of plain torch."""
    command = [sys.executable, str(HERE / "training.py"), "--spin", arguments.spin, "--socket", socket]
    for name in ("steps", "layers", "width", "heads", "context", "batch", "threads", "seed"):
        command += [f"--{name}", str(getattr(arguments, name))]
    # Leases of this slice and prefetches of the next two, with two states each, fit into half of the arena.
    return command + ["--slice-bytes", str(max(BLOCK, arena_bytes(arguments) // 12 // BLOCK * BLOCK))]


def training_environment() -> dict[str, str]:
    """torch's threads sleep while they wait for each other. Spinning, they take the core that the daemon, or the
    thread they wait for, needs: 8.5 s a step instead of 2.3 on two cores shared with other work."""
    return {"OMP_WAIT_POLICY": "PASSIVE", **os.environ}


if __name__ == "__main__":
    parse()
