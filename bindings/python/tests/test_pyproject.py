"""pyproject.toml agrees with what it describes."""

from __future__ import annotations

import pathlib
import tomllib

import tierd

ROOT = pathlib.Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "bindings/python/pyproject.toml").read_text())["project"]


def test_the_version_is_the_packages() -> None:
    assert PROJECT["version"] == tierd.__version__


def test_the_licence_is_that_of_all_that_the_wheel_carries() -> None:
    components = tomllib.loads((ROOT / "deploy/licences/components.toml").read_text())["component"]
    parts = {part for component in components for part in component["licence"].split(" AND ")}
    assert len(components) > 10
    assert set(PROJECT["license"].split(" AND ")) == parts | {"Apache-2.0"}
