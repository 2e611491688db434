"""The repository as the style rules see it: path -> text of every file that git knows or would know.

Rules are functions of a SourceTree, so each is tested on a small tree made by hand (SourceTree.of).
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import re
import subprocess

CXX_SUFFIXES = (".cc", ".h", ".hpp", ".c")
HEADER_SUFFIXES = (".h", ".hpp")


@dataclasses.dataclass(frozen=True)
class Finding:
    """One place that breaks one rule. `line` 0: the file as a whole."""

    rule: str
    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: [{self.rule}] {self.text}"


class SourceTree:
    """Immutable: paths are relative to the root, with forward slashes."""

    def __init__(self, files: dict[str, str]) -> None:
        self._files = dict(sorted(files.items()))

    @staticmethod
    def of(files: dict[str, str]) -> SourceTree:
        return SourceTree(files)

    @staticmethod
    @functools.cache
    def read(root: pathlib.Path) -> SourceTree:
        """Tracked files, and new ones that git does not ignore. Binary files are left out."""
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
            cwd=root,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split("\0")
        files: dict[str, str] = {}
        for path in listed:
            full = root / path
            if not path or not full.is_file() or full.is_symlink():
                continue
            content = full.read_bytes()
            if b"\0" not in content:
                files[path] = content.decode("utf-8", errors="replace")
        return SourceTree(files)

    def paths(self, *suffixes: str, under: str = "") -> list[str]:
        """Paths with one of the suffixes (any without), below folder `under`."""
        return [path for path in self._files if path.startswith(under) and (not suffixes or path.endswith(suffixes))]

    def text(self, path: str) -> str:
        return self._files[path]

    def __contains__(self, path: str) -> bool:
        return path in self._files

    def cxx(self, under: str = "") -> list[str]:
        return self.paths(*CXX_SUFFIXES, under=under)


_CXX_TOKEN = re.compile(
    r"""
      //[^\n]*                                   # line comment
    | /\*.*?\*/                                  # block comment
    | R"(?P<tag>[^\s()\\]{0,16})\(.*?\)(?P=tag)" # raw string
    | "(?:\\.|[^"\\\n])*"                        # string
    | (?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'        # character, not a digit separator
    """,
    re.VERBOSE | re.DOTALL,
)


def blank_out(match: re.Match[str]) -> str:
    """Comments become spaces and literals empty ones, on the same lines."""
    text = match.group(0)
    newlines = "\n" * text.count("\n")
    return newlines if text.startswith(("//", "/*")) else '""' + newlines


def code_of(text: str) -> str:
    """C++ without comments, literals and preprocessor lines (includes among them); line numbers stay."""
    code = _CXX_TOKEN.sub(blank_out, text)
    return re.sub(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", lambda m: "\n" * m.group(0).count("\n"), code, flags=re.MULTILINE)


def count_code_lines(text: str) -> int:
    """Lines that hold more than a comment."""
    code = _CXX_TOKEN.sub(blank_out, text)
    return sum(1 for line in code.splitlines() if line.strip())
