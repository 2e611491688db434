"""tools/dev bench: every promised figure beside its ceiling, as a table and as JSON lines.

Daemons are private ones with their own arena and SSD file; each part talks to a fresh one. Ceilings are measured in the
same run, alternating with tierd; medians are printed with quartiles. Needs a release build; `--quick` shortens rounds
for a first look (the figures to quote come from the full run). As root, the speed rows are measured a second time as an
unprivileged user with 8 MiB of memlock.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable

import allocator
import beside
import footprint
import pressure
import reclaim
from accumulation import accumulation
from compact import compaction
from contention import contention
from cuda import gpu_swaps
from devices import failing_device
from floor import floor_of_step
from full import full_devices
from guarantee import guarantee_back
from hand_over import sparse_borrower
from hits import hits
from hostile import hostile
from hundred_steps import hundred_steps
from larger import larger_than_memory
from look_ahead import look_ahead
from lora import lora_by_ranks
from memory_group import Unavailable
from models import ARENA, MODELS
from neighbour import neighbour
from node import GIB, MIB, Shell, bench, command, daemon, scratch
from observing import observing
from options import PART_NAMES, parse
from overflow import overflow_check
from prefault import prefault
from report import Report, paired, quartiles, turn
from ssd import swaps_through_ssd
from steps import paired_steps
from three_jobs import three_jobs
from train import fine_tuning
from train_parts import activation_offload, all_bf16, flat_in_depth, optimizer_alone

NOBODY = 65533  # No account; 65534 stands for foreign namespaces and is refused.
UNPRIVILEGED_MEMLOCK = 8 * MIB
NOT_QUOTABLE = 3  # The exit status of a run whose figures are to be measured again.
ENDING = (signal.SIGTERM, signal.SIGHUP)  # A terminal that is closed, too.


def swaps_in_ram(report: Report, quick: bool) -> None:
    for size in (64 * MIB, 256 * MIB, GIB):
        # Write-behind begins at half of the arena: these stay below it, in RAM alone.
        with daemon(arena=size * 5 // 2 + 128 * MIB, tier=2 * GIB, prefault=True) as (process, _):
            figures = bench(process, "swap-ram", bytes=size, rounds=5 if quick else 21)
        name = f"{size // MIB}MiB"
        for direction in ("out", "in"):
            ratio = figures[f"swap_{direction}_ram_ratio_{name}"]
            rate = figures[f"swap_{direction}_ram_{name}"]["median"]
            memcpy = figures[f"memcpy_{name}"]["median"]
            report.add(
                f"swap_{direction} {name} in RAM",
                ratio["median"],
                "of memcpy",
                at_least=0.85,
                ceiling=f"memcpy {memcpy:.2f} GB/s, tierd {rate:.2f}; {quartiles(ratio)}",
            )


def fused_pass(report: Report, quick: bool) -> None:
    with daemon(arena=1536 * MIB, tier=2 * GIB, prefault=True) as (process, _):
        figures = bench(process, "fused", bytes=512 * MIB, rounds=7 if quick else 41)
    ratio = figures["copy_check_norm_ratio"]
    report.add(
        "finite check + norm fused in the copy",
        ratio["median"],
        "of the copy's time",
        at_most=1.10,
        ceiling=f"plain {figures['copy_plain']['median']:.2f} GB/s; {quartiles(ratio)}",
    )
    extra = figures["copy_check_norm_memory"]["median"]
    report.add("memory it takes beside the copy's", extra / MIB, "MiB", at_most=0.5, ceiling="of 512 MiB checked")


def leases(report: Report, quick: bool) -> None:
    with daemon(arena=GIB, tier=2 * GIB, spin="always") as (process, _):
        figures = bench(process, "lease-busy", count=20_000 if quick else 200_000, spin="always")
        rates = bench(process, "lease-rate", rounds=5 if quick else 15, count=50 if quick else 200, spin="always")
    busy, ring = figures["acquire_release_busy"], figures["bare_ring"]
    report.add(
        "acquire(read) + release of a RAM tensor, spin = always, p50",
        busy["median"],
        "µs",
        at_most=2,
        ceiling=f"a bare ring there and back {ring['median']:.2f} µs; p99 {busy['p99']:.2f} µs",
    )
    acquires, creates = rates["batched_acquire_release"], rates["batched_create_seal"]
    what = "batched acquire(read) + release of 64 KiB tensors, one client"
    report.add(what, acquires["median"], "/s", at_least=1e6, ceiling=quartiles(acquires))
    what = "batched create + seal of 64 KiB tensors, one client"
    report.add(what, creates["median"], "/s", at_least=2e5, ceiling=quartiles(creates))
    with daemon(arena=256 * MIB, tier=2 * GIB, spin="never") as (process, _):
        # The kernel places a peer that was just forked beside its parent, a daemon anywhere: a ratio needs one place.
        cpus = sorted(os.sched_getaffinity(0))
        for task in pathlib.Path(f"/proc/{process.process.pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), {cpus[-1]})
        count = 200 if quick else 1000
        idle = bench(process, "lease-idle", count=count, spin="never", cpu=cpus[0], peer_cpu=cpus[-1])
    bare, ours = idle["futex_round_trip_idle"]["median"], idle["acquire_release_idle"]["median"]
    report.add(
        "the same from idle, p50",
        ours / bare,
        "of a futex round trip",
        at_most=1.5,
        ceiling=f"futex {bare:.1f} µs, tierd {ours:.1f} µs, to the same processor",
    )


def leases_in_a_crowd(report: Report, quick: bool) -> None:
    rounds, repeats = (2, 1) if quick else (8, 3)
    # Sessions and jobs beside those of the client that is measured, which has a job of its own.
    crowds = {"alone": (0, 0), "64 jobs": (63, 63), "1,000 idle sessions": (1000, 1)}
    times: dict[str, list[float]] = {name: [] for name in crowds}
    with daemon(arena=GIB, tier=2 * GIB, spin="always", sessions=2000) as (process, _):
        for number in range(rounds):
            for name in turn(list(crowds), number):
                with contextlib.ExitStack() as stack:
                    sessions, jobs = crowds[name]
                    if sessions != 0:  # They attach as fast as a user may: 50 a second.
                        crowd = Shell(command(process, "crowd", count=sessions, jobs=jobs, spin="never"))
                        stack.callback(crowd.close)
                    for _ in range(repeats):
                        figures = bench(process, "lease-busy", count=20_000 if quick else 200_000, spin="always")
                        times[name].append(figures["acquire_release_busy"]["median"])
    alone = times.pop("alone")
    for name, each in times.items():
        ratio = paired(each, alone)
        report.add(
            f"acquire + release beside {name}, p50",
            ratio["median"],
            "of alone",
            at_most=1.1,
            ceiling=f"alone {statistics.median(alone):.2f} µs; {quartiles(ratio)} of {len(each)} pairs",
        )


def idle_daemon(report: Report, quick: bool) -> None:
    seconds = 5 if quick else 20
    with daemon(arena=256 * MIB, tier=2 * GIB) as (process, _):
        pid = process.process.pid
        before = footprint.cpu_seconds(pid)
        subprocess.run(["sleep", str(seconds)], check=True)
        used = (footprint.cpu_seconds(pid) - before) / seconds
        beside = footprint.peak(pid, 2).total
    report.add("idle daemon, CPU", 100 * used, "% of one core", at_most=1, ceiling=f"over {seconds} s")
    report.add("idle daemon, memory beside the arena", beside / MIB, "MiB", at_most=80)


def many_tensors(report: Report, quick: bool) -> None:
    count = 20_000 if quick else 100_000
    with daemon(arena=GIB, tier=2 * GIB) as (process, _):
        pid = process.process.pid
        words = command(process, "many", count=count)
        client = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert client.stdout and client.stdin
        client.stdout.readline()  # Connected.
        before = footprint.take(pid)
        print("go", file=client.stdin, flush=True)
        client.stdout.readline()  # Created and flushed.
        after = footprint.peak(pid, 1)
        client.communicate("\n")
    whole = max(0, after.total - before.total) / count
    index = max(0, after.index - before.index) / count
    if index == 0:
        raise SystemExit("the index takes no memory: it was not found")
    what = f"daemon memory of each of {count:,} one-piece tensors with SSD copies"
    report.add(what, whole - index, "B", at_most=300, ceiling="beside both index environments")
    report.add(what, whole, "B", at_most=700, ceiling="with both index environments")


def killed_client(report: Report, quick: bool) -> None:
    times = reclaim.reclaim_ms(quick)
    what = "a killed client's memory leased by another, after its death"
    report.add(what, statistics.median(times), "ms", at_most=100, ceiling=reclaim.quartiles_of(times))


def memory_pressure(report: Report, quick: bool) -> None:
    try:
        givings, bare = pressure.give_back(quick)
    except Unavailable as reason:
        return report.note("memory given back under pressure was not measured", {"reason": str(reason)})
    start = [giving.start_ms for giving in givings]
    what = "the first byte given back after a limit was lowered"
    report.add(what, statistics.median(start), "ms", at_most=1000, ceiling=reclaim.quartiles_of(start))
    rates = [giving.gb_per_s for giving in givings]
    ratio = paired(rates, bare)
    report.add(
        f"{givings[0].bytes // MIB} MiB given back",
        statistics.median(rates),
        "GB/s",
        at_least=1,
        ceiling=f"bare fallocate {statistics.median(bare):.2f} GB/s; {quartiles(ratio)}",
        detail={"rates": rates, "bare": bare},
    )


def demo_spin(report: Report, quick: bool) -> None:
    rounds, steps = (2, 6) if quick else (12, 8)
    times = paired_steps(["never", "auto", "always"], rounds, steps)
    for mode, bound in (("always", 1.10), ("auto", 1.02)):
        ratio = paired(times[mode], times["never"])
        report.add(
            f'demo\'s step with spin = "{mode}"',
            ratio["median"],
            'of "never"',
            at_most=bound,
            detail={"seconds": times},
            ceiling=f"{statistics.median(times['never']) * 1e3:.0f} ms a step with never, "
            f"{len(os.sched_getaffinity(0))} CPUs, {rounds} × {steps} paired steps; {quartiles(ratio)}",
        )


def train(report: Report, options: argparse.Namespace) -> None:
    if MODELS[options.model].kind == "qwen":
        larger_than_memory(report, options.model, options.ram)
    else:
        arena = options.ram or ARENA
        fine_tuning(report, options.quick, options.peers, options.model, options.arm or (), arena)


PARTS: dict[str, Callable[[Report, bool], None]] = dict(
    zip(
        PART_NAMES,
        (
            swaps_in_ram,
            fused_pass,
            leases,
            leases_in_a_crowd,
            swaps_through_ssd,
            hits,
            failing_device,
            full_devices,
            look_ahead,
            idle_daemon,
            many_tensors,
            observing,
            killed_client,
            compaction,
            sparse_borrower,
            guarantee_back,
            neighbour,
            prefault,
            memory_pressure,
            contention,
            three_jobs,
            hostile,
            gpu_swaps,
            demo_spin,
            fine_tuning,
            floor_of_step,
            all_bf16,
            optimizer_alone,
            flat_in_depth,
            activation_offload,
            hundred_steps,
            overflow_check,
            lora_by_ranks,
            accumulation,
        ),
        strict=True,
    )
)
SPEED_PARTS = ("ram", "leases", "ssd")  # What is measured again without privileges.


def become_nobody() -> None:
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (UNPRIVILEGED_MEMLOCK, UNPRIVILEGED_MEMLOCK))
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


def measure_as_nobody(report: Report, parts: list[str]) -> None:
    """The speed parts once more, short, by a process without privileges. Their rows promise nothing."""
    print("as an unprivileged user:", flush=True)
    with tempfile.TemporaryDirectory(dir=scratch(), prefix="tier-bench-") as folder:
        os.chown(folder, NOBODY, NOBODY)
        lines = pathlib.Path(folder) / "rows.jsonl"
        words = [sys.executable, __file__, "--quick", "--json", str(lines)]
        for part in parts:
            words += ["--only", part]
        environment = os.environ | {"TIER_BENCH_DIRECTORY": folder, "HOME": folder}
        pipe = subprocess.PIPE
        with subprocess.Popen(
            words, preexec_fn=become_nobody, env=environment, stdout=pipe, stderr=pipe, text=True
        ) as child:
            try:
                _, errors = child.communicate()
            except BaseException:
                child.terminate()  # Not killed: it has a daemon of its own to end.
                child.communicate()
                raise
        if child.returncode != 0:
            print(f"  not measured: {errors.strip()[-400:]}", flush=True)
            return
        report.add_lines(lines.read_text())


def end_in_order(number: int, _: object) -> None:
    """As Ctrl-C: daemons and their files go with the context managers that made them."""
    for each in ENDING:
        signal.signal(each, signal.SIG_IGN)  # Once: the second must not break off the clean-up.
    raise SystemExit(128 + number)


def main() -> int:
    options = parse()
    for number in ENDING:
        signal.signal(number, end_in_order)
    unprivileged = os.geteuid() == NOBODY
    report = Report(options.json, who="unprivileged: " if unprivileged else "")
    if options.beside is not None:
        return beside.compare(report, options.beside.resolve(), options.only, options.quick)
    allocator.choose(options.malloc)
    chosen = [name for name in PARTS if not options.only or name in options.only]
    try:
        for name in chosen:
            print(f"{name}:", flush=True)
            if name == "ssd" and options.peers:
                swaps_through_ssd(report, options.quick, with_peers=True)
            elif name == "train":
                train(report, options)
            elif name == "train-floor" and MODELS[options.model].kind == "gpt":
                floor_of_step(report, options.quick, options.model)
            elif name == "lora" and MODELS[options.model].kind == "gpt":
                lora_by_ranks(report, options.quick, options.model)
            else:
                PARTS[name](report, options.quick)
        again = [name for name in chosen if name in SPEED_PARTS]
        if os.geteuid() == 0 and again:
            measure_as_nobody(report, again)
    finally:
        if not unprivileged:
            report.show()
    return NOT_QUOTABLE if report.doubts else 0


if __name__ == "__main__":
    raise SystemExit(main())
