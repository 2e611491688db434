"""A block device that fails or hangs on command: a loop device over a FUSE file over an NBD server."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import subprocess
import time

PROGRAMS = ("nbdkit", "nbdfuse", "losetup", "umount")


def lacks() -> list[str]:
    """What this machine lacks for one."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    missing += [node for node in ("/dev/fuse", "/dev/loop-control") if not os.path.exists(node)]
    return missing + ([] if os.geteuid() == 0 else ["root"])


class FaultyDevice:
    """Its `path`, and `backing`, the file with what is on it."""

    def __init__(
        self,
        folder: pathlib.Path,
        size: int,
        *,
        write_error: str = "EIO",
        in_memory: bool = False,
        bad_bytes: range | None = None,
    ) -> None:
        """Its files lie in `folder`. Reads that fail answer EIO, writes that fail answer `write_error`. `in_memory`:
        there is no `backing`, and no disk is written. `bad_bytes`: writes fail only where they touch one of these, and
        reads do not."""
        self.backing = folder / "backing"
        if not in_memory:
            self.backing.touch()
            os.truncate(self.backing, size)
        self._triggers = {"reads": folder / "reads-fail", "writes": folder / "writes-fail"}
        self._file = folder / "disk"
        self._file.touch()
        self._pid_file = folder / "pid"
        self._fuse: subprocess.Popen[bytes] | None = None
        self.path = ""
        try:
            self._start(folder / "nbd.sock", size, self._plugin(size, write_error, bad_bytes))
        except BaseException:
            self.close()
            raise

    def _plugin(self, size: int, write_error: str, bad_bytes: range | None) -> list[str]:
        """What nbdkit is to do."""
        if bad_bytes is not None:
            disk, trigger = self.backing, self._triggers["writes"]
            touches = f"[ -e {trigger} ] && [ $4 -lt {bad_bytes.stop} ] && [ $(($4 + $3)) -gt {bad_bytes.start} ]"
            fails = f"if {touches}; then cat > /dev/null; echo {write_error} >&2; exit 1; fi"
            return [
                "eval",
                f"get_size=echo {size}",
                f"pread=dd if={disk} skip=$4 count=$3 iflag=skip_bytes,count_bytes bs=1M status=none",
                f"pwrite={fails}; dd of={disk} seek=$4 oflag=seek_bytes conv=notrunc bs=1M status=none",
                "can_write=exit 0",
                "can_flush=exit 0",
                "flush=exit 0",
            ]
        errors = [f"error={write_error}", "error-rate=100%", f"error-file={self._triggers['writes']}"]
        errors += ["error-pread=EIO", f"error-pread-file={self._triggers['reads']}"]
        store = ["file", str(self.backing)] if self.backing.exists() else ["memory", str(size)]
        return ["--filter=error", *store, *errors]

    def _start(self, socket: pathlib.Path, size: int, plugin: list[str]) -> None:
        subprocess.run(["nbdkit", "-U", str(socket), "-P", str(self._pid_file), *plugin], check=True)
        self._fuse = subprocess.Popen(["nbdfuse", self._file, "--unix", socket], stderr=subprocess.DEVNULL)
        end = time.monotonic() + 10
        while self._file.stat().st_size != size:
            if time.monotonic() > end:
                raise RuntimeError("nbdfuse did not mount")
            time.sleep(0.02)
        losetup = ["losetup", "-f", "--show", "--direct-io=on", str(self._file)]
        made = subprocess.run(losetup, check=True, capture_output=True, text=True)
        self.path = made.stdout.strip()

    def fail(self, *what: str) -> None:
        """Fails "reads", "writes", or without arguments both, until heal()."""
        for one in what or self._triggers:
            self._triggers[one].touch()

    def heal(self) -> None:
        for trigger in self._triggers.values():
            trigger.unlink(missing_ok=True)

    def hang(self) -> None:
        """Answers nothing until resume()."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def die(self) -> None:
        """Fails everything from now on."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._pid_file.exists():
            try:
                os.kill(int(self._pid_file.read_text()), number)
            except ProcessLookupError:
                pass

    def close(self) -> None:
        self.heal()
        self.resume()
        if self.path:
            subprocess.run(["losetup", "-d", self.path], check=False)
        if self._fuse is not None:
            subprocess.run(["umount", self._file], check=False)
            self._fuse.wait(10)
        self._signal(signal.SIGTERM)
