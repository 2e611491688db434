"""Sizes: files, functions, parameters, nesting, line length; checks per thousand lines; tests beside code."""

from __future__ import annotations

import re

from cxx_functions import functions_of
from source_tree import CXX_SUFFIXES, HEADER_SUFFIXES, Finding, SourceTree, count_code_lines

SOURCE_LINES_MAX = 500
HEADER_LINES_MAX = 300
FUNCTION_LINES_MAX = 60
PARAMETERS_MAX = 5
NESTING_MAX = 3
COLUMNS_MAX = 120
CHECKS_PER_KLOC_MIN = 20
TESTS_PER_CODE_MIN = 1.0

_CHECK = re.compile(r"\bTIER_CHECK\w*\s*\(")


def check_file_sizes(tree: SourceTree) -> list[Finding]:
    findings = []
    for path in tree.paths(*CXX_SUFFIXES, ".py", ".sh"):
        lines = tree.text(path).count("\n")
        budget = HEADER_LINES_MAX if path.endswith(HEADER_SUFFIXES) else SOURCE_LINES_MAX
        if lines > budget:
            findings.append(Finding("file-size", path, 0, f"{lines} lines, at most {budget}"))
    return findings


def check_functions(tree: SourceTree) -> list[Finding]:
    findings = []
    for path in tree.cxx():
        for function in functions_of(tree.text(path)):
            at = function.first_line
            if function.lines > FUNCTION_LINES_MAX:
                findings.append(
                    Finding(
                        "function-size",
                        path,
                        at,
                        f"{function.name}: {function.lines} lines, at most {FUNCTION_LINES_MAX}",
                    )
                )
            if function.parameters > PARAMETERS_MAX:
                findings.append(
                    Finding(
                        "parameters",
                        path,
                        at,
                        f"{function.name}: {function.parameters} parameters, "
                        f"at most {PARAMETERS_MAX}, then an Options struct",
                    )
                )
            if function.nesting > NESTING_MAX:
                findings.append(
                    Finding(
                        "nesting", path, at, f"{function.name}: nests {function.nesting} deep, at most {NESTING_MAX}"
                    )
                )
    return findings


def check_line_lengths(tree: SourceTree) -> list[Finding]:
    return [
        Finding("line-length", path, number, f"{len(line)} columns, at most {COLUMNS_MAX}")
        for path in tree.paths(*CXX_SUFFIXES, ".py", ".sh", ".cmake", ".proto", "CMakeLists.txt")
        for number, line in enumerate(tree.text(path).splitlines(), 1)
        if len(line) > COLUMNS_MAX
    ]


def _code_lines(tree: SourceTree, paths: list[str]) -> int:
    return sum(count_code_lines(tree.text(path)) for path in paths)


def check_density(tree: SourceTree) -> list[Finding]:
    """TIER_CHECKs per thousand lines of the folders where a silent error would cost data."""
    findings = []
    for area in ("memory", "storage", "tiering", "session"):
        paths = tree.cxx(f"daemon/{area}/")
        lines = _code_lines(tree, paths)
        checks = sum(len(_CHECK.findall(tree.text(path))) for path in paths)
        if lines and checks * 1000 < CHECKS_PER_KLOC_MIN * lines:
            findings.append(
                Finding(
                    "check-density",
                    f"daemon/{area}",
                    0,
                    f"{checks} TIER_CHECKs in {lines} lines: {checks * 1000 / lines:.1f} per thousand, "
                    f"at least {CHECKS_PER_KLOC_MIN}",
                )
            )
    return findings


def tests_per_code(tree: SourceTree) -> dict[str, tuple[int, int]]:
    """area -> (lines of tests, lines of code). Tests of an area lie in tests/<kind>/<area>/ or are named after it."""
    ratios = {}
    for folder, area in (
        ("proto/", "proto"),
        ("daemon/storage/", "storage"),
        ("daemon/tiering/", "tiering"),
        ("daemon/session/", "session"),
    ):
        mine = re.compile(rf"tests/\w+/({area}/|{area}_|[a-z_]*{area}\w*\.cc)")
        tests = [path for path in tree.cxx("tests/") if mine.match(path)]
        ratios[area] = (_code_lines(tree, tests), _code_lines(tree, tree.cxx(folder)))
    return ratios


def check_tests_per_code(tree: SourceTree) -> list[Finding]:
    return [
        Finding(
            "tests-per-code",
            area,
            0,
            f"{tests} lines of tests for {code} of code: {tests / code:.2f}, at least {TESTS_PER_CODE_MIN:.1f}",
        )
        for area, (tests, code) in tests_per_code(tree).items()
        if code and tests < TESTS_PER_CODE_MIN * code
    ]
