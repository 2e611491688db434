#!/usr/bin/env python3
"""Writes the dashboards beside it: fleet.json, node.json, job.json. A test compares the files with what this makes.

deploy/grafana/make_dashboards.py
"""

from __future__ import annotations

import json
import pathlib

import fleet
import job
import node
from dashboard import board_json

FOLDER = pathlib.Path(__file__).resolve().parent


def pages() -> dict[str, str]:
    """The text of each file, by its name."""
    boards = {"fleet.json": fleet.BOARD, "node.json": node.BOARD, "job.json": job.BOARD}
    return {name: json.dumps(board_json(board), indent=2) + "\n" for name, board in boards.items()}


def main() -> None:
    for name, text in pages().items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
