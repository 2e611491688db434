"""tools/bench/run.py as whoever ends it early leaves it."""

from __future__ import annotations

import pathlib
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

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


def test_a_bench_that_is_terminated_leaves_nothing_behind(tmp_path: pathlib.Path) -> None:
    script = SCRIPT.format(bench=str(ROOT / "tools/bench"), scratch=str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        made = next(line for line in process.stdout if line.startswith("made"))
        assert list(tmp_path.iterdir()) == [pathlib.Path(made.split()[1])]
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
    assert process.returncode == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []
