"""A tierd of one process, behind the functions of libtier that the Python package calls: for tests of the package's own
rules (lifetimes, counting, errors, slicing) that need no daemon.

It keeps whole tensors in anonymous memory. Its invariants: no write lease overlaps another lease on the same bytes, a
tensor is visible when all of its bytes have been sealed once, and memory under a lease is there until the lease ends,
whatever happened to tensor and client. It never waits: what would have to has reached its deadline. The answer is then
the daemon's, WOULD_DEADLOCK, as every lease is of this one client; with TIER_NO_WAIT it is TIMEOUT.
"""

from __future__ import annotations

import ctypes
import itertools
from typing import Any

from tierd import library

INVALID, NOT_FOUND, ALREADY_EXISTS, NO_MEMORY, NO_SPACE = 1, 2, 3, 5, 6
TORN, DISCONNECTED, WOULD_DEADLOCK, TIMEOUT = 9, 11, 13, 14


class Refusal(Exception):
    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


class Tensor:
    def __init__(self, size: int) -> None:
        self.size = size
        # Aligned as windows are, so that kernels see the alignment they will see with a daemon.
        self.memory = ctypes.create_string_buffer(size + 4096)
        self.address = (ctypes.addressof(self.memory) + 4095) // 4096 * 4096
        ctypes.memset(self.address, 0xA5, size)
        self.sealed_ranges: list[tuple[int, int]] = []
        self.torn = False  # A write lease on it was abandoned: a daemon may have no older content to revert to.
        self.written_since: list[tuple[int, int]] = []

    @property
    def sealed(self) -> bool:
        return self._is_whole(self.sealed_ranges)

    def seal(self, begin: int, end: int) -> None:
        self.sealed_ranges.append((begin, end))
        self.written_since.append((begin, end))
        self.torn = self.torn and not self._is_whole(self.written_since)

    def tear(self) -> None:
        self.torn = True
        self.written_since.clear()

    def _is_whole(self, ranges: list[tuple[int, int]]) -> bool:
        reached = 0
        for begin, end in sorted(ranges):
            if begin > reached:
                return False
            reached = max(reached, end)
        return reached >= self.size


class LeaseRecord:
    def __init__(self, key: tuple[int, int], tensor: Tensor, begin: int, end: int, write: bool) -> None:
        self.key, self.tensor, self.begin, self.end, self.write = key, tensor, begin, end, write


