"""Has clang prove which thread holds which lock: -Wthread-safety over every source that sees proto/mutex.h, and over
all of the daemon and libtier, which the fuzzers have built by clang.

Syntax only, about 3 s of CPU a source. The commands are those of build/release, which are g++'s: of their flags only
those are kept that decide what the source means. A source that has passed is not analysed again until it, a header that
it includes, or its command has changed (--passed names the file that remembers). Exit status 1 when a source touches
guarded state without its lock, or does not parse.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import functools
import hashlib
import json
import pathlib
import re
import shlex
import subprocess
import sys

HEADER = "proto/mutex.h"
_PRODUCT = ("daemon/", "libclient/")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)
_KEPT = re.compile(r"^-(D|I|U|std=|m|isystem$)")
# The last one: what clang refuses by itself, and would in the build of the fuzzers.
_ANALYSIS = (
    "-fsyntax-only",
    "-Wno-everything",
    "-Wthread-safety",
    "-Werror=thread-safety",
    "-Werror=strict-primary-template-shadow",
)


def arguments_of(command: str) -> list[str]:
    """What clang needs of one of g++'s commands: definitions, include paths, language and target; without the file."""
    kept: list[str] = []
    words = shlex.split(command)
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if _KEPT.match(word):
            kept += [word, following] if word == "-isystem" else [word]
    return kept


@functools.cache
def _includes(root: pathlib.Path, path: str) -> tuple[str, ...]:
    """Files of the project that this one includes, by their paths from the root."""
    found = []
    beside = pathlib.PurePosixPath(path).parent
    for name in _INCLUDE.findall((root / path).read_text(errors="replace")):
        candidates = (name, f"libclient/include/{name}", str(beside / name))
        found += [candidate for candidate in candidates if (root / candidate).is_file()][:1]
    return tuple(found)


def closure(root: pathlib.Path, source: str) -> set[str]:
    """The source and every file of the project that it includes, directly or not."""
    seen = {source}
    waiting = [source]
    while waiting:
        new = set(_includes(root, waiting.pop())) - seen
        seen |= new
        waiting += new
    return seen


def analyses(root: pathlib.Path, commands: pathlib.Path, clang: str) -> dict[str, list[str]]:
    """Fingerprint -> the command that analyses a source, for each C++ source of the product or that sees the header."""
    found: dict[str, list[str]] = {}
    seen: set[str] = set()
    for entry in json.loads(commands.read_text()):
        path = (pathlib.Path(entry["directory"]) / entry["file"]).resolve()
        if not path.is_relative_to(root) or path.suffix != ".cc" or not path.is_file():
            continue
        source = path.relative_to(root).as_posix()
        files = closure(root, source)
        if source in seen or not (HEADER in files or source.startswith(_PRODUCT)):
            continue
        seen.add(source)
        command = [clang, *arguments_of(entry["command"]), *_ANALYSIS, str(path)]
        fingerprint = hashlib.sha256(repr(command).encode())
        for file in sorted(files):
            fingerprint.update(file.encode() + b"\0" + (root / file).read_bytes())
        found[fingerprint.hexdigest()] = command
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path.cwd())
    parser.add_argument("--commands", type=pathlib.Path, default=pathlib.Path("build/release/compile_commands.json"))
    parser.add_argument("--passed", type=pathlib.Path, default=pathlib.Path("build/release/thread_safety.json"))
    parser.add_argument("--clang", default="clang++-19")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    every = analyses(options.root.resolve(), options.commands, options.clang)
    before = set(json.loads(options.passed.read_text())) if options.passed.exists() else set()
    passed = before & set(every)
    todo = {key: command for key, command in every.items() if key not in passed}

    def analyse(command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, capture_output=True, text=True, check=False)

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for key, ended in zip(todo, pool.map(analyse, todo.values()), strict=True):
            sys.stderr.write(ended.stderr)
            if ended.returncode == 0:
                passed.add(key)
    options.passed.write_text(json.dumps(sorted(passed), indent=0))
    failed = len(every) - len(passed)
    print(f"thread safety: {len(every)} sources, {len(todo)} analysed, {failed} failed")
    return 1 if failed or not every else 0


if __name__ == "__main__":
    sys.exit(main())
