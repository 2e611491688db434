"""What makes each alert of deploy/prometheus/rules.yml fire: something that happens to a real daemon.

A scene is a generator over a node. It goes on to its first `yield` to make everything ready, to its second to make the
cause, and to its end to take the cause away; at each of these the daemon itself shows what the scene says.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import json
import mmap
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import health_scenes
import launcher
import quarantine_record
import tierd
from alert_node import MIB, Needs, Node, wait_for
from scene_parts import BLOCK, Play, create_once, crowd, lease_all, on_ssd_alone, read_once, repeated

sys.path.insert(0, str(launcher.ROOT / "tools/bench"))

from memory_group import Unavailable, memory_group  # noqa: E402

# How long a lease keeps others waiting, in scenes about waits; TierdSlowAcquires tells of more than a second.
HELD_SECONDS = 1.6
SHORT_SECONDS = 0.3  # Several times between two evaluations.


@dataclasses.dataclass(frozen=True)
class Scene:
    play: Callable[[Node], Play]
    # Seconds that a range in the expression keeps the alert behind the end of its cause.
    settle: int = 0
    # Seconds without the cause that Prometheus sees before it, for an alert that compares with what is usual.
    usual: int = 2


# ---- The daemon ----


def down(node: Node) -> Play:
    node.start()
    yield
    assert node.daemon is not None
    node.daemon.kill()
    assert not node.up()
    yield
    node.start()


def restarted(node: Node) -> Play:
    node.start()
    yield
    node.start()
    yield


def until_restarted(node: Node, series: str) -> Play:
    """What was started shows; it ends with a start as configured."""
    node.wait_figure(series)
    yield
    node.start()
    node.wait_figure(series, 0, 0)


def draining(node: Node) -> Play:
    node.start()
    yield
    node.tierctl("drain")
    node.wait_figure("tierd_draining")
    yield
    node.tierctl("undrain")
    node.wait_figure("tierd_draining", 0, 0)


def unpinned(node: Node) -> Play:
    if os.geteuid() != 0:
        raise Needs("root: takes a right to lock memory away, and gives it back")
    # Quiet: without an SSD tier no memory is to be locked.
    node.start(ssd={"devices": ["none"]})
    node.wait_figure('tierd_memory_mode{mode="unpinned"}')
    yield
    without = node.folder / "without-lock"
    lowered = "prlimit --memlock=1048576:1048576 setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock"
    without.write_text(f'#!/bin/sh\nexec {lowered} {shlex.quote(str(launcher.need_build()))} "$@"\n')
    without.chmod(0o755)
    node.start(without)
    yield from until_restarted(node, 'tierd_degraded{cause="memory"}')


def threads(node: Node) -> Play:
    node.start()
    yield
    node.start(ssd={"file_size": "128MiB", "engine": "threads"})
    node.wait_figure('tierd_io_mode{mode="threads"}')
    yield
    node.start()
    if node.figure('tierd_io_mode{mode="threads"}'):
        raise Needs("io_uring: this kernel forbids it, so the alert cannot clear")


def no_ssd_tier(node: Node) -> Play:
    full = node.disk / "full"
    full.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300m", "tmpfs", full], capture_output=True, text=True)
    if made.returncode != 0:
        raise Needs(f"a right to mount: {made.stderr.strip()}")
    node.stack.callback(lambda: subprocess.run(["umount", full], check=False))
    node.stack.callback(node.stop)
    node.start()
    yield
    store = {"socket_directory": str(node.folder), "data_directory": str(full)}
    node.start(daemon=store, ssd={"any_file_system": True})
    yield from until_restarted(node, 'tierd_degraded{cause="ssd_tier"}')


def ssd_reduced(node: Node) -> Play:
    node.start()
    yield
    node.start(ssd={"file_size": "1000TiB"})  # It cannot grow to that.
    yield from until_restarted(node, 'tierd_degraded{cause="ssd_size"}')


def ssd_drained(node: Node) -> Play:
    node.start()
    drained = 'tierd_degraded{cause="ssd_drained"}'
    yield
    launcher.run_tierctl(node.running, "device", "drain", "0")  # Status 6: it is the only one.
    node.wait_figure(drained)
    yield
    node.tierctl("device", "drain", "0", "--undo")
    node.wait_figure(drained, 0, 0)


def index_failed(node: Node) -> Play:
    """Its file is cut short, in the half that is not used yet, while nobody persists."""
    node.start()
    index, failed = node.disk / "index.mdb", 'tierd_degraded{cause="index"}'
    yield
    os.truncate(index, index.stat().st_size // 2)
    node.wait_figure(failed)
    yield
    node.start()
    node.wait_figure(failed, 0, 0)


def config_reload_failed(node: Node) -> Play:
    node.start()
    config, failed = node.folder / "tierd.toml", "tierd_config_reload_failed"
    text = config.read_text()
    yield
    reload(node, text + "\n[no_such_section]\n")
    node.wait_figure(failed)
    yield
    reload(node, text)
    node.wait_figure(failed, 0, 0)


def reload(node: Node, configuration: str) -> None:
    (node.folder / "tierd.toml").write_text(configuration)
    assert node.daemon is not None
    os.kill(node.daemon.process.pid, signal.SIGHUP)


# ---- Devices ----


def device_missing(node: Node) -> Play:
    files = [node.disk / name for name in ("here.ssd", "lost.ssd")]
    ssd = {"devices": [str(file) for file in files], "file_size": "64MiB"}
    node.start(ssd=ssd)
    with tierd.connect(job="named", socket=node.socket, named=True) as client:
        for number in range(4):
            client.put(f"layer-{number}", os.urandom(BLOCK))
        client.persist()
    yield
    node.stop()
    aside = files[1].rename(node.disk / "aside")
    node.start(ssd=ssd)
    node.wait_figure("tierd_missing_devices")
    yield
    node.stop()
    aside.rename(files[1])
    node.start(ssd=ssd)
    node.wait_figure("tierd_missing_devices", 0, 0)


def device_errors(node: Node) -> Play:
    device = node.faulty_device(64 * MIB)
    node.start(ssd={"devices": [device.path]})
    client = node.connect()
    on_ssd_alone(client, "layer", os.urandom(BLOCK))
    yield
    device.fail("reads")
    with contextlib.suppress(tierd.IoError):
        client.get("layer")
    node.wait_figure('tierd_device_errors_total{device="0"}')
    device.heal()  # An error counts for a while after it.
    yield
    wait_for("the device reads again", lambda: reads(client, "layer"))


def reads(client: tierd.Client, key: str) -> bool:
    try:
        client.get(key)
    except tierd.IoError:
        return False
    return True


def device_not_online(node: Node) -> Play:
    device = node.faulty_device(64 * MIB)
    node.start(ssd={"devices": [device.path]})
    client = node.connect()
    on_ssd_alone(client, "layer", os.urandom(BLOCK))
    online = 'tierd_device_state{device="0",state="online"}'
    yield
    device.fail()
    assert not reads(client, "layer")
    node.wait_figure(online, 0, 0)
    yield
    device.heal()

    def written() -> bool:
        try:
            client.put("another", os.urandom(4096), replace=True)
            client.flush("another")
        except (tierd.IoError, tierd.NoSpace):
            return False
        return node.figure(online) == 1

    wait_for("the device is online", written, 60)


def device_corrupt(node: Node) -> Play:
    node.start()
    client = node.connect()
    content = os.urandom(BLOCK)
    on_ssd_alone(client, "layer", content)
    yield
    flip_bit(node.disk / "tier.ssd", content[4096:4160])
    with contextlib.suppress(tierd.Corrupt):
        client.get("layer")
    node.wait_figure('tierd_device_corrupt_pieces_total{device="0"}')
    yield


def flip_bit(path: pathlib.Path, of: bytes) -> None:
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        place = mapped.find(of)
        assert place >= 0, "the tensor is not on SSD"
        mapped[place] ^= 1
        mapped.flush()
        os.fsync(file.fileno())


def device_quarantined(node: Node) -> Play:
    """The one free block has a bad page: it fails once for each tensor that comes to lie there."""
    device = node.faulty_device(64 * MIB, bad_bytes=range(9 * MIB, 9 * MIB + 4096))
    node.start(ssd={"devices": [device.path]}, arena={"maximum": "128MiB"})
    client = node.connect()
    quarantined = 'tierd_device_quarantined_bytes{device="0"}'
    yield
    device.fail("writes")
    count = fill(client, BLOCK)
    for number in range(count):
        client.delete(f"block-{number}")
        client.put(f"again-{number}", os.urandom(BLOCK))
        client.flush(f"again-{number}")
        if node.figure(quarantined):
            break
    node.wait_figure(quarantined)
    yield
    device.heal()
    node.tierctl("device", "retry", "0")
    node.wait_figure(quarantined, 0, 0)


def device_failing(node: Node) -> Play:
    """An earlier run has found so many bad places that no more are written down."""
    if quarantine_record.library() is None:
        raise Needs("liblmdb: tools/dev setup")
    node.start()
    (device,) = json.loads(node.tierctl("device", "list", "--json"))["devices"]
    yield
    node.stop()
    quarantine_record.write(node.disk / "index.mdb", device["uuid"])
    node.start()
    node.wait_figure('tierd_device_failing{device="0"}')
    yield
    node.tierctl("device", "retry", "0")
    node.wait_figure('tierd_device_failing{device="0"}', 0, 0)


def fill(client: tierd.Client, size: int) -> int:
    """Puts tensors on SSD until it is full: how many there are."""
    count = 0
    while True:
        client.put(f"block-{count}", os.urandom(size))
        try:
            client.flush(f"block-{count}")
        except (tierd.NoSpace, tierd.IoError):
            client.delete(f"block-{count}")
            return count
        count += 1


def ssd_nearly_full(node: Node) -> Play:
    node.start(arena={"maximum": "160MiB"})
    client = node.connect()
    live, capacity = (f'tierd_device_{name}_bytes{{device="0"}}' for name in ("live", "capacity"))
    yield
    count = fill(client, BLOCK)
    node.wait_figure(live, 0.92 * node.figure(capacity))
    yield
    client.delete(*(f"block-{number}" for number in range(count)))
    node.wait_figure(live, 0, 0.1 * node.figure(capacity))


# ---- Tensors, leases, memory ----

WRITER = """
import tierd
client = tierd.connect(job={job!r}, token={token!r}, socket={socket!r})
with client.lease("layer", write=True, shared=True) as lease:
    lease.memoryview()[:50] = b"b" * 50
    print("writing", flush=True)
    input()
