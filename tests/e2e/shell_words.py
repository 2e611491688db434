"""What a shell block types, looked up in each program's help: verbs and long options that do not exist are found."""

from __future__ import annotations

import functools
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator

from launcher import BUILD, ROOT

OURS = {"tierctl": BUILD / "tools/tierctl/tierctl", "tierd": BUILD / "daemon/tierd"}
# Programs of the host that pages may name. Where one is installed, its long options are looked up too.
HOST = set(
    "apt cat cc cd cmake curl df dmesg docker findmnt grep install journalctl jq ls lsblk make nvme pip "
    "pkg-config python3 sed sort sysctl systemctl systemd-cgtop tail uniq".split()
)
_SEPARATORS = {"|", "||", "&&", ";", "&", "(", ")"}
_SUBSTITUTION = re.compile(r"\$\(([^()]*)\)")
_REDIRECTION = re.compile(r"[0-9]*[<>]+&?")


def commands(text: str) -> Iterator[list[str]]:
    """The words of each command, without what only the shell reads."""
    for inner in _SUBSTITUTION.findall(text):
        yield from commands(inner)
    for line in re.sub(r"\\\n", " ", _SUBSTITUTION.sub("X", text)).splitlines():
        words: list[str] = []
        reader = shlex.shlex(line, posix=True, punctuation_chars=True)
        reader.wordchars += "$:@%{}+,!"
        skip = False
        for word in [*reader, ";"]:
            if word in _SEPARATORS:
                if words:
                    yield words
                words = []
            elif skip:
                skip = False
            elif _REDIRECTION.fullmatch(word):
                skip = True
            elif words or not re.fullmatch(r"sudo|\w+=.*", word):
                words.append(word)


@functools.cache
def _help(*command: str) -> str:
    found = subprocess.run([*command, "--help"], capture_output=True, text=True, check=False, timeout=60)
    return found.stdout + found.stderr if found.returncode == 0 else ""


def _options(words: list[str]) -> list[str]:
    """The long options among them, without values; those behind a bare -- are another program's."""
    words = words[: words.index("--")] if "--" in words else words
    return [word.split("=")[0] for word in words if re.match(r"--\w", word)]


def _unknown(words: list[str], text: str, what: str) -> list[str]:
    return [
        f"{what} has no option {option}"
        for option in _options(words)
        if f"{option}" not in re.findall(r"--[\w-]+", text)
    ]


def _tierctl(words: list[str]) -> list[str]:
    program = str(OURS["tierctl"])
    top = _help(program)
    names = [word for word in words if not word.startswith("-")]
    if not names:
        return _unknown(words, top, "tierctl")
    verb = names[:1]
    if "SUBCOMMAND" in _help(program, *verb):  # A noun: the verb follows.
        verb = names[:2]
    text = _help(program, *verb)
    alone = len(verb) == 1 and re.search(rf"^  {re.escape(verb[0])} .*alone it is", top, re.MULTILINE)
    if not text or (len(verb) == 1 and "SUBCOMMAND" in text and not alone):
        return [f"tierctl has no verb {' '.join(names[:2])}"]
    return _unknown(words, text + top, f"tierctl {' '.join(verb)}")


def faults(words: list[str]) -> list[str]:
    """What is wrong with one command; nothing, as far as help tells."""
    program, rest = words[0], words[1:]
    name = program.rsplit("/", 1)[-1]
    if program.startswith("./"):  # What the lines above have built.
        return []
    if program == "tools/dev":
        text = _help(str(ROOT / "tools/dev"), *rest[:1])
        return _unknown(rest, text, f"tools/dev {rest[0]}") if text else [f"tools/dev has no verb {rest[:1]}"]
    if name == "tierctl":
        return _tierctl(rest)
    if name == "tierd":
        return _unknown(rest, _help(str(OURS["tierd"])), "tierd")
    if name not in HOST:
        return [f"{program} is no program that pages name (tests/e2e/shell_words.py)"]
    if name == "systemctl" and shutil.which(name) and rest:
        verb = next((word for word in rest if not word.startswith("-")), "")
        if verb and not re.search(rf"^  {re.escape(verb)}\b", _help(name), re.MULTILINE):
            return [f"systemctl has no verb {verb}"]
    text = _help(name) if shutil.which(name) and name in ("systemctl", "journalctl", "curl", "df", "grep") else ""
    return _unknown(rest, text, name) if text else []
