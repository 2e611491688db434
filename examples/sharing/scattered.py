"""Three jobs put tensors of many sizes and free three of four, so that what is free lies in pieces. Then one of them
asks for more in a row than lies free anywhere: tierd moves what lies between.

Start a daemon without an SSD tier, so that nothing can be evicted instead, and give its socket:
    tierd --set daemon.socket_directory=/tmp/node --set arena.maximum=96MiB --set 'ssd.devices=["none"]'
    python scattered.py /tmp/node/tierd.sock
"""

import random
import subprocess
import sys
import time

import numpy

import tierd

MIB = 1 << 20
socket = sys.argv[1]
tierctl = sys.argv[2] if len(sys.argv) > 2 else "tierctl"
sizes = random.Random(1)


def show_map() -> None:
    print("$ tierctl pool map", flush=True)
    subprocess.run([tierctl, "--socket", socket, "pool", "map"], check=True)


jobs = {name: tierd.connect(job=name, socket=socket) for name in ("alpha", "beta", "gamma")}
kept = {}
for name, client in jobs.items():
    for number in range(55):
        content = numpy.full(sizes.randrange(64, 900) * 1024, number, "u1")
        client.put(number, content)
        if number % 4 == 0:
            kept[name, number] = content
    for number in range(55):
        if number % 4 != 0:
            client.delete(number)

show_map()
began = time.perf_counter()
jobs["alpha"].put("large", numpy.full(14 * MIB, 7, "u1"))
print(f"alpha has put 14 MiB in {1e3 * (time.perf_counter() - began):.0f} ms\n", flush=True)
show_map()
same = all(numpy.array_equal(jobs[name].get(number), content) for (name, number), content in kept.items())
print(f"\n{len(kept)} tensors have their bytes: {same}")
for client in jobs.values():
    client.close()
