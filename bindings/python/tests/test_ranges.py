"""Ranges: however often less is asked for, a range is waited for once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fake_library import FakeLibrary

import tierd
from tierd import library, ranges


class Crowded:
    """Beside another job: a request for more than ``room`` bytes waits its whole time, by a clock that only this moves,
    and is then refused."""

    def __init__(self, client: tierd.Client, fake: FakeLibrary, room: int, refusal: type[tierd.Error]) -> None:
        self.now = 0.0
        self._fake, self._grant, self._copy = fake, client._session.grant, client._session.copy
        self._room, self._refusal = room, refusal

    def monotonic(self) -> float:
        return self.now

    def grant(self, name: str, parts: list[Any], flags: int, timeout_ms: int) -> Any:
        stored = self._fake.tensors.get((parts[0].tensor, 0))
        if (parts[0].length or stored and stored.size or 0) > self._room:
            self.now += timeout_ms / 1000
            raise self._refusal("full")
        return self._grant(name, parts, flags, timeout_ms)

    def copy(self, name: str, tensor: int, address: int, size: int, options: Any, owner: object) -> Any:
        """libtier asks for less by itself, down to a block, and waits for each length in turn."""
        if self._room < ranges.BLOCK:
            self.now += options.timeout_ms / 1000 * (2 if self._refusal is tierd.NoMemory else 1)
            raise self._refusal("full")
        return self._copy(name, tensor, address, size, options, owner)


@pytest.fixture
def crowd(
    client: tierd.Client, fake: FakeLibrary, monkeypatch: pytest.MonkeyPatch
) -> Callable[[int, type[tierd.Error]], Crowded]:
    def make(room: int, refusal: type[tierd.Error]) -> Crowded:
        crowded = Crowded(client, fake, room, refusal)
        monkeypatch.setattr(client._session, "grant", crowded.grant)
        monkeypatch.setattr(client._session, "copy", crowded.copy)
        monkeypatch.setattr(ranges, "time", crowded)
        return crowded

    return make


@pytest.mark.parametrize("refusal", [tierd.NoMemory, tierd.WouldDeadlock])
@pytest.mark.parametrize("mebibytes", [3, 9, 16])
def test_what_is_asked_for_in_ever_smaller_ranges_waits_until_one_deadline(
    client: tierd.Client, crowd: Callable[..., Crowded], refusal: type[tierd.Error], mebibytes: int
) -> None:
    content = bytes(mebibytes << 20)
    crowded = crowd(2 << 20, refusal)
    client.put("key", content, timeout=3)
    assert 0 < crowded.now < 3
    for timeout, longest in ((3, 3), (None, 60)):
        crowded.now = 0.0
        client.get_into("key", bytearray(content), timeout=timeout)
        assert 0 < crowded.now < longest


@pytest.mark.parametrize("refusal", [tierd.NoMemory, tierd.Timeout])
@pytest.mark.parametrize("timeout", [0, 3])
def test_what_cannot_be_had_at_all_is_refused_at_the_deadline(
    client: tierd.Client, crowd: Callable[..., Crowded], refusal: type[tierd.Error], timeout: float
) -> None:
    content = bytes(10 << 20)
    client.put("key", content)
    crowded = crowd(0, refusal)
    for work in (lambda: client.put("new", content, timeout=timeout), lambda: client.get("key", timeout=timeout)):
        crowded.now = 0.0
        with pytest.raises(refusal):
            work()
        assert crowded.now == pytest.approx(timeout, abs=0.02)


@pytest.mark.parametrize(
    ("refusal", "waits"), [(tierd.NoMemory, [1500]), (tierd.WouldDeadlock, [1500]), (tierd.Timeout, [1500, 1500])]
)
def test_a_copy_leaves_time_to_ask_for_less(
    client: tierd.Client,
    fake: FakeLibrary,
    crowd: Callable[..., Crowded],
    monkeypatch: pytest.MonkeyPatch,
    refusal: type[tierd.Error],
    waits: list[int],
) -> None:
    content = bytes(ranges.RANGE_BYTES + 1)
    client.put("key", content)
    crowded = crowd(1 << 40, refusal)

    def copy(name: str, tensor: int, address: int, size: int, options: Any, owner: object) -> None:
        asked.append(options.timeout_ms)
        crowded.now += options.timeout_ms / 1000
        raise refusal("full")

    asked: list[int] = []
    monkeypatch.setattr(client._session, "copy", copy)
    with pytest.raises(refusal):
        client.get_into("key", bytearray(content), timeout=3)
    assert asked == waits and crowded.now <= 3


def test_bytes_that_lie_scattered_are_copied_in_their_order(client: tierd.Client, fake: FakeLibrary) -> None:
    content = bytes(range(251)) * 400  # In more parts than are asked for at first.
    client.put("key", content)
    back = bytearray(len(content))
    client.get_into("key", back)
    assert back == content
    (grant,) = client._session.grant("tier_acquire", [library.Range(client.tensor_id("key"))], 0, 0)
    assert len(grant.segments()) == 33
    assert all(flags & library.SCATTERED_OK for flags in fake.lease_flags[:2])
