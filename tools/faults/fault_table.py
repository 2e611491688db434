"""The faults, and what is expected of each operation meanwhile: the code, the time, and what is left afterwards."""

from __future__ import annotations

import dataclasses
import os
import resource
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fault_node import Node

DEADLINE = 4.0  # Seconds, of every request.
SOON, WAITS = 2.0, DEADLINE + 1.0
ENDS_LATEST = DEADLINE + 2.0  # After so long the fault ends, so that every request is answered.
LATE = ENDS_LATEST + DEADLINE
ASIDE_MAX = 4 << 20  # Bytes put aside on each device after it has failed.
# The times that are told apart, in seconds.
CLASSES = ((0.1, "< 0.1 s"), (1.0, "< 1 s"), (DEADLINE - 0.1, "< deadline"), (DEADLINE + 1.0, "deadline"))

# In the order of docs/faults.md.
OPERATION_NAMES = (
    "create and seal",
    "swap_out beyond RAM",
    "swap_out over a tensor",
    "swap_in from RAM",
    "swap_in from SSD",
    "write lease in RAM",
    "write lease on SSD",
    "prefetch",
    "flush",
    "persist",
    "persist what is on SSD",
    "resume",
    "device drain",
    "free",
)


def time_class(seconds: float) -> str:
    return next((name for bound, name in CLASSES if seconds < bound), "beyond the deadline")


@dataclasses.dataclass(frozen=True)
class Expected:
    codes: tuple[str, ...]
    seconds_max: float = SOON


OK = Expected(("OK",))


@dataclasses.dataclass(frozen=True)
class Fault:
    """`begin` makes it, `end` takes it away again; a fault without `end` stays. `devices` are the fields of
    fault_node.Devices. `lost`: the tensors that may answer one of these codes afterwards; no other may. `comes_back`:
    every device is online again at the end, and all of its bytes can be used."""

    name: str
    text: str
    devices: Mapping[str, object]
    begin: Callable[[Node], None]
    end: Callable[[Node], None] | None
    expected: Mapping[str, Expected] = dataclasses.field(default_factory=dict)
    lost: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    comes_back: bool = True

    def of(self, operation: str) -> Expected:
        return self.expected.get(operation, OK)


# ---- What begins and ends a fault ----


def every(method: str, *arguments: str) -> Callable[[Node], None]:
    """Of every device that can be made to fail."""

    def run(node: Node) -> None:
        for device in node.faulty:
            getattr(device, method)(*arguments)

    return run


def short_hang(node: Node) -> None:
    """Begins now, and ends by itself after 2 seconds."""
    import threading

    every("hang")(node)
    threading.Timer(2.0, every("resume"), [node]).start()


