"""Registration: every test runs, every source is built, every header is included, every README command is covered."""

from __future__ import annotations

import pathlib
import re

from layer_rules import includes, resolve
from source_tree import HEADER_SUFFIXES, Finding, SourceTree

_PYTHON_TEST = re.compile(r"^(?:async )?def test_\w+", re.MULTILINE)
_SHELL_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LIST = "tests/style/exceptions.toml"
# Public headers are there for others to include.
_PUBLIC = ("libclient/include/", "libclient/control/include/")


def _registered(tree: SourceTree, path: str) -> bool:
    """Whether a CMakeLists.txt (or .cmake file) of a folder above names the file, relative to itself."""
    file = pathlib.PurePosixPath(path)
    for folder in file.parents:
        lists = "CMakeLists.txt" if str(folder) == "." else f"{folder}/CMakeLists.txt"
        if lists not in tree:
            continue
        relative = re.escape(str(file.relative_to(folder)))
        text = re.sub(r"#[^\n]*", "", tree.text(lists))
        if re.search(rf"(?<![\w/.]){relative}(?![\w.])|[}}/]{relative}(?![\w.])", text):
            return True
    return False


def check_sources_are_built(tree: SourceTree) -> list[Finding]:
    """Unregistered tests and dead sources: a .cc or .c that no CMakeLists.txt names."""
    findings = []
    for path in tree.paths(".cc", ".c"):
        if not _registered(tree, path):
            kind = "unregistered-test" if path.startswith("tests/") else "dead-file"
            findings.append(Finding(kind, path, 0, "no CMakeLists.txt above names it"))
    return findings


def check_python_tests_are_collected(tree: SourceTree) -> list[Finding]:
    return [
        Finding("unregistered-test", path, 0, "holds test functions, but pytest collects only test_*.py")
        for path in tree.paths(".py", under="tests/") + tree.paths(".py", under="bindings/")
        if _PYTHON_TEST.search(tree.text(path)) and not pathlib.PurePosixPath(path).name.startswith("test_")
    ]


def check_headers_are_included(tree: SourceTree) -> list[Finding]:
    included = {resolve(tree, path, name) for path in tree.cxx() for _, _, name in includes(tree, path)}
    return [
        Finding("dead-file", path, 0, "no file includes it")
        for path in tree.paths(*HEADER_SUFFIXES)
        if path not in included and not path.startswith(_PUBLIC)
    ]


def readme_commands(tree: SourceTree) -> list[str]:
    """Each line of the ```sh blocks of README.md, without comments."""
    blocks = _SHELL_BLOCK.findall(tree.text("README.md")) if "README.md" in tree else []
    lines = (re.sub(r"\s+#.*$", "", line).strip() for block in blocks for line in block.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def check_readme_commands(tree: SourceTree, covered: dict[str, str]) -> list[Finding]:
    """`covered`: command -> the test that runs it, or the reason why none does. Both directions must agree."""
    commands = readme_commands(tree)
    findings = [Finding("readme-command", "README.md", 0, f"`{command}` is neither run by a test nor listed")
                for command in commands if command not in covered]
    for command, by in covered.items():
        if command not in commands:
            findings.append(Finding("readme-command", _LIST, 0, f"`{command}` is not in README.md any more"))
        if by.startswith("tests/") and by.split("::")[0] not in tree:
            findings.append(Finding("readme-command", _LIST, 0, f"{by} (for `{command}`) is gone"))
    return findings
