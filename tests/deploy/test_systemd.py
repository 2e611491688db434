"""The Debian package under a real systemd: it is installed in a container, another user swaps through it, it is killed,
upgraded and drained, loses an SSD, and is stopped and purged. drill.sh holds the steps."""

from __future__ import annotations

import pathlib

from container import Container

# Half of what the client puts in.
CONFIGURATION = """
[arena]
maximum = "256MiB"
[ssd]
file_size = "3GiB"
"""
NEWER = ("99.1", "99.2", "99.3", "99.4")  # As drill.sh names them.
STEPS = 32


def test_the_package_serves_survives_and_leaves_nothing(container: Container, deb: pathlib.Path) -> None:
    container.add_newer(deb, *NEWER)
    (container.drill / "tierd.toml").write_text(CONFIGURATION)
    container.run("drill.sh", STEPS)
