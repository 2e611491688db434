"""The wheel's metadata: what pyproject.toml declares under [project], and nothing else."""

from __future__ import annotations

import email
import importlib.util
import pathlib
import tomllib
from email.message import Message

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROJECT = """
[project]
name = "tierd"
version = "1.2.3"
description = "Tensors"
requires-python = ">=3.11"
license = {text = "Apache-2.0"}
"""


def core_metadata(pyproject: str) -> Message:
    spec = importlib.util.spec_from_file_location("build_wheel", ROOT / "build_wheel.py")
    assert spec is not None and spec.loader is not None
    build_wheel = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build_wheel)
    return email.message_from_string(build_wheel.core_metadata(pyproject))


def test_the_extras_are_those_of_pyproject() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    declared = tomllib.loads(text)["project"]["optional-dependencies"]
    found = core_metadata(text)
    assert found.get_all("Provides-Extra") == list(declared)
    assert found.get_all("Requires-Dist") == [
        f"{requirement} ; extra == '{extra}'"
        for extra, requirements in declared.items()
        for requirement in requirements
    ]
    assert not found.get_payload()


def test_tables_of_tools_do_not_become_extras() -> None:
    planted = (
        '[project.optional-dependencies]\nx = ["y>=1"]\n\n[tool.setuptools]\npackages = ["other", "other.torch"]\n'
    )
    found = core_metadata(PROJECT + planted)
    assert found.get_all("Provides-Extra") == ["x"]
    assert found.get_all("Requires-Dist") == ["y>=1 ; extra == 'x'"]


def test_a_project_without_extras_provides_none() -> None:
    found = core_metadata(PROJECT + '[tool.setuptools]\npackages = ["other"]\n')
    assert found.get_all("Provides-Extra") is None
    assert found.get_all("Requires-Dist") is None


def test_requirements_over_several_lines_with_markers_are_whole() -> None:
    several = """
dependencies = ["z"]
[project.optional-dependencies]
gpu = [
    "a>=1",  # a remark
    "b[c] ; python_version < '3.13'",
]
"""
    found = core_metadata(PROJECT + several)
    assert found.get_all("Provides-Extra") == ["gpu"]
    assert found.get_all("Requires-Dist") == [
        "z",
        "a>=1 ; extra == 'gpu'",
        "b[c] ; (python_version < '3.13') and extra == 'gpu'",
    ]
