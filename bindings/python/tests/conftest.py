"""Fixtures of the package's unit tests: a client over the fake library, no daemon."""

from __future__ import annotations

import gc
import os
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # Before torch: the tests may share their cores.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import tierd  # noqa: E402
from fake_library import FakeLibrary  # noqa: E402
from tierd.session import Session  # noqa: E402


@pytest.fixture
def fake() -> FakeLibrary:
    return FakeLibrary()


@pytest.fixture
def client(fake: FakeLibrary) -> Iterator[tierd.Client]:
    client = tierd.Client(Session(fake, 1))  # type: ignore[arg-type]
    yield client
    client.close()


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The types of what was raised in finalizers, which Python only reports."""
    found: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda report: found.append(report.exc_type))
    return found


@pytest.fixture(scope="module", autouse=True)
def objects_from_before_are_not_collected() -> Iterator[None]:
    """A collection then visits what the tests of one file make, and not the million objects of torch, of pytest and of
    the files before it: those take most of a second each time."""
    gc.freeze()
    yield
    gc.collect()  # What the file leaves is freed while that is quick.
    gc.unfreeze()
