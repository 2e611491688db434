"""A reload, a drain and undrain, and an upgrade of the package, while a trainer of another user swaps through SSD: no
job ends and no request fails. load.sh holds the steps."""

from __future__ import annotations

import pathlib
import re

from container import Container

# Half of what the trainer has.
CONFIGURATION = """
[arena]
maximum = "64MiB"
[ssd]
file_size = "1GiB"
"""
STEPS = ("reload", "drain and undrain", "upgrade of the package")


def test_a_trainer_does_not_notice(container: Container, deb: pathlib.Path) -> None:
    container.add_newer(deb, "99.1")
    (container.drill / "tierd.toml").write_text(CONFIGURATION)
    container.run("load.sh", steps=len(STEPS) + 3)
    figures = (container.drill / "figures").read_text().splitlines()
    print("\n".join(figures))
    assert [line.split(":")[0] for line in figures] == list(STEPS)
    for line in figures:
        served = re.search(r": (\d+) requests, 0 failed$", line)
        assert served and int(served[1]) >= 96, line
