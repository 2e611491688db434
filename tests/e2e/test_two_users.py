"""Compaction, hand-over and lending between jobs of two users of the system: each keeps its bytes, gets only zeroed
memory, and maps no window of the other."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator, Mapping

import launcher
import other_user
import pytest

A, B = 65533, 65532  # Users without an account.
GIVE_UP_S = 60.0

# What both programs use.
TENSORS = """
MIB, PAGE = 1 << 20, 4096

def scatter(client, count):
    # One page in each block, and nothing beside it.
    for number in range(count):
        client.put(f"page {number}", numpy.full(PAGE, number + 1, "u1"))
        client.put(f"rest {number}", numpy.full(2 * MIB - PAGE, 251, "u1"))
    for number in range(count):
        client.delete(f"rest {number}")

def check_pages(client, count):
    for number in range(count):
        assert (client.get(f"page {number}") == number + 1).all(), number

def fill(client, count, offset):
    for number in range(count):
        client.put(number, numpy.full(2 * MIB, number + offset, "u1"))
    client.flush()

def check(client, count, offset):
    back = numpy.empty(2 * MIB, "u1")
    for number in range(count):
        client.get_into(number, back)
        assert (back == number + offset).all(), number
"""


@contextlib.contextmanager
def node(folder: pathlib.Path, settings: Mapping[str, object]) -> Iterator[launcher.Running]:
    launcher.need_user(A)
    launcher.need_user(B)
    with launcher.start(folder, arena="64MiB", settings=settings) as daemon:
        folder.chmod(0o755)
        yield daemon


@contextlib.contextmanager
def program(daemon: launcher.Running, uid: int, options: str, source: str) -> Iterator[other_user.Child]:
    """`client` is connected with these options."""
    connected = f"client = tierd.connect(socket={daemon.socket!r}, {options})\n"
    with other_user.running(uid, TENSORS + connected + source) as child:
        yield child


def counted(daemon: launcher.Running, name: str) -> float:
    """A metric, or the sum of those that have further labels."""
    return sum(n for full, n in launcher.metrics(daemon).items() if full == name or full.startswith(name + "{"))


@pytest.mark.parametrize("ssd", [{"devices": ["none"]}, {"file_size": "1GiB"}], ids=["ram alone", "with an SSD file"])
def test_a_guarantee_comes_back_from_another_users_job(socket_folder: pathlib.Path, ssd: dict[str, object]) -> None:
    """The other job has a page in each of its windows: it keeps every byte, and none of them shows in the new ones."""
    holds = "scatter(client, 28); say('full'); wait(); check_pages(client, 28); say('whole'); wait()"
    takes = (
        "leases = [client.create(f'large {number}', 2 * MIB) for number in range(14)]\n"
        "say('bytes of the other' if any(lease.numpy('u1').any() for lease in leases) else 'zero')\n"
        "wait()\n"
        "for number, lease in enumerate(leases):\n"
        "    lease.memoryview()[:] = bytes([number + 100]) * (2 * MIB)\n"
        "    lease.release()\n"
        "for number in range(14):\n"
        "    assert bytes(client.get(f'large {number}')) == bytes([number + 100]) * (2 * MIB)\n"
        "say('whole'); wait()"
    )
    with node(socket_folder, {"ssd": ssd}) as daemon, program(daemon, A, "job='sparse'", holds) as borrower:
        assert borrower.line() == "full"
        with program(daemon, B, "job='owner', guarantee='28MiB'", takes) as owner:
            assert owner.line() == "zero"
            assert counted(daemon, 'tierd_hand_over_windows_total{how="moved"}') > 0
            assert owner.windows() and borrower.windows() and not owner.windows() & borrower.windows()
            for child in (borrower, owner):
                child.go_on()
                assert child.line() == "whole"
            for child in (borrower, owner):
                child.end()


def test_idle_memory_is_lent_to_another_user_and_comes_back(socket_folder: pathlib.Path) -> None:
    idle, busy = 14, 22  # Tensors: within the promise of 30 of 64 MiB, and more than that.
    source = (
        "fill(client, {count}, {offset}); say('full')\n"
        "while True: wait(); check(client, {count}, {offset}); say('read')"
    )
    settings = {"jobs": {"idle_after": "1s"}, "ssd": {"file_size": "1GiB"}}

    def stays_in_ram(child: other_user.Child) -> bool:
        """It reads all of its tensors, and none of them came from SSD."""
        before = counted(daemon, "tierd_device_read_bytes_total")
        child.go_on()
        assert child.line() == "read"
        return counted(daemon, "tierd_device_read_bytes_total") == before

    with (
        node(socket_folder, settings) as daemon,
        program(daemon, A, "job='notebook'", source.format(count=idle, offset=1)) as notebook,
        program(daemon, B, "job='tune'", source.format(count=busy, offset=101)) as tune,
    ):
        assert notebook.line() == tune.line() == "full"
        launcher.wait_for("all that it has stays", lambda: stays_in_ram(tune), GIVE_UP_S)
        assert counted(daemon, "tierd_lent_bytes_total") >= (idle + busy - 32) * (2 << 20)
        launcher.wait_for("its promise is back", lambda: stays_in_ram(notebook), GIVE_UP_S)
        assert not notebook.windows() & tune.windows()
        tune.go_on()
        assert tune.line() == "read"


def test_scattered_pages_of_two_users_become_blocks_of_each(socket_folder: pathlib.Path) -> None:
    """Both have too few whole blocks at the same time; no piece moves into the other's windows."""
    source = (
        "scatter(client, 14); say('scattered'); wait()\n"
        "for number in range(13):\n"
        "    client.put(f'large {number}', numpy.full(2 * MIB, number + 1, 'u1'))\n"
        "say('large'); wait()\n"
        "check_pages(client, 14)\n"
        "for number in range(13):\n"
        "    assert (client.get(f'large {number}') == number + 1).all()\n"
        "say('whole'); wait()"
    )
    with (
        node(socket_folder, {"ssd": {"devices": ["none"]}}) as daemon,
        program(daemon, A, "job='scattered', limit='28MiB'", source) as first,
        program(daemon, B, "job='scattered', limit='28MiB'", source) as second,
    ):
        both = (first, second)
        for done in ("scattered", "large", "whole"):
            for child in both:
                assert child.line() == done
            assert not first.windows() & second.windows()
            if done != "whole":
                for child in both:
                    child.go_on()
        assert counted(daemon, 'tierd_compaction_moves_total{cause="block"}') >= 2 * 13 // 2
        for child in both:
            child.end()
