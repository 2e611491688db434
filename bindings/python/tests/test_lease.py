"""Leases: when they end, what keeps them, and what leaving a block says."""

from __future__ import annotations

import gc
import threading
import warnings
import weakref
from typing import Any

import numpy
import pytest
import torch
from fake_library import FakeLibrary

import tierd
from tierd import library
from tierd.states import Part


@pytest.fixture
def stored(client: tierd.Client) -> tierd.Client:
    client.put("a", numpy.arange(100, dtype="f4"))
    return client


def test_a_write_lease_changes_the_tensor_in_place(stored: tierd.Client, fake: FakeLibrary) -> None:
    with stored.lease("a", write=True) as lease:
        lease.numpy()[:] = 3
        assert len(fake.leases) == 1
    assert fake.leases == {}
    assert (stored.get("a") == 3).all()


def test_a_read_lease_gives_read_only_arrays(stored: tierd.Client) -> None:
    with stored.lease("a") as lease:
        with pytest.raises(ValueError, match="read-only"):
            lease.numpy()[0] = 1
        with pytest.raises(TypeError):
            lease.memoryview()[0] = 1


@pytest.mark.parametrize("kind", ["numpy", "torch", "memoryview"])
def test_leaving_with_a_live_view_raises_and_keeps_the_memory(
    stored: tierd.Client, fake: FakeLibrary, kind: str
) -> None:
    with pytest.raises(tierd.LiveViews, match="'a'"):
        with stored.lease("a") as lease:
            view = lease.torch(torch.float32) if kind == "torch" else getattr(lease, kind)()
    assert len(fake.leases) == 1
    assert bytes(memoryview(view.numpy() if kind == "torch" else view)) == numpy.arange(100, dtype="f4").tobytes()
    del view
    assert fake.leases == {}


@pytest.mark.parametrize("kind", ["numpy", "torch", "memoryview"])
def test_releasing_again_ends_nothing_under_a_live_view(stored: tierd.Client, fake: FakeLibrary, kind: str) -> None:
    with pytest.raises(tierd.LiveViews):
        with stored.lease("a", write=True) as lease:
            view = lease.torch(torch.float32) if kind == "torch" else getattr(lease, kind)()
            for _ in range(2):
                with pytest.raises(tierd.LiveViews):
                    lease.release()
    with pytest.raises(tierd.LiveViews):
        lease.release()
    assert len(fake.leases) == 1 and "kept by arrays" in repr(lease)
    del view
    assert fake.leases == {} and "ended" in repr(lease)
    lease.release()


def test_an_exception_in_the_block_is_not_hidden_by_live_views(stored: tierd.Client, fake: FakeLibrary) -> None:
    with pytest.warns(RuntimeWarning, match="still alive"), pytest.raises(KeyError):
        with stored.lease("a") as lease:
            view = lease.numpy()
            raise KeyError("the real one")
    del view
    gc.collect()
    assert fake.leases == {}


def test_a_view_of_a_view_keeps_the_lease(stored: tierd.Client, fake: FakeLibrary) -> None:
    lease = stored.lease("a")
    last = lease.torch(torch.float32).view(10, 10)[3:5].t().numpy()[1:]
    del lease
    gc.collect()
    assert len(fake.leases) == 1 and last[0, 0] == 31
    del last
    assert fake.leases == {}


def test_a_tensor_saved_for_backward_keeps_the_lease(stored: tierd.Client, fake: FakeLibrary) -> None:
    weight = torch.ones(100, requires_grad=True)
    with pytest.raises(tierd.LiveViews):
        with stored.lease("a") as lease:
            loss = (weight * lease.torch(torch.float32)).sum()
    assert len(fake.leases) == 1
    loss.backward()
    del loss
    assert fake.leases == {}
    assert torch.equal(weight.grad, torch.arange(100.0))


