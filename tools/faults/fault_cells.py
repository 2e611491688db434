"""One cell of the matrix: an operation during a fault, what it answered, and what is left after both."""

from __future__ import annotations

import dataclasses
import threading
import time
from typing import Any

from fault_node import JOB, Devices, Node, TierctlError, within
from fault_operations import timed
from fault_table import ASIDE_MAX, ENDS_LATEST, Fault, time_class

import tierd

BACK = 20.0  # Seconds within which all is as before.
OTHER_BYTES = "OTHER BYTES"


@dataclasses.dataclass
class Cell:
    """What was measured. `lost`: code by tensor. `aside`, `held`: bytes put aside, and bytes in use, after all was
    deleted. `wrong`: what is not as expected."""

    fault: str
    operation: str
    code: str = ""
    seconds: float = 0.0
    sentence: str = ""
    during: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    lost: dict[str, str] = dataclasses.field(default_factory=dict)
    aside: int = 0
    held: int = 0
    wrong: list[str] = dataclasses.field(default_factory=list)

    @property
    def when(self) -> str:
        return time_class(self.seconds)


def measure(fault: Fault, operation: str) -> Cell:
    cell = Cell(fault.name, operation)
    with Node(Devices(**fault.devices)) as node:  # type: ignore[arg-type]
        node.prepare()
        if operation == "resume":
            node.persist("ssd", "both", "ram")
            node.close_client()
        fault.begin(node)
        latest = threading.Timer(ENDS_LATEST, fault.end or (lambda _: None), [node])
        latest.start()
        cell.code, cell.seconds, cell.sentence = timed(node, operation)
        latest.cancel()
        if node.alive():
            cell.during = _states(node)
        if fault.end:
            fault.end(node)
        if node.alive():
            _look_after(cell, node, fault)
            status = node.daemon.stop()
            if status != 0:
                cell.wrong.append(f"the daemon ended with {status}: {node.daemon.log_tail()}")
        else:
            cell.wrong.append(f"the daemon ended: {node.daemon.log_tail()}")
    _compare(cell, fault)
    return cell


def _states(node: Node) -> tuple[str, ...]:
    try:
        return tuple(node.states())
    except TierctlError:
        return ("no answer",)  # The daemon takes no connection.


def _look_after(cell: Cell, node: Node, fault: Fault) -> None:
    patience = BACK if fault.end else 0.0
    if cell.operation == "resume":
        node.acknowledged = {}  # It has what was persisted, which is read below.
    else:
        _read_all(cell, node, node.acknowledged, patience)
    if cell.operation == "device drain":
        node.tierctl("device", "drain", "0", "--undo")
    if fault.comes_back and not (node.client and within(patience, lambda: _online(node))):
        _resume(cell, node, patience)
        within(patience, lambda: _online(node))
    node.close_client()
    if _resume(cell, node, patience):
        _read_all(cell, node, node.persisted, patience)
    node.close_client()
    cell.after = _states(node)
    try:
        node.tierctl("job", "remove", JOB, "--purge", "--force")
    except TierctlError as error:
        cell.sentence += f" | {error}"
    # At least a second: the daemon's figures may be so old.
    within(max(patience if fault.comes_back else 0, 1), lambda: node.bytes_of("live", "pending") == 0)
    cell.aside = node.bytes_of("doubtful")
    cell.held = node.free_before - node.bytes_of("free") - cell.aside if fault.comes_back else node.bytes_of("live")


def _resume(cell: Cell, node: Node, patience: float) -> bool:
    """Opens the job as it was persisted, if that can be read again."""
    end = time.monotonic() + patience
    while True:
        try:
            node.connect("resume")
            return True
        except tierd.Error as error:
            if time.monotonic() > end:
                cell.lost |= dict.fromkeys(node.persisted, error.name)
                return False
            time.sleep(0.1)


def _read_all(cell: Cell, node: Node, expected: dict[str, Any], patience: float) -> None:
    for key, array in expected.items():
        code = _read(node, key, array, patience)
        if code != "OK":
            cell.lost[key] = code


def _read(node: Node, key: str, expected: Any, patience: float) -> str:
    """OK, or the code with which the tensor is refused."""
    end = time.monotonic() + patience
    while True:
        try:
            return "OK" if node.holds(key, expected) else OTHER_BYTES
        except (tierd.Revoked, tierd.Disconnected) as error:
            return error.name
        except tierd.Error as error:
            if time.monotonic() > end:
                return error.name
            time.sleep(0.05)


def _online(node: Node) -> bool:
    """A device that was away is online again with the next write to it."""
    try:
        if all(state == "online" for state in node.states()):
            return True
        node.put("probe", replace="probe" in node.acknowledged)
        node.open_client.flush("probe")
    except (tierd.Error, TierctlError):
        pass
    return False


def _compare(cell: Cell, fault: Fault) -> None:
    expected = fault.of(cell.operation)
    if cell.code not in expected.codes:
        cell.wrong.append(f"answered {cell.code}, not {' or '.join(expected.codes)}: {cell.sentence}")
    if cell.seconds > expected.seconds_max:
        cell.wrong.append(f"answered after {cell.seconds:.2f} s, more than {expected.seconds_max:.0f} s")
    for key, code in cell.lost.items():
        if code not in fault.lost.get(key, ()):
            cell.wrong.append(f"tensor {key} answers {code} afterwards")
    if fault.comes_back and set(cell.after) != {"online"}:
        cell.wrong.append(f"devices are {', '.join(cell.after)} afterwards")
    if fault.comes_back and (cell.held or cell.aside > ASIDE_MAX * len(cell.after)):
        cell.wrong.append(f"{cell.held} bytes are not free afterwards, and {cell.aside} put aside")
