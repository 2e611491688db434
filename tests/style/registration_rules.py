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


def _lists(tree: SourceTree) -> dict[str, str]:
    """Folder -> the text of its CMakeLists.txt and .cmake files, without comments."""
    texts: dict[str, str] = {}
    for path in tree.paths("CMakeLists.txt", ".cmake"):
        folder = str(pathlib.PurePosixPath(path).parent)
        texts[folder] = texts.get(folder, "") + re.sub(r"#[^\n]*", "", tree.text(path)) + "\n"
    return texts


def _registered(path: str, lists: dict[str, str]) -> bool:
    """Whether a folder above names the file relative to itself, or any folder names it behind a variable."""
    file = pathlib.PurePosixPath(path)
    for folder in map(str, file.parents):
        relative = re.escape(path if folder == "." else path.removeprefix(f"{folder}/"))
        if re.search(rf"(?:(?<![\w/.])|(?<=[}}/])){relative}(?![\w.])", lists.get(folder, "")):
            return True
    tails = "|".join(re.escape("/".join(file.parts[start:])) for start in range(len(file.parts)))
    behind_variable = re.compile(rf"\}}/({tails})(?![\w.])")
    return any(behind_variable.search(text) for text in lists.values())


def check_sources_are_built(tree: SourceTree) -> list[Finding]:
    """Unregistered tests and dead sources: a .cc or .c that no CMakeLists.txt names."""
    findings = []
    lists = _lists(tree)
    for path in tree.paths(".cc", ".c"):
        if not _registered(path, lists):
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
    findings = [
        Finding("readme-command", "README.md", 0, f"`{command}` is neither run by a test nor listed")
        for command in commands
        if command not in covered
    ]
    for command, by in covered.items():
        if command not in commands:
            findings.append(Finding("readme-command", _LIST, 0, f"`{command}` is not in README.md any more"))
        if by.startswith("tests/") and by.split("::")[0] not in tree:
            findings.append(Finding("readme-command", _LIST, 0, f"{by} (for `{command}`) is gone"))
    return findings
