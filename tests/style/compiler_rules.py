"""Compilers' warnings: every C++ target is compiled with -Wconversion, and clang-tidy measures functions as we do."""

from __future__ import annotations

import re

import size_rules
from source_tree import Finding, SourceTree

_FLAGS = "cmake/TierTargets.cmake"
_TIDY = ".clang-tidy"
_TARGET = re.compile(r"\badd_(?:executable|library)\(\s*(\S+)\s+([^()]*)\)")
# What is given to a target by hand: our C++ sources, or the SOURCES of a function that declares targets.
_SOURCES = re.compile(r"(?<![\w/}.\"])[\w./]+\.cc\b|\$\{ARG_SOURCES\}")
_SILENCED = re.compile(r"-Wno-(?:\w+-)?conversion\b|(?<![\w-])-w(?![\w-])")
_SIGNS = "-Wno-sign-conversion"  # Signs are not asked about (TierTargets.cmake).
_EXTERNAL = ("examples/",)  # Built by their readers, against an installed tierd.


def _commands(tree: SourceTree, path: str) -> str:
    return re.sub(r"#[^\n]*", lambda comment: " " * len(comment.group(0)), tree.text(path))


def check_conversions_warn(tree: SourceTree) -> list[Finding]:
    """-Wconversion is in tier_flags, every target that compiles C++ links tier_flags, and none takes it away."""
    findings = []
    flags = _commands(tree, _FLAGS) if _FLAGS in tree else ""
    if not re.search(r"target_compile_options\(tier_flags INTERFACE[^)]*\s-Wconversion\b", flags):
        findings.append(Finding("conversions", _FLAGS, 0, "tier_flags has no -Wconversion"))
    for path in tree.paths("CMakeLists.txt", ".cmake"):
        if path.startswith(_EXTERNAL):
            continue
        text = _commands(tree, path)
        for match in _TARGET.finditer(text):
            name = re.escape(match.group(1))
            linked = re.search(rf"\btarget_link_libraries\(\s*{name}\s[^()]*\btier_flags\b", text)
            if _SOURCES.search(match.group(2)) and not linked:
                line = text.count("\n", 0, match.start()) + 1
                findings.append(Finding("conversions", path, line, f"{match.group(1)} does not link tier_flags"))
        for match in _SILENCED.finditer(text):
            if match.group(0) != _SIGNS:
                line = text.count("\n", 0, match.start()) + 1
                findings.append(Finding("conversions", path, line, f"{match.group(0)} takes -Wconversion away"))
    return findings


def check_tidy_measures_functions(tree: SourceTree) -> list[Finding]:
    """.clang-tidy runs readability-function-size, as an error, with the budgets of size_rules.py."""
    text = re.sub(r"(?m)^\s*#.*$", "", tree.text(_TIDY)) if _TIDY in tree else ""
    wanted = {
        r"(?m)^\s*readability-function-size,?$": "readability-function-size is not among the checks",
        r"(?m)^WarningsAsErrors:\s*'\*'$": "findings are not errors",
    }
    budgets = {"Line": size_rules.FUNCTION_LINES_MAX, "Parameter": size_rules.PARAMETERS_MAX}
    for name, most in budgets.items():
        option = f"readability-function-size.{name}Threshold"
        wanted[rf"(?m)^\s*{re.escape(option)}:\s*{most}$"] = f"{option} is not {most}"
    return [Finding("tidy", _TIDY, 0, missing) for pattern, missing in wanted.items() if not re.search(pattern, text)]