def test_the_lease_ends_in_the_finalizer_also_on_another_thread(stored: tierd.Client, fake: FakeLibrary) -> None:
    holder = [stored.lease("a").numpy()]
    thread = threading.Thread(target=holder.clear)
    thread.start()
    thread.join()
    assert fake.leases == {}


def test_a_cycle_is_collected_with_its_lease(stored: tierd.Client, fake: FakeLibrary) -> None:
    class Node:
        pass

    node = Node()
    node.view, node.self = stored.lease("a").numpy(), node  # type: ignore[attr-defined]
    gone = weakref.ref(node)
    del node
    assert len(fake.leases) == 1
    gc.collect()
    assert gone() is None and fake.leases == {}


def test_views_may_be_made_again_while_the_block_lasts(stored: tierd.Client) -> None:
    with stored.lease("a") as lease:
        assert lease.numpy().sum() == lease.torch(torch.float32).sum()
        assert lease.numpy("u1").size == 400
    with pytest.raises(tierd.Stale, match="ended"):
        lease.numpy()


def test_release_may_be_repeated(stored: tierd.Client) -> None:
    lease = stored.lease("a")
    lease.release()
    lease.release()
    assert "ended" in repr(lease)


@pytest.mark.parametrize("write", [False, True])
def test_a_lease_may_say_that_its_bytes_are_not_used_soon(stored: tierd.Client, fake: FakeLibrary, write: bool) -> None:
    with stored.lease("a", write=write) as lease:
        lease.numpy()
        lease.evict_first()
    assert fake.evicted_first == [(stored.tensor_id("a"), 0)] and fake.abandoned == 0
    stored.lease("a").release()
    assert len(fake.evicted_first) == 1


def test_what_was_written_and_is_not_used_soon_is_reported_where_it_is_lost(
    stored: tierd.Client, fake: FakeLibrary
) -> None:
    with pytest.raises(tierd.Disconnected, match="gone"):
        with stored.lease("a", write=True) as lease:
            lease.numpy()[:50] = 0
            lease.evict_first()
            fake.lost = True


def test_an_exception_abandons_what_was_half_written(stored: tierd.Client, fake: FakeLibrary) -> None:
    with pytest.raises(RuntimeError):
        with stored.lease("a", write=True) as lease:
            lease.numpy()[:50] = 0
            raise RuntimeError("half way")
    assert fake.abandoned == 1 and fake.leases == {}


def test_leaving_a_block_reports_that_what_was_written_is_lost(stored: tierd.Client, fake: FakeLibrary) -> None:
    with pytest.raises(tierd.Disconnected, match="gone"):
        with stored.lease("a", write=True) as lease:
            lease.numpy()[:] = 0
            fake.lost = True
    assert fake.leases == {}
    lease.release()  # Said once.


def test_neither_reading_nor_giving_up_fails_without_the_daemon(stored: tierd.Client, fake: FakeLibrary) -> None:
    fake.lost = True
    with stored.lease("a") as lease:
        assert lease.numpy()[1] == 1
    with pytest.raises(RuntimeError, match="the real one"):
        with stored.lease("a", write=True):
            raise RuntimeError("the real one")
    assert fake.leases == {}


def test_a_finalizer_says_nothing_of_a_daemon_that_is_gone(stored: tierd.Client, fake: FakeLibrary) -> None:
    view = stored.lease("a", write=True).numpy()
    fake.lost = True
    del view
    assert fake.leases == {}


def test_an_exception_while_creating_leaves_no_tensor(client: tierd.Client, fake: FakeLibrary) -> None:
    with pytest.raises(RuntimeError):
        with client.create("new", (4, 4), torch.float32):
            raise RuntimeError("before it was filled")
    assert fake.tensors == {}


def test_create_makes_a_tensor_that_is_filled_in_place(client: tierd.Client) -> None:
    with client.create("new", (4, 4), torch.float32) as lease:
        lease.torch().copy_(torch.eye(4))
    assert torch.equal(client.get("new"), torch.eye(4))


