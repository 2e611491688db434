"""From the package to the first tensor that another user swaps, by the lines of docs/quick-start.md and no other."""

from __future__ import annotations

import pathlib
import re
import shutil

from container import Container
from page_blocks import Block, blocks, run_by

PAGE = "docs/quick-start.md"
COMMANDS_MAX = 8
SECONDS_MAX = 60.0


def block_with(text: str) -> Block:
    (found,) = [block for block in blocks(PAGE) if text in block.text]
    return found


def lines_of(block: Block) -> list[str]:
    return [line for line in block.text.splitlines() if line]


def commands() -> list[str]:
    """What is typed with the package in hand. What builds it is the first line, which the fixture `deb` runs."""
    service = [line for line in lines_of(block_with("sudo apt install")) if not line.startswith("tools/dev package")]
    return [*service, *lines_of(block_with("cc -std=c11"))]


def test_the_lines_are_few_and_install_start_compile_and_run() -> None:
    assert {str(block_with(text)) for text in ("sudo apt install", "cc -std=c11")} == set(map(str, run_by(__file__)))
    # To save the program is one more thing to do.
    assert len(commands()) + 1 <= COMMANDS_MAX
    wanted = (
        r"sudo apt install \./dist/tierd_\*\.deb",
        r"sudo systemctl enable --now tierd",
        r"cc .*first\.c.*",
        r"\./first",
    )
    assert [bool(re.fullmatch(pattern, line)) for pattern, line in zip(wanted, commands(), strict=True)] == [True] * 4


def test_another_user_swaps_a_tensor_within_a_minute(container: Container, deb: pathlib.Path) -> None:
    (container.drill / "commands").write_text("".join(f"{line}\n" for line in commands()))
    dist = container.drill / "checkout/dist"
    dist.mkdir(parents=True)
    shutil.copy(deb, dist)
    (container.drill / "home").mkdir()
    program = block_with("int main")
    (container.drill / "home/first.c").write_text(program.text)
    container.run("first_tensor.sh", steps=len(commands()))
    assert (container.drill / "answer").read_text() == program.answer
    times = [line.split(" ", 1) for line in (container.drill / "times").read_text().splitlines()]
    waited = sum(int(milliseconds) for milliseconds, _ in times) / 1000
    for milliseconds, line in times:
        print(f"{int(milliseconds) / 1000:6.1f} s  {line}")
    print(f"{len(times) + 1} commands with the saving of first.c, {waited:.1f} s of waiting")
    assert waited <= SECONDS_MAX
