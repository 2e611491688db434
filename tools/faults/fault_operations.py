"""What a client or an operator asks for while something fails. Each raises the exception of the refusal."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from fault_node import ARENA, TENSOR, Node, TierctlError, within
from fault_table import DEADLINE

import tierd


class NotDrained(Exception):
    """Bytes are still on the device when the deadline has passed."""


class OtherBytes(Exception):
    """What was read is not what was acknowledged."""


def create(node: Node) -> None:
    node.put("new")


def overflow(node: Node) -> None:
    """As much as RAM holds, beside what is there: it cannot be stored without writes to SSD."""
    for index in range(ARENA // TENSOR):
        node.put(f"more{index}")


def replace(node: Node) -> None:
    node.put("both", replace=True)


def read(key: str) -> Callable[[Node], None]:
    def run(node: Node) -> None:
        if not node.holds(key, node.acknowledged[key]):
            raise OtherBytes

    return run


def write(key: str) -> Callable[[Node], None]:
    def run(node: Node) -> None:
        with node.open_client.lease(key, write=True, timeout=DEADLINE) as lease:
            array = lease.numpy()
            array[:] = node.fresh()
            node.acknowledged[key] = array.copy()
            del array

    return run


def prefetch(node: Node) -> None:
    node.open_client.prefetch(["ssd"])


def flush(node: Node) -> None:
    node.open_client.flush("ram")


def persist(node: Node) -> None:
    node.persist("ssd", "both", "ram")


def persist_ssd(node: Node) -> None:
    node.persist("ssd")


def resume(node: Node) -> None:
    node.connect("resume")


def drain(node: Node) -> None:
    """Of device 0; ends when nothing is left on it. The job persists again: what a manifest names does not move."""
    end = time.monotonic() + DEADLINE
    node.tierctl("device", "drain", "0")
    with contextlib.suppress(tierd.Error):
        node.persist("ssd")
    left = end - time.monotonic()
    if left < 0 or not within(left, lambda: int(node.devices()[0]["live_bytes"]) == 0):
        raise NotDrained


def free(node: Node) -> None:
    kept = node.acknowledged.pop("ssd")
    try:
        node.open_client.delete("ssd")
    except BaseException:
        node.acknowledged["ssd"] = kept
        raise


OPERATIONS: dict[str, Callable[[Node], None]] = {
    "create and seal": create,
    "swap_out beyond RAM": overflow,
    "swap_out over a tensor": replace,
    "swap_in from RAM": read("ram"),
    "swap_in from SSD": read("ssd"),
    "write lease in RAM": write("ram"),
    "write lease on SSD": write("ssd"),
    "prefetch": prefetch,
    "flush": flush,
    "persist": persist,
    "persist what is on SSD": persist_ssd,
    "resume": resume,
    "device drain": drain,
    "free": free,
}


def timed(node: Node, operation: str) -> tuple[str, float, str]:
    """The code of the answer, after how many seconds it came, and its sentence."""
    code, sentence = "OK", ""
    begin = time.monotonic()
    try:
        OPERATIONS[operation](node)
    except tierd.Error as error:
        code, sentence = error.name, str(error)
    except NotDrained:
        code = "not drained"
    except TierctlError as error:
        code, sentence = "no answer", str(error)
    except OtherBytes:
        code = "OTHER BYTES"
    return code, time.monotonic() - begin, sentence
