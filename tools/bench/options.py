#!/usr/bin/env python3
"""What the bench is asked to measure. Run by itself it checks the options, or prints their help, with nothing but
Python's own library: `tools/dev bench` does so before it sets up and builds.
"""

from __future__ import annotations

import argparse
import pathlib

from models import MODELS, UPDATES

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
    "demo",
    "train",
    "train-bf16",
    "train-optimizer",
    "train-depth",
    "train-activations",
    "train-losses",
    "overflow",
    "lora",
    "accumulate",
)
ARMS = (*(f"tierd {update}" for update in UPDATES), "DeepSpeed default", "DeepSpeed tuned", "DeepSpeed pipelined")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tools/dev bench", description="Every promised figure beside its ceiling, as a table and as JSON lines."
    )
    parser.add_argument("--only", action="append", choices=PART_NAMES, help="only this part (may be repeated)")
    parser.add_argument("--quick", action="store_true", help="few rounds: a first look, not figures to quote")
    parser.add_argument("--peers", action="store_true", help="DeepSpeed as another arm of the SSD and train parts")
    parser.add_argument(
        "--model", choices=MODELS, default="121M", help="of train and lora; qwen: train, tierd alone, three steps"
    )
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
    options = parser.parse_args()
    if MODELS[options.model].kind == "qwen" and "lora" in (options.only or ()):
        parser.error(f"--only lora: not of the model {options.model}")
    for arm in options.arm or ():
        if MODELS[options.model].kind == "qwen":
            parser.error(f"--arm {arm!r}: the model {options.model} has one arm")
        if arm.startswith("DeepSpeed") and not options.peers:
            parser.error(f"--arm {arm!r} needs --peers")
    return options


if __name__ == "__main__":
    parse()
