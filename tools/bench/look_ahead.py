"""What reading ahead costs and brings: steps of ``tierd.torch.AdamW`` with and without its look-ahead, and reads that
are asked for while another job prefetches.

Each trainer, and each job, is a process of its own, which does what the lines on its stdin say. Run as a program, this
is one of them.
"""

from __future__ import annotations

import json
import statistics
import sys
import threading
import time
from collections.abc import Callable

from node import GIB, MIB, daemon, program
from report import Report, paired, quartiles

from tierd import control

PARAMETERS = 37_700_000  # Of 8 bytes of state each: 302 MB, far more than each arena.
ARENAS = ((64, 8), (64, 2), (32, 8), (32, 2))  # MiB of arena and of a slice.
READ_PER_PARAMETER = 8.1  # Bytes: the state once, and a hundredth.

PIECE = 2 * MIB
AHEAD = 4 * GIB  # What the other job prefetches.
AHEAD_TENSOR = 8 * MIB
READ_TENSORS = 64
P99 = 2.0  # Of a read alone.


def adam_steps(report: Report, arena: int, slice_size: int, pairs: int) -> None:
    """Steps with the look-ahead and without, in turn, of one trainer."""
    with daemon(arena=arena * MIB, tier=GIB, window="2MiB") as (process, _):
        socket = str(process.directory / "tierd.sock")
        trainer = program(__file__, "train", socket, slice_size * MIB)
        seconds: dict[str, list[float]] = {"on": [], "off": []}
        read: dict[str, list[float]] = {"on": [], "off": []}
        with control.connect(socket) as channel:

            def bytes_read() -> int:
                return sum(job.swap_in_bytes_total for job in channel.list_jobs())

            for mode in ("on", "off"):  # Makes the state, and finds it on SSD.
                trainer(mode)
            for pair in range(pairs):
                for mode in ("on", "off") if pair % 2 == 0 else ("off", "on"):
                    before = bytes_read()
                    seconds[mode].append(trainer(mode))
                    read[mode].append((bytes_read() - before) / PARAMETERS)
        trainer.close()
    what = f"AdamW, arena {arena} MiB, slices of {slice_size} MiB"
    median = {mode: statistics.median(times) for mode, times in seconds.items()}
    report.add(
        f"{what}: read in a step, look-ahead on",
        statistics.median(read["on"]),
        "B a parameter",
        at_most=READ_PER_PARAMETER,
        ceiling=f"most {max(read['on']):.2f}; off {statistics.median(read['off']):.2f}",
    )
    ratio = paired(seconds["on"], seconds["off"])
    report.add(
        f"{what}: a step, look-ahead on",
        ratio["median"],
        "of off",
        at_most=1.0,
        detail={"seconds": seconds},
        ceiling=f"on {median['on'] * 1e3:.0f} ms, off {median['off'] * 1e3:.0f} ms; {quartiles(ratio)} "
        f"of {pairs} pairs",
    )


def reads_beside_a_prefetch(report: Report, rounds: int) -> None:
    """A read of one piece from SSD, alone and while another job prefetches, in turn."""
    with daemon(arena=GIB, tier=AHEAD + 2 * GIB) as (process, _):
        socket = str(process.directory / "tierd.sock")
        reader = program(__file__, "read", socket)
        ahead = program(__file__, "prefetch", socket)
        with control.connect(socket) as channel:

            def prefetched() -> int:
                return sum(job.swap_in_bytes_total for job in channel.list_jobs() if job.name == "ahead")

            times: dict[str, list[float]] = {"alone": [], "beside": []}
            rate = []

            def wait_until_idle() -> None:
                last = -1
                while (now := prefetched()) != last:
                    last = now
                    time.sleep(0.5)

            for _ in range(rounds):
                wait_until_idle()
                times["alone"].append(reader("read"))
                ahead("begin")
                begin, before = time.monotonic(), prefetched()
                times["beside"].append(reader("read"))
                rate.append((prefetched() - before) / (time.monotonic() - begin))
                ahead("end")
        p50 = reader("median")
        for job in (reader, ahead):
            job.close()
    ratio = paired(times["beside"], times["alone"])
    report.add(
        "a read of 2 MiB while another job prefetches 4 GiB, p99",
        ratio["median"],
        "of alone",
        at_most=P99,
        ceiling=f"alone {statistics.median(times['alone']) * 1e3:.1f} ms; {quartiles(ratio)} of {rounds} rounds; "
        f"prefetched {statistics.median(rate) / 1e9:.2f} GB/s meanwhile; p50 of all reads "
        f"{p50 * 1e3:.1f} ms",
    )


