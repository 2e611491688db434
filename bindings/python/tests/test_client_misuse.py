"""What a client is given that it cannot use, and what is certain of a tensor whose put has not ended."""

from __future__ import annotations

import os
from typing import Any

import numpy
import pytest
import torch
from fake_library import FakeLibrary, Refusal

import tierd
from tierd import library


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda client: client.get("key", str), "no bytes"),
        (lambda client: client.get("key", "V0"), "no bytes"),
        (lambda client: client.get("key", "u1", 2.7), "shape is 2.7"),
        (lambda client: client.get("key", "u1", (2.7,)), "shape is"),
        (lambda client: client.get("key", "u1", "12"), "shape is '12'"),
        (lambda client: client.get("\ud800"), "half a character"),
        (lambda client: client.get(True), "not bool"),
        (lambda client: client.prefetch(b"key"), "not bytes"),
    ],
)
def test_what_cannot_be_used_is_invalid(client: tierd.Client, call: Any, why: str) -> None:
    client.put("key", bytes(12))
    with pytest.raises(tierd.Invalid, match=why):
        call(client)


@pytest.mark.parametrize("given", [{"named": "yes"}, {"limit": f"9{'0' * 400}.5GiB"}, {"limit": "1" * 5000}])
def test_what_cannot_be_connected_with_is_invalid(given: dict[str, Any]) -> None:
    with pytest.raises(tierd.Invalid):
        tierd.connect(socket="/nowhere", **given)


def test_integers_and_scalars_of_numpy_are_taken(client: tierd.Client) -> None:
    client.put(numpy.int64(3), numpy.float32(1.5))
    back = client.get(3)
    assert back == numpy.float32(1.5) and back.dtype == numpy.float32 and back.shape == ()
    assert client.get(3, "u1", numpy.int64(4)).shape == (4,)


def test_until_a_put_has_ended_nothing_is_certain_of_what_the_tensor_holds(
    client: tierd.Client, fake: FakeLibrary
) -> None:
    client.put("key", numpy.arange(3, dtype=numpy.int32))
    fake.put_refusal = Refusal(6, "full")
    pending = client.start_put("key", torch.ones(3))
    with pytest.raises(tierd.Invalid, match="has not ended"):
        client.get("key")
    with pytest.raises(tierd.NoSpace):
        pending.wait()
    assert client.get("key").dtype == numpy.int32, "it holds what it held"
    with pytest.raises(tierd.Stale, match="waited for before"):
        pending.wait()
    fake.put_refusal = None
    client.start_put("key", torch.ones(3)).wait()
    assert client.get("key").dtype == torch.float32
    client.start_put("other", torch.ones(3))  # Given up.
    with pytest.raises((tierd.Invalid, tierd.NotFound)):
        client.get("other")


def test_a_copy_that_goes_on_by_itself_is_waited_for(client: tierd.Client, fake: FakeLibrary) -> None:
    client.put("mine", bytes(8))
    with client.lease("mine"):
        assert client._session.blocks_itself()
        pending = client.start_put("other", torch.ones(3))
        assert not client._session.blocks_itself(), "its leases end without this thread"
        client.put("third", bytes(8))
        assert not fake.lease_flags[-1] & library.NO_WAIT_OWN
        pending.wait()
        assert client._session.blocks_itself()


def test_bytes_that_another_rank_may_have_replaced_have_the_length_that_they_have(
    client: tierd.Client, fake: FakeLibrary
) -> None:
    client.put("key", b"abc", shared=True)
    other = tierd.Client(type(client._session)(fake, 2))  # type: ignore[arg-type]
    other.put("key", b"abcdef", shared=True, replace=True)
    assert client.get("key", shared=True) == b"abcdef"


def test_a_child_process_is_refused_an_array_over_its_parents_lease(client: tierd.Client) -> None:
    client.put("key", bytes(8))
    with client.lease("key") as lease:
        child = os.fork()
        if child == 0:
            try:
                lease.numpy()
            except tierd.Disconnected:
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
