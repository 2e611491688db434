"""The style rules over this repository. What may pass is in exceptions.toml, each with a reason."""

from __future__ import annotations

import functools
import pathlib
import tomllib
from collections.abc import Callable
from typing import Any

import compiler_rules
import engine_rules
import layer_rules
import name_rules
import pytest
import registration_rules
import size_rules
from source_tree import Finding, SourceTree

ROOT = pathlib.Path(__file__).resolve().parents[2]

RULES: dict[str, Callable[[SourceTree], list[Finding]]] = {
    "layers": layer_rules.check_layers,
    "folder order": layer_rules.check_folder_order,
    "third-party homes": layer_rules.check_homes,
    "tiering is pure": layer_rules.check_tiering_is_pure,
    "file sizes": size_rules.check_file_sizes,
    "functions": size_rules.check_functions,
    "line lengths": size_rules.check_line_lengths,
    "check density": size_rules.check_density,
    "tests per code": size_rules.check_tests_per_code,
    "file names": name_rules.check_file_names,
    "type names": name_rules.check_type_names,
    "words": name_rules.check_words,
    "readmes": name_rules.check_readmes,
    "sources are built": registration_rules.check_sources_are_built,
    "python tests are collected": registration_rules.check_python_tests_are_collected,
    "headers are included": registration_rules.check_headers_are_included,
    "conversions warn": compiler_rules.check_conversions_warn,
    "tidy measures functions": compiler_rules.check_tidy_measures_functions,
    "states are used": engine_rules.check_states_are_used,
    "the host is read in memory": engine_rules.check_host_is_read_in_memory,
    "loops over jobs": engine_rules.check_loops_over_jobs,
}


@functools.cache
def exceptions() -> dict[str, Any]:
    return tomllib.loads((ROOT / "tests/style/exceptions.toml").read_text())


@functools.cache
def findings_of(rule: str) -> list[Finding]:
    return RULES[rule](SourceTree.read(ROOT))


def excuses(entry: dict[str, str], finding: Finding) -> bool:
    return entry["rule"] == finding.rule and entry["path"] == finding.path and entry.get("contains", "") in finding.text


def require_none(findings: list[Finding]) -> None:
    if findings:
        pytest.fail(f"{len(findings)} findings\n" + "\n".join(map(str, findings)), pytrace=False)


def unexcused(findings: list[Finding]) -> list[Finding]:
    entries = exceptions().get("exception", [])
    return [finding for finding in findings if not any(excuses(entry, finding) for entry in entries)]


@pytest.mark.parametrize("rule", RULES)
def test_tree_keeps(rule: str) -> None:
    require_none(unexcused(findings_of(rule)))


def test_every_readme_command_is_run_or_listed() -> None:
    covered = exceptions().get("readme_commands", {})
    require_none(registration_rules.check_readme_commands(SourceTree.read(ROOT), covered))


def test_every_exception_has_a_reason_and_is_needed() -> None:
    findings = [finding for rule in RULES for finding in findings_of(rule)]
    for entry in exceptions().get("exception", []):
        assert len(entry.get("reason", "")) > 20, f"{entry}: say why"
        assert any(excuses(entry, finding) for finding in findings), f"{entry}: nothing needs it any more"