def look_ahead(report: Report, quick: bool) -> None:
    for arena, slice_size in ARENAS:
        adam_steps(report, arena, slice_size, 3 if quick else 12)
    reads_beside_a_prefetch(report, 3 if quick else 12)


def answer(verbs: dict[str, Callable[[], float]]) -> None:
    print(json.dumps({"ready": 1}), flush=True)
    for line in sys.stdin:
        verb = line.strip()
        print(json.dumps({verb: verbs[verb]()}), flush=True)


def train(socket: str, slice_bytes: int) -> None:
    """Answers "on" and "off" with the seconds of a step."""
    import torch

    import tierd
    import tierd.torch

    torch.set_num_threads(1)
    torch.manual_seed(1)
    sizes = [PARAMETERS // 8] * 7
    sizes.append(PARAMETERS - sum(sizes))
    parameters = [torch.nn.Parameter(torch.randn(size)) for size in sizes]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    with tierd.connect(job="train", socket=socket) as client:
        optimizer = tierd.torch.AdamW(parameters, client=client, slice_bytes=slice_bytes)
        prefetch = client.prefetch

        def step(mode: str) -> float:
            client.prefetch = prefetch if mode == "on" else lambda *_, **__: None  # type: ignore[method-assign]
            begin = time.perf_counter()
            optimizer.step()
            client.step()
            return time.perf_counter() - begin

        answer({"on": lambda: step("on"), "off": lambda: step("off")})


def read(socket: str) -> None:
    """Answers "read" with the p99 of reads of one piece each, in seconds, and "median" with that of all."""
    import tierd

    every: list[float] = []
    with tierd.connect(job="read", socket=socket) as client:
        for number in range(READ_TENSORS):
            client.put(number, bytes(PIECE))
        client.flush(*range(READ_TENSORS))

        def measure() -> float:
            times = []
            for _ in range(5):
                client.drop(*range(READ_TENSORS))
                for number in range(READ_TENSORS):
                    begin = time.perf_counter()
                    with client.lease(number):
                        times.append(time.perf_counter() - begin)
            every.extend(times)
            return statistics.quantiles(times, n=100)[98]

        answer({"read": measure, "median": lambda: statistics.median(every)})


def prefetch(socket: str) -> None:
    """Prefetches all it has, round and round, between "begin" and "end"."""
    import tierd

    count = AHEAD // AHEAD_TENSOR
    with tierd.connect(job="ahead", socket=socket) as client:
        for number in range(count):
            client.put(number, bytes(AHEAD_TENSOR))
        client.flush(*range(count))
        running = threading.Event()
        ended = threading.Event()

        def go_round() -> None:
            number = 0
            while running.wait() and not ended.is_set():
                client.prefetch([number % count + each for each in range(16)])
                client.step()  # What was prefetched before may go.
                number += 16
                time.sleep(0.02)

        thread = threading.Thread(target=go_round)
        thread.start()

        def tell(begins: bool) -> float:
            running.set() if begins else running.clear()
            return 1.0

        answer({"begin": lambda: tell(True), "end": lambda: tell(False)})
        ended.set()
        running.set()
        thread.join()


if __name__ == "__main__":
    kind, *words = sys.argv[1:]
    if kind == "train":
        train(words[0], int(words[1]))
    elif kind == "read":
        read(words[0])
    else:
        prefetch(words[0])
