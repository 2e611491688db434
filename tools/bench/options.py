#!/usr/bin/env python3
"""What the bench is asked to measure. Run by itself it checks the options, or prints their help, with nothing but
Python's own library and this checkout: `tools/dev bench` does so before it sets up and builds.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from collections.abc import Sequence

from models import ARENA, MODELS, UPDATES

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bindings/python"))

from tierd.quantity import byte_count, format_bytes  # noqa: E402

# In the order in which they are measured.
PART_NAMES = (
    "ram",
    "fused",
    "leases",
    "crowd",
    "ssd",
    "hits",
    "devices",
    "full",
    "ahead",
    "idle",
    "tensors",
    "observing",
    "reclaim",
    "compaction",
    "hand-over",
    "guarantee",
    "neighbour",
    "prefault",
    "pressure",
    "contention",
    "three-jobs",
    "hostile",
    "cuda",
    "demo",
    "train",
    "train-floor",
    "train-bf16",
    "train-optimizer",
    "train-depth",
    "train-activations",
    "train-losses",
    "overflow",
    "lora",
    "accumulate",
)
# Of the train part. The peer on NVMe comes first: where memory is short, what is in memory is left out.
PEERS = tuple(f"DeepSpeed {config}" for config in ("default", "tuned", "pipelined", "CPU"))
ARMS = (*(f"tierd {update}" for update in UPDATES), *PEERS)
RAM_MIN = 16 << 20


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Of ``words``, else of the command line. ``only``: the parts to measure; none: all of them."""
    parser = argparse.ArgumentParser(
        prog="tools/dev bench",
        description="Every promised figure beside its ceiling, as a table and as JSON lines.",
        epilog="tools/dev bench train --model 121M --ram 256MiB --peers",
    )
    parser.add_argument(
        "parts", nargs="*", type=part, metavar="PART",
        help=f"what to measure; none: everything. One of {', '.join(PART_NAMES)}",
    )  # fmt: skip
    parser.add_argument("--only", action="append", type=part, metavar="PART", help="the same as PART")
    parser.add_argument("--quick", action="store_true", help="few rounds: a first look, not figures to quote")
    parser.add_argument("--peers", action="store_true", help="DeepSpeed as another arm of the SSD and train parts")
    parser.add_argument(
        "--model", choices=MODELS, default="121M",
        help="of train, train-floor and lora; qwen: train, tierd alone, three steps",
    )  # fmt: skip
    parser.add_argument(
        "--ram", type=quantity, metavar="SIZE",
        help=f"of the train part, tierd's arena (default: {format_bytes(ARENA)}; of qwen: what its largest parameter "
        "needs)",
    )  # fmt: skip
    parser.add_argument(
        "--malloc", choices=("guide", "glibc", "jemalloc"), default="guide",
        help="of what trains: started as docs/training.md says where the model is in tierd, and as torch comes "
        "elsewhere (guide, the default), or all with this allocator",
    )  # fmt: skip
    parser.add_argument(
        "--arm", action="append", choices=ARMS, help="of the train part, only this beside plain torch (may be repeated)"
    )
    parser.add_argument(
        "--beside",
        type=pathlib.Path,
        metavar="BUILD",
        help="instead: the speeds of this build beside those of another version's build/release, in turn",
    )
    parser.add_argument("--json", type=pathlib.Path, help="write JSON lines here")
    options = parser.parse_intermixed_args(words)
    options.only = [*options.parts, *(options.only or ())]
    refuse(parser, options)
    return options


def refuse(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Ends the program where some of the options would measure nothing."""
    qwen = MODELS[options.model].kind == "qwen"
    for name in ("lora", "train-floor"):
        if qwen and name in options.only:
            parser.error(f"{name}: not of the model {options.model}")
    if options.ram is not None and options.only and "train" not in options.only:
        parser.error("--ram is the arena of the train part, which is not measured")
    for arm in options.arm or ():
        if qwen:
            parser.error(f"--arm {arm!r}: the model {options.model} has one arm")
        if arm.startswith("DeepSpeed") and not options.peers:
            parser.error(f"--arm {arm!r} needs --peers")


def part(text: str) -> str:
    if text not in PART_NAMES:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(PART_NAMES)}")
    return text


def quantity(text: str) -> int:
    """Bytes of an arena."""
    try:
        size = byte_count(text, "--ram")
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if size < RAM_MIN:
        raise argparse.ArgumentTypeError(f"{text} is less than {format_bytes(RAM_MIN)}")
    return size


if __name__ == "__main__":
    parse()
