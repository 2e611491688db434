"""Finds the functions of a C++ source by its braces: where they begin and end, their parameters, how deep they nest.

Best effort, without a compiler: good enough for budgets. A brace opens a type or namespace, a function, a block inside
a function, or an initialiser; which one is read off the text before it.
"""

from __future__ import annotations

import dataclasses
import functools
import re

from source_tree import code_of

_TYPE = re.compile(r"\b(namespace|class|struct|union|enum|extern)\b")
_CONTROL = re.compile(r"\b(if|for|while|switch|catch)\b.*\)\s*$|\b(else|do|try)\s*$", re.DOTALL)
_AFTER_PARAMETERS = re.compile(r"\)\s*(const|noexcept|override|final|mutable|&&?|requires[^{}]*|->\s*[^{};]+|\s)*$")
_LAMBDA = re.compile(r"\[[^\[\]]*\]\s*(\([^;]*\))?\s*(mutable|noexcept|const|->\s*[^{};]+|\s)*$", re.DOTALL)
_TEMPLATE = re.compile(r"\btemplate\s*<[^;{}]*?>\s*(?=[A-Za-z\[:])")


@dataclasses.dataclass
class Function:
    name: str
    first_line: int
    last_line: int
    parameters: int
    nesting: int

    @property
    def lines(self) -> int:
        return self.last_line - self.first_line + 1


@dataclasses.dataclass
class _Scope:
    kind: str  # "type", "function", "control", "lambda", "block" or "initialiser"
    header: str
    first_line: int
    deepest: int = 0


def _split_parameters(inside: str) -> int:
    """Top-level commas + 1, with <>, (), [] and {} taken as brackets."""
    if inside.strip() in ("", "void"):
        return 0
    depth = 0
    count = 1
    for previous, character in zip(" " + inside, inside, strict=False):
        if character in "([{" or (character == "<" and previous not in "<-"):
            depth += 1
        elif character in ")]}" or (character == ">" and previous not in "-="):
            depth = max(0, depth - 1)
        elif character == "," and depth == 0:
            count += 1
    return count


def _parameter_list(header: str) -> tuple[str, str]:
    """(name, text between the parentheses) of the first top-level parenthesised group that follows a name."""
    cleaned = re.sub(r"operator\s*\(\)", "operator_call", _TEMPLATE.sub("", header))
    specifiers = r"\b(alignas|__attribute__|noexcept|decltype|explicit)\s*\([^()]*(\([^()]*\))*[^()]*\)"
    cleaned = re.sub(specifiers, "", cleaned)
    found = re.search(r"([\w~:]+|operator\s*[^\s\w(]+)\s*\(", cleaned)
    if not found:
        return "?", ""
    depth = 0
    for position in range(found.end() - 1, len(cleaned)):
        depth += {"(": 1, ")": -1}.get(cleaned[position], 0)
        if depth == 0:
            return found.group(1), cleaned[found.end() : position]
    return found.group(1), ""


def _classify(header: str, inside_function: bool) -> str:
    """What the brace after `header` opens."""
    text = _TEMPLATE.sub("", header).strip()
    if inside_function:
        if _CONTROL.search(text):
            return "control"
        if _LAMBDA.search(text):
            return "lambda"
        if text == "" or text.endswith((":", ")")):
            return "block"
        return "type" if re.match(r"(struct|class|union|enum)\b", text) else "initialiser"
    if _TYPE.match(re.sub(r"^(typedef|static|constexpr|inline|\[\[.*?\]\]|\s)+", "", text)) and "=" not in text:
        if not _AFTER_PARAMETERS.search(text) or re.match(r"(class|struct|union)\s+alignas", text):
            return "type"
    outside = re.sub(r"\([^()]*(\([^()]*(\([^()]*\)[^()]*)*\)[^()]*)*\)", "()", text)
    if "()" in outside and not re.search(r"(?<![=!<>])=(?!=)\s*$", outside):
        if _AFTER_PARAMETERS.search(outside) or re.search(r"\)\s*(noexcept\s*)?:[^:].*[)}\"]\s*$", outside, re.DOTALL):
            return "function"
    return "initialiser"


class _Scanner:
    """One pass over the code; `header` gathers what stands before the next brace."""

    def __init__(self, code: str) -> None:
        self.functions: list[Function] = []
        self._code = code
        self._scopes: list[_Scope] = []
        self._header = ""
        self._header_line = 1
        self._parentheses = 0
        self._line = 1

    def scan(self) -> list[Function]:
        for character in self._code:
            if character == "\n":
                self._line += 1
            self._step(character)
        return self.functions

    def _step(self, character: str) -> None:
        if character == "{":
            self._open()
        elif character == "}":
            self._close()
        elif character == ";" and self._parentheses == 0:
            self._restart()
        else:
            self._parentheses += {"(": 1, ")": -1}.get(character, 0)
            if not self._header.strip():
                self._header_line = self._line
            self._header += character

    def _restart(self) -> None:
        self._header = ""
        self._parentheses = 0

    def _function(self) -> _Scope | None:
        return next((scope for scope in reversed(self._scopes) if scope.kind == "function"), None)

    def _open(self) -> None:
        if self._parentheses > 0:
            kind = "lambda" if _LAMBDA.search(self._header) else "initialiser"
        else:
            kind = _classify(self._header, self._function() is not None)
        self._scopes.append(_Scope(kind, self._header, self._header_line))
        function = self._function()
        if function is not None and kind == "control":
            depth = sum(scope.kind == "control" for scope in self._scopes)
            function.deepest = max(function.deepest, depth)
        if kind == "initialiser":
            self._header += "{"
        else:
            self._restart()

    def _close(self) -> None:
        if not self._scopes:
            return
        scope = self._scopes.pop()
        if scope.kind == "initialiser":
            self._header = scope.header + '""'
            return
        if scope.kind == "lambda":  # The statement around it goes on.
            self._header = scope.header + '""'
            self._parentheses = max(0, scope.header.count("(") - scope.header.count(")"))
            return
        self._restart()
        if scope.kind == "function":
            name, inside = _parameter_list(scope.header)
            self.functions.append(
                Function(name, scope.first_line, self._line, _split_parameters(inside), scope.deepest)
            )


@functools.cache
def functions_of(text: str) -> list[Function]:
    """The functions of a C++ source, in the order in which they end."""
    return _Scanner(code_of(text)).scan()
