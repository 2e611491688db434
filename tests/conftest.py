"""How the Python tests are divided among processes (`pytest -n 2 --dist loadgroup`, as tools/dev test runs them)."""

from __future__ import annotations

import pathlib

import pytest

DEPLOY = pathlib.Path(__file__).resolve().parent / "deploy"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests of a file share a daemon, and those of deploy/ the package that they build: each in one process."""
    for item in items:
        together = DEPLOY if item.path.is_relative_to(DEPLOY) else item.path
        item.add_marker(pytest.mark.xdist_group(str(together)))
