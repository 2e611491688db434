"""A trainer that swaps all the time, for load.sh: twice its arena there and back in each round, every byte compared.

load_script.py FOLDER: it writes `rounds requests failures` to FOLDER/progress behind each round, and ends when
FOLDER/stop is there. A request that fails is counted, told, and does not end it.
"""

import pathlib
import sys
import traceback

import numpy
import tierd

TENSORS = 16
BYTES = 8 << 20  # With an arena of 64 MiB, half of them are on SSD alone.


def main(folder: pathlib.Path) -> None:
    requests = failures = rounds = 0
    with tierd.connect(job="under-load", autostart=False) as client:
        while not (folder / "stop").exists():
            for number in range(TENSORS):
                requests += 2
                try:
                    if rounds > 0:
                        expected = numpy.full(BYTES, (rounds - 1 + number) % 251, numpy.uint8)
                        assert numpy.array_equal(client.get(f"layer-{number}"), expected), "other bytes came back"
                    content = numpy.full(BYTES, (rounds + number) % 251, numpy.uint8)
                    client.put(f"layer-{number}", content, replace=rounds > 0)
                except Exception:
                    failures += 1
                    traceback.print_exc()
            rounds += 1
            written = folder / "progress.new"
            written.write_text(f"{rounds} {requests} {failures}\n")
            written.replace(folder / "progress")
    print(f"{rounds} rounds, {requests} requests, {failures} failed")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