"""


def torn_tensors(node: Node) -> Play:
    node.start()
    client = node.connect()
    client.put("layer", b"a" * 4096, shared=True)
    script = WRITER.format(job=client.session.job, token=client.session.token, socket=node.socket)
    with subprocess.Popen(
        [sys.executable, "-c", script], env=launcher.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None and writer.stdout.readline() == b"writing\n"
        yield
        writer.kill()
    node.wait_figure("tierd_torn_tensors")
    yield
    client.accept("layer", shared=True)
    node.wait_figure("tierd_torn_tensors", 0, 0)


def arena_saturated(node: Node) -> Play:
    """One job leases all of the arena, and another asks for room. A request that waits for a lease of the same tensor
    lacks no room: while one does, the alert is quiet."""
    node.start(jobs={"reclaim_deadline": "1h"})  # Nothing is taken from the first job by force.
    holder, reader = crowd(node, 1)
    hog, waiter = node.connect(job="hog"), node.connect(job="waiter")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        with holder.lease("layer", write=True, shared=True):
            reading = pool.submit(read_once, reader)
            node.wait_figure('tierd_waiting_requests{cause="lease"}')
            assert node.figure('tierd_waiting_requests{cause="ram"}') == 0
            yield
        reading.result(60)
        with contextlib.ExitStack() as leases:
            lease_all(hog, leases)
            waiting = pool.submit(create_once, waiter)
            node.wait_figure('tierd_waiting_requests{cause="ram"}')
            yield
        waiting.result(60)
    node.wait_figure('tierd_waiting_requests{cause="ram"}', 0, 0)


def forced_returns(node: Node) -> Play:
    """A process leases most of the arena, and goes on when another job is owed its guarantee."""
    node.start(jobs={"reclaim_deadline": "1s"})
    hog = node.connect(job="hog", guarantee="8MiB")
    with contextlib.suppress(tierd.Revoked), contextlib.ExitStack() as leases:
        for number in range(1, 14):
            leases.enter_context(hog.create(number, BLOCK))
        yield
        with tierd.connect(job="owed", socket=node.socket, guarantee="14MiB") as owed:
            owed.put("mine", bytes(12 * MIB), timeout=60)
        node.wait_figure('tierd_forced_returns_total{kind="session"}')
    yield  # It counts for a while after it.


def hold_up(node: Node, seconds: float) -> Iterator[Callable[[], None]]:
    """Three processes wait for one that keeps a lease, again and again."""
    holder, *others = crowd(node, 3)
    ended = threading.Event()
    with concurrent.futures.ThreadPoolExecutor(len(others)) as pool:

        def once() -> None:
            with holder.lease("layer", write=True, shared=True):
                reads = [pool.submit(read_once, other) for other in others]
                ended.wait(seconds)
            for read in reads:
                read.result(60)

        with repeated(once, pause=0) as begin:
            yield begin
            ended.set()


def slow_acquires(node: Node) -> Play:
    node.start()
    with contextlib.contextmanager(hold_up)(node, HELD_SECONDS) as begin:
        yield
        begin()
        all_of_them, quick = (f"tierd_acquire_wait_seconds_{name}" for name in ("count", 'bucket{le="1"}'))
        wait_for("one takes a second", lambda: node.figure(all_of_them) > node.figure(quick))
        yield


def job_stalls(node: Node) -> Play:
    node.start()
    stalls = f'tierd_job_stall_seconds_total{{tierd_job="training",uid="{os.getuid()}"}}'
    with contextlib.contextmanager(hold_up)(node, SHORT_SECONDS) as begin:
        yield
        begin()
        node.wait_figure(stalls)
        yield


def host_short(node: Node) -> Play:
    try:
        group = node.stack.enter_context(memory_group())
    except Unavailable as reason:
        raise Needs(str(reason).removeprefix("needs ")) from None
    node.stack.callback(node.stop)
    assert group.set_limit(512 * MIB)
    program = group.program(node.folder / "in-group", launcher.need_build())
    # Pages of the kernel's pool count in no memory.current.
    arena = {"maximum": "256MiB", "minimum": "16MiB", "huge_pages": "never"}
    node.start(program, arena=arena, ssd={"file_size": "512MiB"})
    client = node.connect()
    for number in range(20):
        client.put(f"layer-{number}", os.urandom(8 * MIB))
    yield
    assert group.lower(group.usage() - 80 * MIB, 30), "the limit cannot be lowered"
    node.wait_figure("tierd_host_memory_short")
    yield
    assert group.set_limit(1024 * MIB)
    node.wait_figure("tierd_host_memory_short", 0, 0)


# The longest first: several are played at a time.
SCENES: dict[str, Scene] = {
    "TierdDeviceSpareLow": Scene(health_scenes.spare_low),
    "TierdDeviceWorn": Scene(health_scenes.device_worn),
    "TierdDeviceMediaErrors": Scene(health_scenes.media_errors, settle=20),
    "TierdDeviceWarns": Scene(health_scenes.device_warns),
    "TierdDeviceSmartStale": Scene(health_scenes.smart_stale),
    "TierdWriteBudgetExceeded": Scene(health_scenes.write_budget_exceeded, settle=20),
    "TierdDriveWrites": Scene(health_scenes.drive_writes, settle=20),
    "TierdDeviceSlow": Scene(health_scenes.device_slow, settle=10, usual=20),
    "TierdDraining": Scene(draining),
    "TierdSsdDrained": Scene(ssd_drained),
    "TierdDeviceCorrupt": Scene(device_corrupt, settle=20),
    "TierdRestarted": Scene(restarted, settle=15),
    "TierdForcedReturns": Scene(forced_returns, settle=15),
    "TierdDeviceErrors": Scene(device_errors, settle=15),
    "TierdSlowAcquires": Scene(slow_acquires, settle=10),
    "TierdJobStalls": Scene(job_stalls, settle=5),
    "TierdArenaSaturated": Scene(arena_saturated),
    "TierdSsdNearlyFull": Scene(ssd_nearly_full),
    "TierdHostShort": Scene(host_short),
    "TierdDeviceQuarantined": Scene(device_quarantined),
    "TierdDeviceFailing": Scene(device_failing),
    "TierdDeviceNotOnline": Scene(device_not_online),
    "TierdUnpinned": Scene(unpinned),
    "TierdThreadsMode": Scene(threads),
    "TierdNoSsdTier": Scene(no_ssd_tier),
    "TierdSsdReduced": Scene(ssd_reduced),
    "TierdIndexFailed": Scene(index_failed),
    "TierdConfigReloadFailed": Scene(config_reload_failed),
    "TierdDeviceMissing": Scene(device_missing),
    "TierdTornTensors": Scene(torn_tensors),
    "TierdDown": Scene(down),
}
