"""Adds up the JUnit reports of a test run: a table a suite, the skipped tests by reason, and one line of counts.

The last line of the output is `N passed, N failed, N skipped`, alone on its line; the exit status is 1 when anything
failed or nothing ran. A phase that ended badly without a failed test of its own (a build error) counts as one failure.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

_GTEST_REASON = re.compile(r"^.*?\b(needs [^\n]+)$", re.MULTILINE)

# What CTest says of a selected test whose binary is not there: no capability of the machine, a fault of the build.
_NOT_BUILT = "Unable to find executable"


@dataclasses.dataclass
class Suite:
    name: str
    passed: int = 0
    failed: list[str] = dataclasses.field(default_factory=list)
    skipped: dict[str, str] = dataclasses.field(default_factory=dict)


def skip_reason(case: ElementTree.Element, mark: ElementTree.Element) -> str:
    """The capability that was missing: pytest says it in the mark, GoogleTest in the output."""
    output = case.findtext("system-out") or ""
    found = _GTEST_REASON.search(output)
    if found:
        return found.group(1).strip()
    return (mark.get("message") or mark.text or "no reason given").strip().splitlines()[0]


def read_report(path: pathlib.Path) -> Suite:
    suite = Suite(path.stem)
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = f"{case.get('classname') or ''}::{case.get('name')}"
        mark = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            suite.failed.append(name)
        elif mark is not None:
            reason = skip_reason(case, mark)
            if reason == _NOT_BUILT:
                suite.failed.append(f"{name} (not built)")
            else:
                suite.skipped[name] = reason
        elif case.get("status") in ("notrun", "disabled"):
            suite.skipped[name] = f"did not run: {case.get('status')}"
        else:
            suite.passed += 1
    return suite


def read_phases(folder: pathlib.Path) -> list[tuple[str, int, int]]:
    """(phase, exit status, seconds) as tools/dev test wrote them."""
    path = folder / "phases.txt"
    lines = path.read_text().split("\n") if path.exists() else []
    return [(name, int(status), int(seconds)) for name, status, seconds in (line.split() for line in lines if line)]


# Phases that write a JUnit report, and its name.
_REPORTS = {"release": "ctest-release", "python": "pytest", "asan": "ctest-asan", "tsan": "ctest-tsan"}


def phase_failures(phases: list[tuple[str, int, int]], suites: list[Suite]) -> list[str]:
    """Phases that failed though none of their reports says why."""
    failed = {suite.name for suite in suites if suite.failed}
    return [
        f"phase {name} (exit status {status}, before or outside its tests)"
        for name, status, _ in phases
        if status != 0 and not any(report.startswith(_REPORTS.get(name, "?")) for report in failed)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--minutes", default="?")
    arguments = parser.parse_args()
    suites = [read_report(path) for path in sorted(arguments.folder.glob("*.xml"))]
    phases = read_phases(arguments.folder)
    broken = phase_failures(phases, suites)

    print(f"\n{'suite':<24}{'passed':>8}{'failed':>8}{'skipped':>8}")
    for suite in suites:
        print(f"{suite.name:<24}{suite.passed:>8}{len(suite.failed):>8}{len(suite.skipped):>8}")
    reasons = collections.Counter(reason for suite in suites for reason in suite.skipped.values())
    for reason, count in reasons.most_common():
        print(f"  skipped {count:>4}: {reason}")
    for suite in suites:
        for name in suite.failed:
            print(f"  FAILED {suite.name}: {name}")
    for line in broken:
        print(f"  FAILED {line}")
    times = ", ".join(f"{name} {seconds / 60:.1f}" for name, _, seconds in phases)
    print(f"minutes: {arguments.minutes} in all ({times})")

    passed = sum(suite.passed for suite in suites)
    failed = sum(len(suite.failed) for suite in suites) + len(broken)
    skipped = sum(len(suite.skipped) for suite in suites)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    # The others write no report: what they find is their exit status.
    no_tests_meant = bool(phases) and not any(name in _REPORTS for name, _, _ in phases)
    return 0 if failed == 0 and (passed > 0 or no_tests_meant) else 1


if __name__ == "__main__":
    sys.exit(main())
