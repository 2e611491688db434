"""Names and words: what files and types are not called, what no file says, which READMEs exist."""

from __future__ import annotations

import pathlib
import re

from source_tree import CXX_SUFFIXES, Finding, SourceTree, code_of

# Nouns that say nothing: as the last word of a name. The others say nothing anywhere in it.
EMPTY_NOUNS = {"data", "info", "common", "impl", "manager"}
EMPTY_WORDS = {"utils", "util", "helpers", "helper", "misc"}
_FILE_NAME = re.compile(r"^[a-z0-9_]+(\.[a-z0-9_]+)*$")
_EMPTY_TYPE = re.compile(r"\b(?:class|struct)\s+(?:alignas\([^)]*\)\s*)?(\w*(?:Manager|Helpers?|Utils?|Impl|Misc))\b")
_UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")
_MACHINE_PATH = re.compile(r"(?<![\w.$}/-])/(work|root|home|farm)/")
_HOSTS = re.compile(r"\b(pypi|pythonhosted|deb\.debian|download\.pytorch)" r"\.org\b")

README_LINES_MAX = 60
ROOT_README_LINES_MAX = 150
# Root folder -> how deep below it each folder has a README. Deeper folders may have one.
README_DEPTHS = {
    "proto": 2,
    "libclient": 2,
    "daemon": 3,
    "bindings": 2,
    "tools": 2,
    "deploy": 2,
    "tests": 2,
    "docs": 2,
    "cmake": 2,
}


def check_file_names(tree: SourceTree) -> list[Finding]:
    findings = []
    for path in tree.paths(*CXX_SUFFIXES, ".py"):
        name = pathlib.PurePosixPath(path).name
        words = re.split(r"[_.]", name.rsplit(".", 1)[0])
        empty = (set(words) & EMPTY_WORDS) | (set(words[-1:]) & EMPTY_NOUNS)
        if empty:
            findings.append(Finding("names", path, 0, f"'{min(empty)}' says nothing about what is inside"))
        if not _FILE_NAME.match(name):
            findings.append(Finding("names", path, 0, "files are called in snake_case"))
    return findings


def check_type_names(tree: SourceTree) -> list[Finding]:
    findings = []
    for path in tree.cxx():
        code = code_of(tree.text(path))
        for match in _EMPTY_TYPE.finditer(code):
            line = code.count("\n", 0, match.start()) + 1
            findings.append(Finding("names", path, line, f"{match.group(1)}: name the noun it is"))
    return findings


def check_words(tree: SourceTree) -> list[Finding]:
    """Nothing unfinished lands; nothing names one machine's folders or a package index."""
    findings = []
    for path in tree.paths():
        for number, line in enumerate(tree.text(path).splitlines(), 1):
            if _UNFINISHED.search(line):
                findings.append(Finding("unfinished", path, number, line.strip()[:80]))
            if _MACHINE_PATH.search(line):
                findings.append(Finding("machine-path", path, number, line.strip()[:80]))
            if _HOSTS.search(line):
                findings.append(Finding("machine-path", path, number, line.strip()[:80]))
    return findings


def _folders(tree: SourceTree) -> set[str]:
    folders: set[str] = set()
    for path in tree.paths():
        parents = pathlib.PurePosixPath(path).parent.parts
        depth_max = min(len(parents), README_DEPTHS.get(parents[0], 0)) if parents else 0
        folders.update("/".join(parents[:depth]) for depth in range(1, depth_max + 1))
    return folders


def check_readmes(tree: SourceTree) -> list[Finding]:
    findings = [
        Finding("readme", folder, 0, "has no README.md: why it exists, what belongs there")
        for folder in sorted(_folders(tree))
        if f"{folder}/README.md" not in tree
    ]
    for path in tree.paths("README.md"):
        budget = ROOT_README_LINES_MAX if path == "README.md" else README_LINES_MAX
        lines = tree.text(path).count("\n")
        if lines > budget:
            findings.append(Finding("readme", path, 0, f"{lines} lines, at most {budget}"))
    return findings
