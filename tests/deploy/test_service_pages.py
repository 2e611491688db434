"""The pages' commands for the installed service, typed under a real systemd as they stand there, from its installation
to its removal. service_pages.sh holds the steps."""

from __future__ import annotations

import pathlib
import shutil

from container import Container
from page_blocks import Block, blocks, run_by, user_pages
from surroundings import ROOT

# What only that block has, by the name that the drill gives to it.
NAMES = {
    "install": "sudo apt install ./tierd_*.deb\nsudo systemctl enable",
    "check": "sudo systemctl restart tierd\ntierctl status",
    "set": "sudo tierctl config set",
    "links": "runbook_url",
    "journal": "journalctl -u tierd -p warning",
    "failed": "systemctl --failed",
    "socket": "--now tierd.socket",
    "mlp": "./build/mlp",
    "restarted": "Main process",
    "watch_health": "--now tierd-smart.timer",
    "smart": "list-timers tierd-smart.timer",
    "drain": "tierctl drain --wait && ",
    "device": "tierctl device drain 1",
    "upgrade": "sudo apt install ./tierd_*.deb\ntierctl version",
    "uninstall": "sudo apt purge tierd",
}
NEWER = "99.1"  # As service_pages.sh names it.
STEPS = 21
# Of the blocks of runbooks that run in part, beside tierctl: what needs the service, and neither an NVMe drive, a log
# of the kernel nor a terminal.
LOOKED_AT = ("tierd ", "journalctl ", "systemctl ", "ls -l /var/lib/tierd", "findmnt ", "df ", "cat /proc/pressure/")


def typed() -> dict[str, Block]:
    ours = run_by(__file__)
    found = {name: [block for block in ours if text in block.text] for name, text in NAMES.items()}
    assert {name: len(matches) for name, matches in found.items()} == dict.fromkeys(NAMES, 1)
    return {name: block for name, (block,) in found.items()}


def looked_at() -> list[str]:
    """The first command of each such line; what it is piped into finds nothing where nothing has happened."""
    partly = [block for page in user_pages() for block in blocks(page) if block.run == "partly run"]
    lines = [line.split(" | ")[0] for block in partly for line in block.text.splitlines()]
    return sorted({line for line in lines if line.startswith(LOOKED_AT)})


def test_every_block_that_is_to_be_typed_here_is() -> None:
    assert {str(block) for block in typed().values()} == {str(block) for block in run_by(__file__)}


def test_the_pages_commands_for_the_service_work(container: Container, deb: pathlib.Path) -> None:
    for name, block in typed().items():
        (container.drill / f"{name}.sh").write_text(block.text)
    (container.drill / "looked_at").write_text("".join(f"{line}\n" for line in looked_at()))
    shutil.copytree(ROOT / "examples/mlp", container.drill / "mlp")
    container.add_newer(deb, NEWER)
    container.run("service_pages.sh", STEPS)
