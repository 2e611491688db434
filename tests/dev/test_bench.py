"""What tools/bench/run.py leaves when it is ended early, and the memory it measures fio with."""

from __future__ import annotations

import ctypes
import errno
import os
import pathlib
import platform
import signal
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/bench"))

import fio  # noqa: E402
from buffers import BLOCK, Buffers  # noqa: E402

SHMEM_ENABLED = pathlib.Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
MIB = 1 << 20

# The whole program, with one part in the place of the measurement: it has a folder, as a daemon's part has.
SCRIPT = """
import signal, sys, tempfile
sys.path.insert(0, {bench!r})
import run

def part(report, quick):
    with tempfile.TemporaryDirectory(dir={scratch!r}) as folder:
        print("made", folder, flush=True)
        while True:
            signal.pause()

run.PARTS["idle"] = part
sys.argv = ["run.py", "--only", "idle"]
sys.exit(run.main())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_bench_that_is_terminated_leaves_nothing_behind(tmp_path: pathlib.Path, number: signal.Signals) -> None:
    script = SCRIPT.format(bench=str(ROOT / "tools/bench"), scratch=str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        made = next(line for line in process.stdout if line.startswith("made"))
        assert list(tmp_path.iterdir()) == [pathlib.Path(made.split()[1])]
        process.send_signal(number)
        process.stdout.read()
    assert process.returncode == 128 + number
    assert list(tmp_path.iterdir()) == []


def test_a_bench_whose_figures_are_not_to_be_quoted_ends_with_3() -> None:
    words = 'def part(report, quick):\n    report.doubt("the disk swings")\n'
    script = f"import sys\nsys.path.insert(0, {str(ROOT / 'tools/bench')!r})\nimport run\n{words}"
    script += 'run.PARTS["idle"] = part\nsys.argv = ["run.py", "--only", "idle"]\nsys.exit(run.main())\n'
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.returncode == 3 and "not quotable: the disk swings" in result.stdout


def can_collapse() -> bool:
    version = tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2])
    return version >= (6, 1) and SHMEM_ENABLED.exists() and "[deny]" not in SHMEM_ENABLED.read_text()


def can_use_io_uring() -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall(425, 1, None)  # io_uring_setup: the missing parameters are what it complains about.
    return ctypes.get_errno() == errno.EFAULT


def test_buffers_are_huge_pages() -> None:
    if not can_collapse():
        pytest.skip("needs MADV_COLLAPSE of shared memory: Linux 6.1, shmem_enabled other than deny")
    with Buffers(2, BLOCK + 1) as buffers:
        assert [buffer.huge for buffer in buffers.each] == [True, True]
        assert buffers.kind == "huge pages"


def test_buffers_are_there_whatever_their_pages() -> None:
    with Buffers(1, BLOCK + 1) as buffers:
        status = os.fstat(buffers.each[0].file)
        assert status.st_blocks * 512 == status.st_size == buffers.each[0].size > BLOCK
        buffers.each[0].huge = False
        assert buffers.kind == "4 KiB pages: the machine cannot collapse"


def test_each_job_of_fio_transfers_from_a_buffer_of_its_own(tmp_path: pathlib.Path) -> None:
    if not fio.available() or not can_use_io_uring():
        pytest.skip("needs fio and io_uring")
    file = tmp_path / "data"
    with file.open("wb") as data:
        data.seek(fio.OFFSET)
        data.write(b"a" * MIB + b"b" * MIB)
    with Buffers(2, MIB + 1) as buffers:
        fio.run(file, "read", 2 * MIB, fio.Shape(1024, 1, 2), buffers)
        assert [os.pread(buffer.file, MIB, 0) for buffer in buffers.each] == [b"a" * MIB, b"b" * MIB]
        assert [os.fstat(buffer.file).st_size for buffer in buffers.each] == [buffer.size for buffer in buffers.each]
