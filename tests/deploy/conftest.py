"""What the tests of deploy/ share: the Debian package (built once), a place on a real disk."""

from __future__ import annotations

import fcntl
import os
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator

import container as containers
import pytest
from surroundings import BUILD, ROOT, find_tool


@pytest.fixture(scope="session")
def deb() -> pathlib.Path:
    """The Debian package, as the README's command makes it."""
    if not (BUILD / "daemon/tierd").exists():
        pytest.skip(f"needs a build: {BUILD} has no tierd")
    find_tool("dpkg-shlibdeps", "apt-get install dpkg-dev")
    # Once in a run, however many processes it has: to build it again would take it from under the tests of another.
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    (ROOT / ".cache").mkdir(exist_ok=True)
    with (ROOT / ".cache/deb.run").open("a+") as built:
        fcntl.flock(built, fcntl.LOCK_EX)
        built.seek(0)
        if built.read() != run:
            subprocess.run([ROOT / "tools/dev", "package", "deb"], cwd=ROOT, check=True)
            built.truncate(0)
            built.write(run)
    packages = list((ROOT / "dist").glob("tierd_*.deb"))
    assert len(packages) == 1
    return packages[0]


@pytest.fixture
def disk() -> Iterator[pathlib.Path]:
    """A folder on the disk of the checkout: the temporary folder may be a tmpfs, which no SSD tier can be on."""
    (ROOT / ".cache").mkdir(exist_ok=True)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="deploy-", dir=ROOT / ".cache"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def container(disk: pathlib.Path, request: pytest.FixtureRequest) -> Iterator[containers.Container]:
    """One with a real systemd, and the package in /drill/tierd.deb, which is built once all else is there."""
    containers.need()
    yield from containers.made(disk, request.getfixturevalue("deb"))
