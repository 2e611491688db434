"""Tensors of a daemon whose block windows are in the kernel's huge pages. Skipped where too few are in the pool."""

from __future__ import annotations

import pathlib
import re

import launcher
import numpy
import pytest

import tierd

MIB = 1 << 20
PAGES = 32  # Of 2 MiB: the whole arena.


def free_huge_pages() -> int:
    fields = dict(re.findall(r"^(\w+):\s+(\d+)", pathlib.Path("/proc/meminfo").read_text(), re.MULTILINE))
    if fields.get("Hugepagesize") != "2048":
        return 0
    return int(fields.get("HugePages_Free", 0)) - int(fields.get("HugePages_Rsvd", 0))


@pytest.mark.skipif(free_huge_pages() < PAGES, reason=f"needs hugepages: {PAGES} free pages of 2 MiB (vm.nr_hugepages)")
def test_small_tensors_and_tails_do_not_take_huge_pages(socket_folder: pathlib.Path) -> None:
    settings = {"arena": {"maximum": f"{2 * PAGES}MiB", "huge_pages": "auto"}}
    small = [numpy.full(4096, number % 251, "u1") for number in range(1000)]
    large = [numpy.full(5 * MIB + 123, number, "u1") for number in range(4)]
    with launcher.start(socket_folder, settings=settings) as daemon:
        with tierd.connect(job="pages", socket=daemon.socket) as client:
            for number, content in enumerate(small):
                client.put(f"small {number}", content)
            held = launcher.metrics(daemon)
            assert held["tierd_hugetlb_windows"] == 0
            assert held["tierd_arena_bytes"] <= 1.02 * 4096 * len(small) + 2 * MIB
            for number, content in enumerate(large):
                client.put(f"large {number}", content)
            held = launcher.metrics(daemon)
            assert held["tierd_hugetlb_windows"] >= 8, "two blocks of each"
            assert held["tierd_slot_windows"] == held["tierd_windows"] - held["tierd_hugetlb_windows"]
            client.flush()
            client.drop(*(f"large {number}" for number in range(4)))
            for number, content in enumerate(large):
                assert (client.get(f"large {number}") == content).all()
                with client.lease(f"large {number}") as lease:  # One contiguous range, stitched of both kinds.
                    assert bytes(lease.memoryview()) == content.tobytes()
            for number, content in enumerate(small):
                assert (client.get(f"small {number}") == content).all()


@pytest.mark.skipif(free_huge_pages() < PAGES, reason=f"needs hugepages: {PAGES} free pages of 2 MiB (vm.nr_hugepages)")
def test_what_goes_to_another_job_stays_in_huge_pages(socket_folder: pathlib.Path) -> None:
    """The owner's windows are made in the pages that the borrower's leave, and not in small ones before these come."""
    settings = {"arena": {"maximum": f"{2 * PAGES}MiB", "huge_pages": "auto"}, "ssd": {"file_size": "256MiB"}}
    half = PAGES * MIB
    with launcher.start(socket_folder, settings=settings) as daemon:
        with tierd.connect(job="borrower", socket=daemon.socket) as borrower:
            content = numpy.ones(2 * MIB, "u1")
            for number in range(PAGES):
                borrower.put(number, content)
            borrower.flush()
            with tierd.connect(job="owner", socket=daemon.socket, guarantee=half - 4 * MIB) as owner:
                for _ in range(3):
                    with owner.create("whole", half - 4 * MIB):
                        pass
                    held = launcher.metrics(daemon)
                    assert held["tierd_hugetlb_windows"] == held["tierd_windows"]
                    owner.delete("whole")
                    for number in range(PAGES):
                        assert (borrower.get(number) == content).all()