def test_ranges_are_flat_and_of_the_dtype_put(stored: tierd.Client) -> None:
    with stored.lease("a", write=True, offset=40, length=16) as lease:
        assert lease.numpy().tolist() == [10, 11, 12, 13]
        lease.numpy()[:] = -1
    assert stored.get("a")[9:15].tolist() == [9, -1, -1, -1, -1, 14]


def test_a_dtype_that_does_not_fit_is_refused(stored: tierd.Client) -> None:
    with stored.lease("a", length=10) as lease:
        with pytest.raises(tierd.Invalid, match="whole number"):
            lease.numpy()
        with pytest.raises(tierd.Invalid, match="state the torch dtype"):
            lease.torch()


def test_a_caller_that_would_wait_for_itself_is_told_at_once(stored: tierd.Client, fake: FakeLibrary) -> None:
    with stored.lease("a"):
        with pytest.raises(tierd.WouldDeadlock):
            stored.lease("a", write=True)
    assert fake.lease_flags[-1] & library.NO_WAIT_OWN


def test_without_leases_of_its_own_nobody_waits_for_itself(stored: tierd.Client, fake: FakeLibrary) -> None:
    (number,) = {tensor for tensor, _ in fake.tensors}
    libtiers = stored._session.grant("tier_acquire", [library.Range(number, 0, 0, 0)], library.WRITE, None)
    stored._session.grants.clear()  # As a cancelled copy leaves one for a moment.
    with pytest.raises(tierd.WouldDeadlock):
        stored.lease("a", timeout=0.01)
    assert not fake.lease_flags[-1] & library.NO_WAIT_OWN
    libtiers[0].drop()


def test_with_another_threads_lease_about_waiting_is_right(stored: tierd.Client, fake: FakeLibrary) -> None:
    held: list[tierd.Lease] = []
    thread = threading.Thread(target=lambda: held.append(stored.lease("a")))
    thread.start()
    thread.join()
    with pytest.raises(tierd.WouldDeadlock):
        stored.lease("a", write=True, timeout=0.01)
    assert not fake.lease_flags[-1] & library.NO_WAIT_OWN


def test_many_ranges_are_leased_in_one_request(stored: tierd.Client, fake: FakeLibrary) -> None:
    stored.put("b", numpy.arange(4, dtype="f4"))
    leases = stored.lease_many([Part("a", 0, 8), Part("b")], write=True)
    assert [lease.nbytes for lease in leases] == [8, 16] and fake.calls[-1] == "acquire"
    with pytest.raises(tierd.Invalid):
        stored.lease_many([])
    with pytest.raises(tierd.Invalid):
        stored.lease_many([Part("a"), Part("new", size=8)])
    for lease in leases:
        lease.release()
    assert fake.leases == {}


def test_a_write_lease_that_nobody_saw_is_given_back_untouched(
    stored: tierd.Client, fake: FakeLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scattered(*arguments: object) -> int:
        return tierd.NoMemory.code

    monkeypatch.setattr(fake, "tier_lease_data", scattered)
    with pytest.raises(tierd.NoMemory):
        stored.lease("a", write=True)
    gc.collect()
    assert fake.untouched == 1 and fake.leases == {}


def test_new_tensors_that_are_not_all_to_be_had_are_not_there(
    stored: tierd.Client, fake: FakeLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    locate = fake.tier_lease_data

    def scattered(lease: Any, *arguments: Any) -> int:
        return tierd.NoMemory.code if lease.value == max(fake.leases) else locate(lease, *arguments)

    monkeypatch.setattr(fake, "tier_lease_data", scattered)
    with pytest.raises(tierd.NoMemory):
        stored.lease_many([Part("b", size=8), Part("c", size=8)])
    gc.collect()
    assert len(fake.tensors) == 1 and fake.leases == {}


def test_no_warning_at_all_in_ordinary_use(stored: tierd.Client) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with stored.lease("a", write=True) as lease:
            lease.numpy()[:] += 1
        stored.close()
