"""libtier beside torch and grpcio in one process, whichever comes first; and what the library asks of the system."""

from __future__ import annotations

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


def orders(*names: str) -> list[tuple[str, ...]]:
    """Each is once the first one and once the last one, and each comes before each other one in some order."""
    return [names[first:] + names[:first] for first in range(len(names))]


@pytest.mark.parametrize("order", orders(*STEPS), ids="-".join)
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


# libtier-control carries a gRPC of its own, as Python's grpcio does: neither may see the other's.
CONTROL = """
class Job(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("id", ctypes.c_uint64), ("rest", ctypes.c_char * 4096)]
channel, count = ctypes.c_void_p(), ctypes.c_size_t()
library = ctypes.CDLL({library!r})
library.tier_control_last_error.restype = ctypes.c_char_p
assert library.tier_control_connect({socket!r}, None, ctypes.byref(channel)) == 0, library.tier_control_last_error()
assert library.tier_control_list_jobs(channel, None, 0, ctypes.byref(count)) == 0, library.tier_control_last_error()
assert count.value == 1, count.value
library.tier_control_close(channel)
"""


@pytest.mark.parametrize("order", orders("torch", "grpc", "control"), ids="-".join)
@pytest.mark.parametrize("scope", ["RTLD_LOCAL", "RTLD_GLOBAL"])
def test_the_control_library_works_beside_them_too(
    daemon: launcher.Running, order: tuple[str, ...], scope: str
) -> None:
    library = str(launcher.BUILD / "libclient/control/libtier-control.so.0")
    loads = STEPS | {"control": f"ctypes.CDLL({library!r}, mode=os.{scope})"}
    lines = ["import ctypes, os, sys", f"sys.setdlopenflags(os.{scope} | os.RTLD_NOW)"]
    lines += [loads[name] for name in order]
    lines += [
        "import tierd, tierd.control",
        f"client = tierd.connect(job='loading', socket={daemon.socket!r})",
        "client.put('x', torch.arange(10.0))",
        CONTROL.format(library=library, socket=str(daemon.directory / "control.sock").encode()),
        f"with tierd.control.connect({str(daemon.directory)!r}) as control:",
        "    assert control.status().pid > 0",
        "assert client.get('x').sum() == 45",
        "client.close()",
    ]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], env=launcher.environment(), capture_output=True,
                          text=True, timeout=120, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_the_library_needs_libc_and_libm_only() -> None:
    launcher.need_build()
    library = launcher.BUILD / "libclient" / "libtier.so.0"
    text = subprocess.run(["ldd", library], capture_output=True, text=True, check=True).stdout
    names = {line.split()[0] for line in text.splitlines() if "=>" in line}
    assert names <= {"libc.so.6", "libm.so.6"}


@pytest.mark.parametrize("name", ["libtier.so.0", "control/libtier-control.so.0"])
def test_the_libraries_show_their_own_names_only(name: str) -> None:
    launcher.need_build()
    library = launcher.BUILD / "libclient" / name
    text = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    shown = {line.split()[-1].split("@")[0] for line in text.splitlines()}
    assert shown and all(re.fullmatch(r"tier_\w+|LIBTIER_\w+|TIER_\w+", name) for name in shown), shown
