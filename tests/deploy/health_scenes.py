"""Scenes of how the devices do: how much is written to them, how soon they answer, and what they say of themselves."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
import time
from collections.abc import Iterator

import tierd
from alert_node import MIB, Node, wait_for
from faulty_device import FaultyDevice
from scene_parts import BLOCK, Play, leave_ram, on_ssd_alone, repeated

# Far above what a read takes on a busy machine, and far below what the daemon takes for an error.
BUSY_SECONDS = 0.6
# The daemon looks at the file of tierd-smart every 30.
SMART_SECONDS = 60
STALE_SECONDS = 2 * 3600  # Longer than figures are taken for good.
RELIABILITY = 1 << 2  # The bit in the SMART log that is the warning of this name.


# ---- What is written ----


def drive_writes(node: Node) -> Play:
    """Writes for as long as the cause lasts, to a drive that is small as a whole; the same tensors are read back, so
    that all is seen that a node records."""
    device = node.faulty_device(64 * MIB, in_memory=True)
    node.start(arena={"maximum": "8MiB"}, ssd={"devices": [device.path]})
    client = node.connect()
    with repeated(lambda: rewrite(client)) as begin:
        yield
        begin()
        node.wait_figure('tierd_device_written_bytes_total{device="0"}', 8 * MIB)
        yield


def write_budget_exceeded(node: Node) -> Play:
    """What was saved up is used, so that write-behind waits; what requests wait for goes on."""
    node.start(arena={"maximum": "8MiB"}, ssd={"file_size": "128MiB", "drive_writes_per_day": 1})
    client = node.connect()
    with repeated(lambda: rewrite(client)) as begin:
        yield
        begin()
        node.wait_figure("tierd_write_budget_delays_total", seconds=60)
        node.wait_figure("tierd_write_budget_left_bytes", float("-inf"), -4 * BLOCK, seconds=60)
        yield


def rewrite(client: tierd.Client) -> None:
    for number in range(6):
        client.put(f"layer-{number}", os.urandom(BLOCK), replace=True)
    for number in range(6):
        client.get(f"layer-{number}")


# ---- How soon a device answers ----


def device_slow(node: Node) -> Play:
    """The same tensor is read all the time; then the device is busy whenever it is asked."""
    device = node.faulty_device(64 * MIB)
    node.start(ssd={"devices": [device.path]})
    client = node.connect()
    on_ssd_alone(client, "layer", os.urandom(4096))
    slow = threading.Event()

    def read() -> None:
        with busy(device) if slow.is_set() else contextlib.nullcontext():
            client.get("layer")
        leave_ram(client, "layer")

    with repeated(read) as begin:
        begin()
        node.wait_figure(reads("count"), 2)
        yield
        before = slow_reads(node)
        slow.set()
        wait_for("a read takes half a second", lambda: slow_reads(node) > before)
        yield
        slow.clear()


@contextlib.contextmanager
def busy(device: FaultyDevice) -> Iterator[None]:
    """What it is asked at the beginning of the block it answers only after a while."""
    device.hang()
    resumes = threading.Timer(BUSY_SECONDS, device.resume)
    resumes.start()
    try:
        yield
    finally:
        resumes.join()


def slow_reads(node: Node) -> float:
    """How many took more than half a second."""
    return node.figure(reads("count")) - node.figure(reads("bucket", 'le="0.5"'))


def reads(what: str, *labels: str) -> str:
    shown = ",".join(['device="0"', 'direction="read"', 'class="demand"', *labels])
    return f"tierd_device_request_seconds_{what}{{{shown}}}"


# ---- What a device says of itself ----

SPARE = 'tierd_device_smart_available_spare_ratio{device="0"}'


@dataclasses.dataclass(frozen=True)
class Health:
    """What a device with a threshold of 10 % tells. `age`: for so many seconds it has not answered."""

    warnings: int = 0
    spare: int = 100
    used: int = 2
    media_errors: int = 3
    age: int = 0


def start_healthy(node: Node) -> None:
    tell_health(node)
    device, told = node.disk / "tier.ssd", node.folder / "smart"
    node.start(ssd={"file_size": "128MiB", "devices": [str(device)], "smart_file": str(told)})
    node.wait_figure(SPARE)


def tell_health(node: Node, health: Health = Health()) -> None:
    """Writes the file as tierd-smart does (docs/formats.md)."""
    device, told, now = node.disk / "tier.ssd", node.folder / "smart", int(time.time())
    figures = f"{health.warnings} 311 {health.spare} 10 {health.used} 632098304000 {health.media_errors}"
    line = f"device {now - health.age} {figures} nvme0n1 S1 {device}"
    draft = told.with_suffix(".new")
    draft.write_text(f"tierd-smart 2\ntime {now}\n{line}\nend 1\n")
    draft.replace(told)


def device_warns(node: Node) -> Play:
    start_healthy(node)
    warns = 'tierd_device_smart_warning{device="0",cause="reliability"}'
    yield
    tell_health(node, Health(warnings=RELIABILITY))
    node.wait_figure(warns, seconds=SMART_SECONDS)
    yield
    tell_health(node)
    node.wait_figure(warns, 0, 0, seconds=SMART_SECONDS)


def spare_low(node: Node) -> Play:
    """Few spare blocks are left, and more than the number at which the device warns."""
    start_healthy(node)
    yield
    tell_health(node, Health(spare=15))
    node.wait_figure(SPARE, 0.15, 0.15, seconds=SMART_SECONDS)
    yield
    tell_health(node)
    node.wait_figure(SPARE, seconds=SMART_SECONDS)


def device_worn(node: Node) -> Play:
    start_healthy(node)
    used = 'tierd_device_smart_used_ratio{device="0"}'
    yield
    tell_health(node, Health(used=91))
    node.wait_figure(used, 0.91, 0.91, seconds=SMART_SECONDS)
    yield
    tell_health(node)
    node.wait_figure(used, 0.02, 0.02, seconds=SMART_SECONDS)


def media_errors(node: Node) -> Play:
    """One more than it had before."""
    start_healthy(node)
    errors = 'tierd_device_smart_media_errors_total{device="0"}'
    assert node.figure(errors) == 3
    yield
    tell_health(node, Health(media_errors=4))
    node.wait_figure(errors, 4, 4, seconds=SMART_SECONDS)
    yield  # It counts for a while after it.


def smart_stale(node: Node) -> Play:
    """The device answers no more, while it warns; what it said stays."""
    start_healthy(node)
    stale = 'tierd_device_smart_stale{device="0"}'
    yield
    tell_health(node, Health(warnings=RELIABILITY, age=STALE_SECONDS))
    node.wait_figure(stale, seconds=SMART_SECONDS)
    assert node.figure('tierd_device_smart_warning{device="0",cause="reliability"}') == 1
    yield
    tell_health(node)
    node.wait_figure(stale, 0, 0, seconds=SMART_SECONDS)