class FakeLibrary:
    """Only what tests look at is public; set ``lease_bytes_max`` to make larger requests NO_MEMORY."""

    def __init__(self) -> None:
        self.tensors: dict[tuple[int, int], Tensor] = {}
        self.leases: dict[int, LeaseRecord] = {}
        self.names: dict[bytes, int] = {}
        self.closed: list[int] = []
        self.epoch = 0  # Of the daemon.
        self.calls: list[str] = []
        self.lease_flags: list[int] = []  # Of each acquire and create.
        self.prefetched: list[tuple[int, int]] = []  # Tensor and length.
        self.copy_waits: list[tuple[int, int]] = []  # Milliseconds, and NO_WAIT or 0.
        self.lease_bytes_max = 1 << 40
        self.capacity = 1 << 40  # Bytes of all tensors: a new one beyond them is NO_SPACE.
        self.ram_bytes: dict[int, int] = {}  # Of tensors that do not lie in RAM as a whole.
        self.abandoned = 0  # Write leases given up …
        self.evicted_first: list[tuple[int, int]] = []  # Ranges that were released so: tensor and begin.
        self.untouched = 0  # … under these of which nothing was written.
        self.lost = False  # The daemon died: releases say so.
        self.persisted: dict[tuple[int, int], bytes] = {}  # What the last persist of the whole job has kept.
        self.put_refusal: Refusal | None = None  # What each swap_out is refused with.
        self._copied = (0, 0.0)
        self.operations: dict[int, Any] = {}  # Started, not waited for: what tier_wait is to do and answer.
        self._numbers = itertools.count(1)
        self._error = b""

    @staticmethod
    def tensor_of(content: bytes) -> Tensor:
        """A whole tensor with this content."""
        tensor = Tensor(len(content))
        ctypes.memmove(tensor.address, content, len(content))
        tensor.sealed_ranges.append((0, len(content)))
        return tensor

    # ---- Errors ----

    def _guard(self, name: str, work: Any) -> int:
        self.calls.append(name)
        try:
            work()
        except Refusal as refusal:
            self._error = str(refusal).encode()
            return refusal.code
        return 0

    def tier_last_error(self) -> bytes:
        return self._error

    # ---- Session ----

    def tier_connect(self, options: Any, handle: Any) -> int:
        handle._obj.value = next(self._numbers)
        return 0

    def tier_close(self, handle: Any) -> None:
        self.closed.append(handle.value)

    def tier_session(self, handle: int, view: Any) -> int:
        fields = view._obj
        fields.job, fields.token, fields.socket, fields.connected = b"job", b"", b"/fake", 1
        fields.request_timeout_ms, fields.epoch = 60_000, self.epoch
        return 0

    def tier_intern(self, handle: int, key: bytes, length: int, number: Any) -> int:
        number._obj.value = self.names.setdefault(key, len(self.names) + 1)
        return 0

    def tier_stats(self, handle: int, view: Any) -> int:
        view._obj.leases_open = len(self.leases)
        return 0

    def tier_step(self, handle: int, step: int) -> int:
        return self._guard("step", lambda: None)

    # ---- Leases ----

    def tier_create_batch(self, handle: int, ranges: Any, count: int, flags: int, timeout: int, leases: Any) -> int:
        return self._guard("create", lambda: self._create(ranges, flags, leases))

    def _create(self, ranges: Any, flags: int, leases: Any) -> None:
        for item in ranges:
            key = (item.tensor, flags & library.SHARED)
            if key in self.tensors:
                raise Refusal(ALREADY_EXISTS, f"tensor {item.tensor:#x} exists")
            if item.size == 0:
                raise Refusal(INVALID, "size 0")
            if item.size + sum(tensor.size for tensor in self.tensors.values()) > self.capacity:
                raise Refusal(NO_SPACE, f"no room for {item.size} bytes")
        for item in ranges:
            self.tensors[item.tensor, flags & library.SHARED] = Tensor(item.size)
        try:
            self._grant(ranges, flags | library.WRITE, leases)
        except Refusal:
            for item in ranges:
                del self.tensors[item.tensor, flags & library.SHARED]
            raise

    def tier_acquire_batch(self, handle: int, ranges: Any, count: int, flags: int, timeout: int, leases: Any) -> int:
        return self._guard("acquire", lambda: self._grant(ranges, flags, leases))

    def _grant(self, ranges: Any, flags: int, leases: Any) -> None:
        self.lease_flags.append(flags)
        write = bool(flags & library.WRITE)
        records = []
        for item in ranges:
            key = (item.tensor, flags & library.SHARED)
            tensor = self.tensors.get(key)
            if tensor is None or not (write or tensor.sealed):
                raise Refusal(NOT_FOUND, f"no tensor {item.tensor:#x}")
            if tensor.torn and not write:
                raise Refusal(TORN, f"a writer of tensor {item.tensor:#x} ended in the middle")
            length = item.length or tensor.size - item.offset
            if item.offset + length > tensor.size:
                raise Refusal(INVALID, "range beyond the end")
            records.append(LeaseRecord(key, tensor, item.offset, item.offset + length, write))
        if sum(record.end - record.begin for record in records) > self.lease_bytes_max:
            raise Refusal(NO_MEMORY, f"at most {self.lease_bytes_max} bytes")
        for record in records:
            for other in self.leases.values():
                overlap = other.tensor is record.tensor and other.begin < record.end and record.begin < other.end
                if overlap and (other.write or write):
                    raise Refusal(TIMEOUT if flags & library.NO_WAIT else WOULD_DEADLOCK, "leased")
        for index, record in enumerate(records):
            number = next(self._numbers)
            self.leases[number] = record
            leases[index] = number

    def tier_lease_data(self, lease: Any, address: Any, length: Any) -> int:
        record = self.leases[lease.value]
        address._obj.value = record.tensor.address + record.begin
        length._obj.value = record.end - record.begin
        return 0

    def tier_lease_segments(self, lease: Any, segments: Any, most: int, count: Any) -> int:
        """Blocks of three quarters of a page, so that most leases have several."""
        record, block = self.leases[lease.value], 3072
        begins = range(record.begin, record.end, block)
        count._obj.value = len(begins)
        for index, begin in enumerate(begins[:most]):
            length = min(block, record.end - begin)
            segments[index] = library.Segment(record.tensor.address + begin, length, begin)
        return 0

    def tier_release(self, lease: Any, flags: int) -> int:
        record = self.leases.pop(lease.value)
        if flags & library.EVICT_FIRST:
            self.evicted_first.append((record.key[0], record.begin))
        if flags & (library.ABANDON | library.UNTOUCHED):
            self.abandoned += 1
            self.untouched += bool(flags & library.UNTOUCHED)
            if not record.tensor.sealed:
                self.tensors.pop(record.key, None)
            if not flags & library.UNTOUCHED:
                record.tensor.tear()
        elif record.write:
            record.tensor.seal(record.begin, record.end)
        if self.lost:
            self._error = f"the writer of tensor {record.key[0]:#x} is gone".encode()
            return DISCONNECTED
        return 0

    # ---- Tensors ----

    def tier_free(self, handle: int, tensor: int, flags: int) -> int:
        return self.tier_free_batch(handle, [tensor], 1, flags)

    def tier_free_batch(self, handle: int, tensors: Any, count: int, flags: int) -> int:
        shared = flags & library.SHARED

        def work() -> None:
            for tensor in tensors:  # All or none.
                if any(record.key == (tensor, shared) for record in self.leases.values()):
                    raise Refusal(WOULD_DEADLOCK, f"tensor {tensor:#x} is leased")
                if (tensor, shared) not in self.tensors:
                    raise Refusal(NOT_FOUND, f"no tensor {tensor:#x}")
            for tensor in tensors:
                self.tensors.pop((tensor, shared), None)

        return self._guard("free", work)

    def tier_persist(self, handle: int, tensors: Any, count: int, flags: int) -> int:
        def work() -> None:
            contents = {key: ctypes.string_at(each.address, each.size) for key, each in self.tensors.items()}
            assert tensors is None and all(each.sealed and not each.torn for each in self.tensors.values())
            self.persisted = contents

        return self._guard("persist", work)

    def tier_prefetch(self, handle: int, ranges: Any, count: int, flags: int) -> int:
        self.prefetched += [(item.tensor, item.length) for item in ranges]
        return 0

    def tier_tensor(self, handle: int, tensor: int, flags: int, view: Any) -> int:
        def work() -> None:
            found = self.tensors.get((tensor, flags))
            if found is None:
                raise Refusal(NOT_FOUND, f"no tensor {tensor:#x}")
            view._obj.size, view._obj.sealed = found.size, found.sealed
            view._obj.ram_bytes = self.ram_bytes.get(tensor, found.size)

        return self._guard("tensor", work)

    # ---- Copies ----

    def tier_swap_out(self, handle: int, tensor: int, pointer: int, size: int, options: Any, operation: Any) -> int:
        def work() -> None:
            key = (tensor, options._obj.flags & library.SHARED)
            if any(record.key == key for record in self.leases.values()):
                raise Refusal(WOULD_DEADLOCK, f"tensor {tensor:#x} is leased")
            if self.put_refusal is not None:
                raise self.put_refusal
            self.tensors[key] = Tensor(size)
            self.tensors[key].sealed_ranges.append((0, size))
            ctypes.memmove(self.tensors[key].address, pointer, size)
            if options._obj.check_finite:
                self._copied = _figures(options._obj.memory_type, pointer, size)

        self.copy_waits.append((options._obj.timeout_ms, options._obj.flags & library.NO_WAIT))
        return self._guard("swap_out", lambda: self.start(operation, work))

    def tier_swap_in(self, handle: int, tensor: int, pointer: int, size: int, options: Any, operation: Any) -> int:
        def work() -> None:
            key = (tensor, options._obj.flags & library.SHARED)
            found = self.tensors.get(key)
            written = any(record.key == key and record.write for record in self.leases.values())
            if written and options._obj.flags & library.NO_WAIT_OWN:
                raise Refusal(WOULD_DEADLOCK, "leased")  # Else it waits for us until its deadline.
            if found is None or not found.sealed:
                raise Refusal(NOT_FOUND, f"no tensor {tensor:#x}")
            if found.torn:
                raise Refusal(TORN, f"a writer of tensor {tensor:#x} ended in the middle")
            if found.size != size:
                raise Refusal(INVALID, f"the tensor holds {found.size} bytes, not {size}")
            ctypes.memmove(pointer, found.address, size)

        self.copy_waits.append((options._obj.timeout_ms, options._obj.flags & library.NO_WAIT))
        return self._guard("swap_in", lambda: self.start(operation, work))

    # ---- Operations ----

    def start(self, operation: Any, work: Any) -> None:
        """``work`` is done by tier_wait, so that nothing comes of an operation nobody waits for."""
        number = next(self._numbers)
        self.operations[number] = work
        operation._obj.value = number

    def tier_free_start(self, handle: int, tensors: Any, count: int, flags: int, operation: Any) -> int:
        code = self.tier_free_batch(handle, tensors, count, flags)

        def answer() -> None:
            if code:
                raise Refusal(code, self._error.decode())

        return self._guard("start", lambda: self.start(operation, answer))

    def tier_create_start(
        self, handle: int, ranges: Any, count: int, flags: int, timeout: int, leases: Any, operation: Any
    ) -> int:
        return self._guard("start", lambda: self.start(operation, lambda: self._create(ranges, flags, leases)))

    def tier_acquire_start(
        self, handle: int, ranges: Any, count: int, flags: int, timeout: int, leases: Any, operation: Any
    ) -> int:
        return self._guard("start", lambda: self.start(operation, lambda: self._grant(ranges, flags, leases)))

    def tier_poll(self, operation: Any, timeout: int) -> int:
        return 1

    def tier_cancel(self, operation: Any) -> None:
        def cancelled() -> None:
            raise Refusal(TIMEOUT, "it was cancelled")

        assert operation.value in self.operations, "cancelled after its handle was freed"
        self.operations[operation.value] = cancelled

    def tier_wait(self, operation: Any, timeout: int, outcome: Any) -> int:
        assert operation.value in self.operations, "waited for after its handle was freed"
        code = self._guard("wait", self.operations.pop(operation.value))
        outcome._obj.non_finite_count, outcome._obj.sum_of_squares = self._copied
        return code


def _figures(element: int, pointer: int, size: int) -> tuple[int, float]:
    """How many elements are not finite, and the sum of the squares, as libtier's copy finds them."""
    import torch

    dtype = [torch.uint8, torch.float32, torch.bfloat16, torch.float16][element]
    values = torch.frombuffer((ctypes.c_ubyte * size).from_address(pointer), dtype=dtype).double()
    return int((~values.isfinite()).sum()), float(values.square().sum())