def flip(node: Node) -> None:
    path, place = node.find_on_device("ssd", 5 << 20)
    with open(path, "r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1]))
        file.flush()
        os.fsync(file.fileno())


def cut_device(node: Node) -> None:
    """Just before the tensor that is on SSD alone."""
    places = [node.find_on_device("ssd", offset << 20) for offset in (0, 2, 4, 6)]
    os.truncate(places[0][0], min(place for _, place in places))


def cut_index(node: Node) -> None:
    os.truncate(node.data / "index.mdb", 0)


def fill_index(node: Node) -> None:
    with open(node.data / "other", "wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            pass


def empty_index(node: Node) -> None:
    (node.data / "other").unlink(missing_ok=True)


def limit(kind: int, used: Callable[[int], int]) -> Callable[[Node], None]:
    """Gives the daemon no more of it than it uses now."""

    def run(node: Node) -> None:
        pid = node.daemon.process.pid
        _, most = resource.prlimit(pid, kind)
        resource.prlimit(pid, kind, (used(pid), most))

    return run


def unlimit(kind: int) -> Callable[[Node], None]:
    def run(node: Node) -> None:
        pid = node.daemon.process.pid
        _, most = resource.prlimit(pid, kind)
        resource.prlimit(pid, kind, (most, most))

    return run


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


# ---- What is expected ----

NOT_DRAINED = {"device drain": Expected(("not drained",), LATE)}
# A persist syncs every device before its commit.
SYNC_WAITS = {"persist what is on SSD": Expected(("OK",), WAITS)}
SYNC_HANGS = {"persist what is on SSD": Expected(("TIMEOUT",), WAITS)}


def ssd_is_read(*codes: str, seconds_max: float = SOON) -> dict[str, Expected]:
    return dict.fromkeys(("swap_in from SSD", "write lease on SSD"), Expected(codes, seconds_max))


def ssd_is_written(*codes: str, seconds_max: float = SOON) -> dict[str, Expected]:
    beyond = {"swap_out beyond RAM": Expected(codes, WAITS)}
    return beyond | dict.fromkeys(("flush", "persist"), Expected(codes, seconds_max))


# What prepare() of fault_node stores.
TENSORS = ("ssd", "both", "ram")

# ---- The faults ----

FAILS, BOTH, ONE_OF_TWO = {"failing": 1}, {"count": 2, "failing": 2}, {"count": 2, "failing": 1}

FAULTS = (
    Fault(
        "reads fail",
        "The only device answers EIO to every read.",
        FAILS,
        every("fail", "reads"),
        every("heal"),
        NOT_DRAINED | ssd_is_read("IO_ERROR"),
    ),
    Fault(
        "writes fail",
        "The only device answers EIO to every write.",
        FAILS,
        every("fail", "writes"),
        every("heal"),
        NOT_DRAINED | ssd_is_written("IO_ERROR"),
    ),
    Fault(
        "device fails",
        "The only device answers EIO to everything.",
        FAILS,
        every("fail"),
        every("heal"),
        NOT_DRAINED | ssd_is_read("IO_ERROR") | ssd_is_written("IO_ERROR"),
    ),
    Fault(
        "no space beneath",
        "The only device answers ENOSPC to every write, as a thin volume on a full pool does.",
        {"failing": 1, "write_error": "ENOSPC"},
        every("fail", "writes"),
        every("heal"),
        NOT_DRAINED | ssd_is_written("NO_SPACE"),
    ),
    Fault(
        "short hang",
        "The only device answers nothing for 2 s.",
        FAILS,
        short_hang,
        every("resume"),
        NOT_DRAINED | SYNC_WAITS | ssd_is_read("OK", seconds_max=WAITS) | ssd_is_written("OK", seconds_max=WAITS),
    ),
    Fault(
        "hang",
        "The only device answers nothing until the deadline has passed.",
        FAILS,
        every("hang"),
        every("resume"),
        NOT_DRAINED
        | SYNC_HANGS
        | ssd_is_read("TIMEOUT", seconds_max=WAITS)
        | ssd_is_written("TIMEOUT", "NO_MEMORY", seconds_max=WAITS),
    ),
    Fault(
        "dead device",
        "The only device fails everything from now on.",
        FAILS,
        every("die"),
        None,
        NOT_DRAINED
        | ssd_is_read("IO_ERROR")
        | ssd_is_written("IO_ERROR")
        | {"persist what is on SSD": Expected(("IO_ERROR",))},
        dict.fromkeys(TENSORS, ("IO_ERROR",)),
        comes_back=False,
    ),
    Fault(
        "one of two fails",
        "One of two devices answers EIO to everything. Each tensor has pieces on both.",
        ONE_OF_TWO,
        every("fail"),
        every("heal"),
        NOT_DRAINED | ssd_is_read("IO_ERROR"),
    ),
    Fault(
        "one of two fails writes",
        "One of two devices answers EIO to every write.",
        ONE_OF_TWO,
        every("fail", "writes"),
        every("heal"),
        {"device drain": Expected(("OK",), WAITS)},
    ),
    Fault(
        "one of two hangs",
        "One of two devices answers nothing until the deadline has passed. Each tensor has pieces on both.",
        ONE_OF_TWO,
        every("hang"),
        every("resume"),
        NOT_DRAINED
        | SYNC_HANGS
        | ssd_is_read("TIMEOUT", seconds_max=WAITS)
        | ssd_is_written("TIMEOUT", seconds_max=WAITS)
        | {"swap_out beyond RAM": Expected(("OK",), WAITS)},
    ),
    Fault(
        "both fail",
        "Both of two devices answer EIO to everything.",
        BOTH,
        every("fail"),
        every("heal"),
        NOT_DRAINED | ssd_is_read("IO_ERROR") | ssd_is_written("IO_ERROR"),
    ),
    Fault(
        "flipped bit",
        "A bit of *ssd* is changed on the device.",
        {},
        flip,
        None,
        NOT_DRAINED | ssd_is_read("CORRUPT"),
        {"ssd": ("CORRUPT",)},
    ),
    Fault(
        "device cut short",
        "The file of the SSD tier is cut off where *ssd* begins; what is written later makes it longer again.",
        {},
        cut_device,
        None,
        NOT_DRAINED | ssd_is_read("IO_ERROR", "CORRUPT"),
        dict.fromkeys(TENSORS, ("IO_ERROR", "CORRUPT")),
        comes_back=False,
    ),
    Fault(
        "index cut short",
        "index.mdb is cut to nothing. What was persisted cannot be resumed; *ssd* is lost in that sense only.",
        {},
        cut_index,
        None,
        NOT_DRAINED | {name: Expected(("IO_ERROR",)) for name in ("persist", "persist what is on SSD", "resume")},
        dict.fromkeys(TENSORS, ("IO_ERROR",)),
        comes_back=False,
    ),
    Fault(
        "index full",
        "The file system of index.mdb is full. The daemon has allocated the index at its start.",
        {"small_index": True},
        fill_index,
        empty_index,
        NOT_DRAINED,
    ),
    Fault(
        "no descriptors",
        "The daemon may open no further file (RLIMIT_NOFILE). Windows that it has are handed over all the same; no "
        "further session can attach.",
        {},
        limit(resource.RLIMIT_NOFILE, open_files),
        unlimit(resource.RLIMIT_NOFILE),
        {"resume": Expected(("NO_MEMORY",)), "device drain": Expected(("not drained", "no answer"), LATE)},
    ),
)
