"""The pictures that show programs: the site's start page, and `tierctl top` on a real terminal beside a real daemon.

pictures.py BROWSER SITE FOLDER: writes start-page.png and top.png there. $TIERD_BUILD names the build.
"""

from __future__ import annotations

import fcntl
import os
import pathlib
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable

from rich.console import Console
from rich.text import Text

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("TIERD_BUILD", ROOT / "build/release"))
sys.path.insert(0, str(ROOT / "bindings/python"))

COLUMNS, LINES = 120, 22
WATCHED_SECONDS = 5
# What `tierctl top` draws: from the home position on, each line cleared behind its text.
_HOME, _END = "\x1b[H", "\x1b[J"
_CURSOR = re.compile(r"\x1b\[(?:\?\d+[hl]|[0-9;]*[A-HJKf])")
_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def last_frame(written: str) -> str:
    """The last whole screen of what a program wrote, with its colours and nothing that moves the cursor."""
    whole = written[: written.rindex(_END)]
    return _CURSOR.sub("", whole[whole.rindex(_HOME) :]).replace("\r", "")


def drawing(frame: str, columns: int, title: str) -> str:
    """An SVG of it, with the browser's own fonts: none is fetched."""
    with open(os.devnull, "w") as nowhere:
        console = Console(record=True, width=columns, file=nowhere, force_terminal=True)
        console.print(Text.from_ansi(frame), no_wrap=True)
        return _FONT.sub("", console.export_svg(title=title))


def watch(command: list[str], enough: Callable[[], bool]) -> str:
    """What the program writes to a terminal until there is enough; then it is told to quit."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    written = ""
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as program:
        os.close(theirs)
        while not enough() and program.poll() is None:
            if select.select([ours], [], [], 0.1)[0]:
                written += os.read(ours, 65536).decode(errors="replace")
        os.write(ours, b"q")
    os.close(ours)
    return written


def swap(socket: str, job: str, tensors: int, ended: threading.Event) -> None:
    """A job that reads its tensors round and round."""
    import tierd

    with tierd.connect(job=job, socket=socket) as client:
        for number in range(tensors):
            client.put(f"layer-{number}", os.urandom(4 << 20))
        while not ended.is_set():
            for number in range(tensors):
                client.get(f"layer-{number}")
            ended.wait(0.2)


def picture_of_top() -> str:
    from tierd.daemon import Daemon

    # /var/tmp is on a disk, and no path of this checkout is to be seen.
    with tempfile.TemporaryDirectory(prefix="tier-") as sockets, tempfile.TemporaryDirectory(dir="/var/tmp") as disk:
        settings = {
            "daemon": {"socket_directory": sockets, "data_directory": disk},
            "arena": {"maximum": "96MiB"},
            "ssd": {"file_size": "1GiB"},
            "metrics": {"listen": ""},
        }
        with Daemon(sockets, settings, program=str(BUILD / "daemon/tierd")):
            ended = threading.Event()
            jobs = {"pretrain": 24, "finetune": 12, "evaluate": 4}
            work = [
                threading.Thread(target=swap, args=(f"{sockets}/tierd.sock", job, tensors, ended), daemon=True)
                for job, tensors in jobs.items()
            ]
            for thread in work:
                thread.start()
            end = time.monotonic() + WATCHED_SECONDS
            try:
                command = [str(BUILD / "tools/tierctl/tierctl"), "top", "--socket", sockets]
                written = watch(command, lambda: time.monotonic() > end)
            finally:
                ended.set()
                for thread in work:
                    thread.join(60)
    return drawing(last_frame(written), COLUMNS, "tierctl top")


def photograph(browser: str, address: str, picture: pathlib.Path, size: tuple[int, int]) -> None:
    with tempfile.TemporaryDirectory(prefix="pictures-") as profile:
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += [f"--user-data-dir={profile}", f"--window-size={size[0]},{size[1]}", f"--screenshot={picture}"]
        subprocess.run(
            [*command, address], check=True, timeout=120, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
    if not picture.exists():
        raise SystemExit(f"{browser} made no {picture}")


def main(browser: str, site: pathlib.Path, folder: pathlib.Path) -> None:
    photograph(browser, (site / "index.html").as_uri(), folder / "start-page.png", (1280, 1000))
    svg = picture_of_top()
    found = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    assert found, "rich draws no size"
    with tempfile.TemporaryDirectory(prefix="pictures-") as scratch:
        page = pathlib.Path(scratch) / "top.html"
        page.write_text(f"<!doctype html><style>body {{ margin: 0 }}</style>{svg}")
        size = (round(float(found[1])), round(float(found[2])))
        photograph(browser, page.as_uri(), folder / "top.png", size)


if __name__ == "__main__":
    main(sys.argv[1], pathlib.Path(sys.argv[2]).resolve(), pathlib.Path(sys.argv[3]).resolve())
