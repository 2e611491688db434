"""tools/dev bench: every promised figure beside its ceiling, as a table and as JSON lines.

Daemons are private ones with their own arena and SSD file; each part talks to a fresh one. Ceilings are measured in the
same run, alternating with tierd; medians are printed with quartiles. Needs a release build; `--quick` shortens rounds
for a first look (the figures to quote come from the full run).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import fio
from rich.console import Console
from rich.table import Table

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bindings/python"))

from tierd.daemon import Daemon  # noqa: E402

BUILD = pathlib.Path(os.environ.get("TIERD_BUILD", ROOT / "build/release"))
BENCH = BUILD / "tools/bench/tier_bench"
DEMO = ROOT / "bindings/python/demo/train_gpt.py"
MIB, GIB = 1 << 20, 1 << 30


class Report:
    """Rows of the table, each with what was promised and whether it held; JSON lines to a file."""

    def __init__(self, path: pathlib.Path | None) -> None:
        self.rows: list[dict[str, Any]] = []
        self.file = path.open("w") if path else None

    def add(
        self,
        what: str,
        value: float,
        unit: str,
        *,
        ceiling: str = "",
        bound: str = "",
        held: bool | None = None,
        detail: dict[str, Any] | None = None,
    ) -> None:
        row = {
            "what": what,
            "value": value,
            "unit": unit,
            "ceiling": ceiling,
            "bound": bound,
            "held": held,
            **(detail or {}),
        }
        self.rows.append(row)
        if self.file:
            print(json.dumps(row), file=self.file, flush=True)
        print(f"  {what}: {value:.4g} {unit}  ({ceiling})" if ceiling else f"  {what}: {value:.4g} {unit}", flush=True)

    def table(self) -> Table:
        table = Table(title=f"tierd on {os.cpu_count()} CPUs, uid {os.geteuid()}")
        for title, justify in (
            ("what", "left"),
            ("figure", "right"),
            ("ceiling in the same run", "left"),
            ("promised", "left"),
            ("", "left"),
        ):
            table.add_column(title, justify=justify)  # type: ignore[arg-type]
        for row in self.rows:
            mark = {True: "held", False: "[red]missed[/red]", None: ""}[row["held"]]
            table.add_row(row["what"], f"{row['value']:.4g} {row['unit']}", row["ceiling"], row["bound"], mark)
        return table


@contextlib.contextmanager
def daemon(
    arena: int, tier: int, *, spin: str = "auto", prefault: bool = False
) -> Iterator[tuple[Daemon, pathlib.Path]]:
    """A private daemon with a named SSD file (so that fio can open it too), gone with everything at the end."""
    (ROOT / ".cache").mkdir(exist_ok=True)
    disk = pathlib.Path(tempfile.mkdtemp(prefix="tier-bench-", dir=ROOT / ".cache"))
    sockets = pathlib.Path(tempfile.mkdtemp(prefix="tier-bench-"))
    try:
        with Daemon(
            sockets, sections(sockets, disk, arena, tier, spin, prefault), program=str(BUILD / "daemon/tierd")
        ) as process:
            yield process, disk / "tier.ssd"
    finally:
        shutil.rmtree(disk, ignore_errors=True)
        shutil.rmtree(sockets, ignore_errors=True)


def sections(
    sockets: pathlib.Path, disk: pathlib.Path, arena: int, tier: int, spin: str, prefault: bool
) -> dict[str, dict[str, Any]]:
    return {
        "daemon": {"socket_directory": str(sockets), "data_directory": str(disk)},
        "arena": {"maximum": f"{arena // MIB}MiB", "prefault": prefault},
        "ssd": {"devices": [str(disk / "tier.ssd")], "file_size": f"{tier // MIB}MiB"},
        "engine": {"spin": spin},
        "metrics": {"listen": ""},
    }


def bench(process: Daemon, part: str, **options: Any) -> dict[str, dict[str, float]]:
    """Runs one part of tier_bench; its figures by name."""
    command = [str(BENCH), part, "--socket", str(process.directory / "tierd.sock")]
    for name, value in options.items():
        command += [f"--{name.replace('_', '-')}", str(value)]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {result.stderr.strip()} {process.log_tail()}")
    return {line["figure"]: line for line in map(json.loads, result.stdout.splitlines())}


def quartiles(figure: dict[str, float]) -> str:
    return f"quartiles {figure['q1']:.3g}–{figure['q3']:.3g}"


# ---- The parts ----


def swaps_in_ram(report: Report, quick: bool) -> None:
    for size in (64 * MIB, 256 * MIB, GIB):
        # Write-behind begins at half of the arena: these stay below it, in RAM alone.
        with daemon(arena=size * 5 // 2 + 128 * MIB, tier=2 * GIB, prefault=True) as (process, _):
            figures = bench(process, "swap-ram", bytes=size, rounds=5 if quick else 21)
        name = f"{size // MIB}MiB"
        for direction in ("out", "in"):
            ratio = figures[f"swap_{direction}_ram_ratio_{name}"]
            rate = figures[f"swap_{direction}_ram_{name}"]["median"]
            report.add(
                f"swap_{direction} {name} in RAM",
                ratio["median"],
                "of memcpy",
                ceiling=f"memcpy {figures[f'memcpy_{name}']['median']:.2f} GB/s, tierd {rate:.2f}; {quartiles(ratio)}",
                bound="≥ 0.85",
                held=ratio["median"] >= 0.85,
            )


def fused_pass(report: Report, quick: bool) -> None:
    with daemon(arena=1536 * MIB, tier=2 * GIB, prefault=True) as (process, _):
        ratio = bench(process, "fused", bytes=512 * MIB, rounds=5 if quick else 21)
    figure = ratio["copy_check_norm_ratio"]
    report.add(
        "finite check + norm fused in the copy",
        figure["median"],
        "of the copy's time",
        ceiling=f"plain {ratio['copy_plain']['median']:.2f} GB/s; {quartiles(figure)}",
        bound="≤ 1.10",
        held=figure["median"] <= 1.10,
    )


def leases(report: Report, quick: bool) -> None:
    with daemon(arena=256 * MIB, tier=2 * GIB, spin="always") as (process, _):
        busy = bench(process, "lease-busy", count=20_000 if quick else 200_000, spin="always")["acquire_release_busy"]
        report.add(
            "acquire(read) + release of a RAM tensor, spin = always, p50",
            busy["median"],
            "µs",
            ceiling=f"p99 {busy['p99']:.2f} µs",
            bound="≤ 2 µs",
            held=busy["median"] <= 2,
        )
        rates = bench(process, "lease-rate", rounds=5 if quick else 15, count=50 if quick else 200, spin="always")
        acquires, creates = rates["batched_acquire_release"], rates["batched_create_seal"]
        report.add(
            "batched acquire(read) + release, 64 KiB tensors",
            acquires["median"],
            "/s",
            ceiling=quartiles(acquires),
            bound="≥ 1,000,000/s",
            held=acquires["median"] >= 1e6,
        )
        report.add(
            "batched create + seal",
            creates["median"],
            "/s",
            ceiling=quartiles(creates),
            bound="≥ 200,000/s",
            held=creates["median"] >= 2e5,
        )
    with daemon(arena=256 * MIB, tier=2 * GIB, spin="never") as (process, _):
        # The kernel places a peer that was just forked beside its parent and a daemon anywhere: a ratio needs one place.
        cpus = sorted(os.sched_getaffinity(0))
        for task in pathlib.Path(f"/proc/{process.process.pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), {cpus[-1]})
        idle = bench(process, "lease-idle", count=200 if quick else 1000, spin="never", cpu=cpus[0], peer_cpu=cpus[-1])
    bare, tierd = idle["futex_round_trip_idle"], idle["acquire_release_idle"]
    ratio = tierd["median"] / bare["median"]
    report.add(
        "the same from idle, p50",
        ratio,
        "of a futex round trip",
        ceiling=f"futex {bare['median']:.1f} µs, tierd {tierd['median']:.1f} µs",
        bound="≤ 1.5",
        held=ratio <= 1.5,
    )


class SsdShell:
    """tier_bench's ssd part: "write", "read" and "free" as calls that give GB/s."""

    def __init__(self, process: Daemon, size: int, total: int) -> None:
        self.process = subprocess.Popen(
            [
                str(BENCH),
                "ssd",
                "--socket",
                str(process.directory / "tierd.sock"),
                "--bytes",
                str(size),
                "--total",
                str(total),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def _answer(self) -> dict[str, float]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"tier_bench ssd ended with {self.process.wait()}")
        answer: dict[str, float] = json.loads(line)
        return answer

    def __call__(self, verb: str) -> float:
        assert self.process.stdin
        print(verb, file=self.process.stdin, flush=True)
        return self._answer()[verb]

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def swaps_through_ssd(report: Report, quick: bool) -> None:
    if not fio.available():
        print("  skipped: needs fio", flush=True)
        return
    total = GIB if quick else 2 * GIB
    arena, tier = 256 * MIB, total * 2 + GIB
    sizes = (4 * MIB, 64 * MIB, GIB // 2) if quick else (4 * MIB, 64 * MIB, 256 * MIB, GIB)
    shapes: dict[str, fio.Shape] = {}
    for size in sizes:
        with daemon(arena=arena, tier=tier) as (process, path):
            shell = SsdShell(process, size, total)
            # Written once all over: both arms then work on blocks of the same state.
            fio.run(path, "write", tier - fio.OFFSET - 64 * MIB, fio.Shape(4096, 8, 1))
            if not shapes:
                for direction in ("write", "read"):
                    shapes[direction], rate = fio.best_shape(path, direction, total, rounds=1 if quick else 3)
                    report.add(f"fio {direction}, best shape {shapes[direction]}", rate, "GB/s")
            ratios = alternate(shell, path, total, shapes, rounds=3 if quick else 10)
            shell.close()
        for direction, verb in (("write", "swap_out until on the device"), ("read", "swap_in from the device")):
            add_ssd_row(report, f"{verb}, {size // MIB} MiB", ratios[direction])


def alternate(
    shell: SsdShell, path: pathlib.Path, total: int, shapes: dict[str, fio.Shape], rounds: int
) -> dict[str, list[tuple[float, float]]]:
    """Pairs of (tierd, fio) in GB/s. fio writes only while no tensor lives, and reads what tierd wrote."""
    pairs: dict[str, list[tuple[float, float]]] = {"write": [], "read": []}
    for number in range(rounds):
        first_tierd = number % 2 == 0
        ceiling = 0.0 if first_tierd else fio.run(path, "write", total, shapes["write"])
        written = shell("write")
        for turn in range(2):
            if (turn == 0) == first_tierd:
                read = shell("read")
            else:
                read_ceiling = fio.run(path, "read", total, shapes["read"])
        shell("free")
        if first_tierd:
            ceiling = fio.run(path, "write", total, shapes["write"])
        pairs["write"].append((written, ceiling))
        pairs["read"].append((read, read_ceiling))
    return pairs


def add_ssd_row(report: Report, what: str, pairs: list[tuple[float, float]]) -> None:
    ratios = sorted(tierd / ceiling for tierd, ceiling in pairs)

    def middle(arm: int) -> float:
        return statistics.median(pair[arm] for pair in pairs)

    low, median, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else (ratios[0],) * 3
    report.add(
        what,
        median,
        "of fio",
        bound="≥ 0.90",
        held=median >= 0.90,
        detail={"pairs": pairs},
        ceiling=f"tierd {middle(0):.2f} GB/s, fio {middle(1):.2f}; quartiles {low:.2f}–{high:.2f}, {len(pairs)} pairs",
    )


def cpu_seconds(pid: int) -> float:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_beside_arena(pid: int) -> int:
    """PSS of the process without its memfd mappings of windows, in bytes."""
    total, counted = 0, True
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        head = line.split(maxsplit=5)
        if "-" in head[0] and not head[0].endswith(":"):
            counted = len(head) < 6 or "tierd-window" not in head[5]
        elif counted and head[0] == "Pss:":
            total += int(head[1]) * 1024
    return total


def index_bytes(pid: int) -> int:
    """Bytes allocated to the index environments: the ram one's memfd, the ssd one's pages in use."""
    total = 0
    for descriptor in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            if "tierd-index" in os.readlink(descriptor):
                total += os.stat(descriptor).st_blocks * 512
    return total


def idle_daemon(report: Report, quick: bool) -> None:
    seconds = 5 if quick else 20
    with daemon(arena=256 * MIB, tier=2 * GIB) as (process, _):
        before = cpu_seconds(process.process.pid)
        time.sleep(seconds)
        used = (cpu_seconds(process.process.pid) - before) / seconds
        beside = memory_beside_arena(process.process.pid)
    report.add(
        "idle daemon, CPU", 100 * used, "% of one core", bound="≤ 1 %", held=used <= 0.01, ceiling=f"over {seconds} s"
    )
    report.add("idle daemon, memory beside the arena", beside / MIB, "MiB", bound="≤ 80 MiB", held=beside <= 80 * MIB)


def many_tensors(report: Report, quick: bool) -> None:
    count = 20_000 if quick else 100_000
    with daemon(arena=GIB, tier=2 * GIB) as (process, _):
        pid = process.process.pid
        before, index_before = memory_beside_arena(pid), index_bytes(pid)
        client = subprocess.Popen(
            [str(BENCH), "many", "--socket", str(process.directory / "tierd.sock"), "--count", str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert client.stdout and client.stdin
        client.stdout.readline()
        index = index_bytes(pid) - index_before
        beside = memory_beside_arena(pid) - before
        client.communicate("\n")
    # The ram environment is a mapped memfd: what of it shows in PSS is taken out to get the engine's own.
    own = max(0, beside - index) / count
    report.add(
        f"daemon memory a tensor, {count:,} one-piece tensors with SSD copies",
        own,
        "B",
        bound="≤ 300 B",
        held=own <= 300,
    )
    report.add(
        "the same with the index environments",
        own + index / count,
        "B",
        bound="≤ 700 B",
        held=own + index / count <= 700,
    )


def demo_spin(report: Report, quick: bool) -> None:
    steps = 12 if quick else 30
    rounds = 2 if quick else 3
    times: dict[str, list[float]] = {"never": [], "auto": [], "always": []}
    for _ in range(rounds):
        for mode, seconds in times.items():
            result = subprocess.run(
                [sys.executable, str(DEMO), "--spin", mode, "--steps", str(steps), "--json", "--without-baseline"],
                capture_output=True,
                text=True,
            )
            if result.returncode != 0:
                raise SystemExit(f"demo --spin {mode}: {result.stderr[-2000:]}")
            seconds.append(json.loads(result.stdout.splitlines()[-1])["step_seconds_median"])
    base = statistics.median(times["never"])
    for mode, bound in (("always", 1.10), ("auto", 1.02)):
        ratio = statistics.median(times[mode]) / base
        report.add(
            f'demo\'s step with spin = "{mode}"',
            ratio,
            'of "never"',
            bound=f"≤ {bound}",
            held=ratio <= bound,
            ceiling=f"{base * 1e3:.0f} ms a step with never, {os.cpu_count()} CPUs",
        )


PARTS = {
    "ram": swaps_in_ram,
    "fused": fused_pass,
    "leases": leases,
    "ssd": swaps_through_ssd,
    "idle": idle_daemon,
    "tensors": many_tensors,
    "demo": demo_spin,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=sorted(PARTS), help="only this part (may be repeated)")
    parser.add_argument("--quick", action="store_true", help="few rounds: a first look, not figures to quote")
    parser.add_argument("--json", type=pathlib.Path, help="write JSON lines here")
    options = parser.parse_args()
    report = Report(options.json)
    for name, part in PARTS.items():
        if options.only and name not in options.only:
            continue
        print(f"{name}:", flush=True)
        part(report, options.quick)
    Console(width=180).print(report.table())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
