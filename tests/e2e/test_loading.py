"""libtier beside torch and grpcio in one process, whichever comes first; and what the library asks of the system."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys

import launcher
import pytest

STEPS = {
    "tierd": "import tierd; tierd.library.load()",
    "torch": "import torch",
    "grpc": "import grpc",
}


@pytest.mark.parametrize("order", list(itertools.permutations(STEPS)), ids="-".join)
@pytest.mark.parametrize("scope", ["RTLD_LOCAL", "RTLD_GLOBAL"])
def test_all_work_in_any_order(daemon: launcher.Running, order: tuple[str, ...], scope: str) -> None:
    lines = ["import ctypes, os, sys", f"sys.setdlopenflags(os.{scope} | os.RTLD_NOW)"]
    if scope == "RTLD_GLOBAL":
        lines.append("ctypes.DEFAULT_MODE = ctypes.RTLD_GLOBAL")
    lines += [STEPS[name] for name in order]
    lines += [
        f"client = tierd.connect(job='loading', socket={daemon.socket!r})",
        "client.put('x', torch.arange(10.0))",
        "assert client.get('x').sum() == 45",
        "import tierd.control",
        f"with tierd.control.connect({str(daemon.directory)!r}) as control:",
        "    assert control.status().pid > 0",
        "client.close()",
    ]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], env=launcher.environment(), capture_output=True,
                          text=True, timeout=120, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_the_library_needs_libc_and_libm_only_and_shows_its_own_names_only() -> None:
    launcher.need_build()
    library = launcher.BUILD / "libclient" / "libtier.so.0"
    text = subprocess.run(["ldd", library], capture_output=True, text=True, check=True).stdout
    names = {line.split()[0] for line in text.splitlines() if "=>" in line}
    assert names <= {"libc.so.6", "libm.so.6"}
    text = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    shown = {line.split()[-1].split("@")[0] for line in text.splitlines()}
    assert all(re.fullmatch(r"tier_\w+|LIBTIER_\w+|TIER_\w+", name) for name in shown), shown
