"""The peer's way to an SSD: DeepSpeed's asynchronous I/O handle, tuned, in a process of its own.

Its package is installed into .cache/peers by `tools/dev bench --peers` and its operator built there once (minutes).
"""

from __future__ import annotations

import itertools
import json
import os
import pathlib
import sys
import time
from typing import Any

import fio
from node import ROOT, Shell

PEERS = ROOT / ".cache/peers"
TUNING_BYTES = 1 << 30  # Moved in each direction by each shape, twice.
IN_FLIGHT_MIN, IN_FLIGHT_BYTES = 4, 128 << 20  # Transfers under way, as tier_bench has.


class DeepSpeed(Shell):
    """Writes and reads ``total`` bytes in tensors of ``size`` bytes in the daemon's file, where fio does: where a file
    lies on a disk changes its rate, on a virtual one by a fifth. Its users would have a file for each tensor."""

    def __init__(self, file: pathlib.Path, size: int, total: int, quick: bool) -> None:
        paths = os.pathsep.join([str(PEERS), str(pathlib.Path(__file__).parent)])
        environment = os.environ | {
            "PYTHONPATH": paths,
            "PATH": f"{PEERS / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "TORCH_EXTENSIONS_DIR": str(PEERS / "extensions"),
            "CXX": "g++-12",
            "DS_ACCELERATOR": "cpu",
        }
        arguments = json.dumps({"file": str(file), "size": size, "total": total, "quick": quick})
        super().__init__([sys.executable, __file__, arguments], environment)
        self.shape = str(self.ready["shape"])


def _pass(handle: Any, direction: str, buffers: list[Any], file: str, offsets: list[int]) -> float:
    """Seconds for all tensors: as many asked for as there are buffers, then waited for together, in batches."""
    start = time.perf_counter()
    submit = handle.async_pwrite if direction == "write" else handle.async_pread
    for batch in (offsets[at : at + len(buffers)] for at in range(0, len(offsets), len(buffers))):
        for buffer, offset in zip(buffers, batch, strict=False):
            submit(buffer, file, offset)
        done = handle.wait()
        if done != len(batch):
            raise SystemExit(f"DeepSpeed finished {done} of {len(batch)} transfers")
    return time.perf_counter() - start


def _tuned(aio: Any, buffers: list[Any], file: str, offsets: list[int], quick: bool) -> tuple[Any, str]:
    """The handle that moves most bytes there and back: block size, depth and threads are what its users tune."""
    best: tuple[float, Any, str] | None = None
    blocks, depths, threads = [1 << 20, 4 << 20, 8 << 20], [32, 128], [1, 2, 4]
    if quick:
        blocks, depths, threads = blocks[::2], depths[:1], threads[:2]
    for block, depth, count in itertools.product(blocks, depths, threads):
        handle = aio.aio_handle(block, depth, False, True, count)
        seconds = min(sum(_pass(handle, verb, buffers, file, offsets) for verb in ("write", "read")) for _ in range(2))
        if best is None or seconds < best[0]:
            best = (seconds, handle, f"{block >> 10} KiB × {depth} × {count}")
    assert best is not None
    return best[1], best[2]


def main() -> None:
    arguments = json.loads(sys.argv[1])
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # What DeepSpeed prints must not look like answers.
    import torch
    from deepspeed.ops.op_builder import AsyncIOBuilder  # type: ignore[import-not-found]

    aio = AsyncIOBuilder().load(verbose=False)
    size, total = arguments["size"], arguments["total"]
    file, offsets = arguments["file"], [fio.OFFSET + i * size for i in range(total // size)]
    pin = aio.aio_handle(1 << 20, 32, False, True, 1)
    count = max(IN_FLIGHT_MIN, IN_FLIGHT_BYTES // size)
    buffers = [pin.new_cpu_locked_tensor(size, torch.empty(0, dtype=torch.uint8)) for _ in range(count)]
    for seed, buffer in enumerate(buffers):
        buffer.random_(0, 256, generator=torch.Generator().manual_seed(seed))
    some = offsets[: max(len(buffers), TUNING_BYTES // size)]
    handle, shape = _tuned(aio, buffers, file, some, arguments["quick"])
    print(json.dumps({"ready": True, "shape": shape}), file=out, flush=True)
    for line in sys.stdin:
        verb = line.strip()
        print(json.dumps({verb: total / _pass(handle, verb, buffers, file, offsets) / 1e9}), file=out, flush=True)


if __name__ == "__main__":
    main()
