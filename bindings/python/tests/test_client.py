"""Client: what goes in comes out, keys, errors, and who may still use what after close and fork."""

from __future__ import annotations

import array
import copy
import gc
import os
import pickle
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from fake_library import FakeLibrary

import tierd
from tierd import client as client_module
from tierd import errors, layout, library
from tierd.ranges import RANGE_BYTES
from tierd.session import SLICE_MS


class Pair(torch.Tensor):
    """A tensor made of two others, as DTensor is of its shards: it has no memory."""

    def __new__(cls, first: torch.Tensor, second: torch.Tensor) -> Pair:
        return torch.Tensor._make_wrapper_subclass(cls, first.shape, dtype=first.dtype)

    def __init__(self, first: torch.Tensor, second: torch.Tensor) -> None:
        self.pair = first, second

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        halves = [function(*[a.pair[half] if isinstance(a, Pair) else a for a in arguments]) for half in range(2)]
        return Pair(*halves) if isinstance(halves[0], torch.Tensor) else halves[0]


@pytest.mark.parametrize(
    "value",
    [
        numpy.arange(12.0).reshape(3, 4),
        numpy.arange(12).reshape(3, 4)[:, ::2],
        numpy.asfortranarray(numpy.arange(12).reshape(3, 4)),
        numpy.array(7.5),
        numpy.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
    ],
)
def test_get_gives_back_a_numpy_array_as_it_was_put(client: tierd.Client, value: numpy.ndarray) -> None:
    client.put("key", value)
    got = client.get("key")
    assert got.dtype == value.dtype and got.shape == value.shape
    assert (got == value).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8, torch.bool, torch.complex64])
def test_get_gives_back_a_torch_tensor_as_it_was_put(client: tierd.Client, dtype: torch.dtype) -> None:
    value = torch.arange(12).reshape(3, 4).to(dtype)
    client.put(7, value.t())
    got = client.get(7)
    assert got.dtype == dtype and torch.equal(got, value.t())


def test_a_conjugated_view_is_stored_as_its_values(client: tierd.Client) -> None:
    value = torch.tensor([1 + 2j]).conj()
    client.put("c", value)
    assert torch.equal(client.get("c"), value.resolve_conj())


@pytest.mark.parametrize("value", [b"bytes", bytearray(b"array"), memoryview(b"view"), array.array("d", [1.0, 2.0])])
def test_anything_with_a_buffer_can_be_put(client: tierd.Client, value: object) -> None:
    client.put("key", value)
    assert client.get("key") == bytes(memoryview(value))  # type: ignore[arg-type]


def test_a_tensor_of_another_rank_needs_dtype_and_shape_stated(client: tierd.Client, fake: FakeLibrary) -> None:
    client.put("key", numpy.arange(6, dtype="i4"))
    other = tierd.Client(client_module.Session(fake, 2))  # type: ignore[arg-type]
    assert other.get("key") == numpy.arange(6, dtype="i4").tobytes()
    assert (other.get("key", dtype="i4", shape=(2, 3)) == numpy.arange(6).reshape(2, 3)).all()
    assert torch.equal(other.get("key", dtype=torch.int32), torch.arange(6, dtype=torch.int32))
    with pytest.raises(tierd.Invalid, match="20 bytes, the tensor holds 24"):
        other.get("key", dtype="i4", shape=5)


def test_get_into_fills_arrays_of_every_kind(client: tierd.Client) -> None:
    client.put("key", numpy.arange(8, dtype="f4"))
    for out in (numpy.zeros(8, "f4"), torch.zeros(8), bytearray(32)):
        client.get_into("key", out)
        view = memoryview(out.numpy() if isinstance(out, torch.Tensor) else out)
        assert bytes(view) == client.get("key").tobytes()


def test_get_into_is_a_change_in_place_to_autograd(client: tierd.Client) -> None:
    client.put("a", torch.full((4,), 5.0))
    weight, batch = torch.ones(4, requires_grad=True), torch.ones(4)
    product = (weight * batch).sum()
    client.get_into("a", batch)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()
    with torch.inference_mode():
        uncounted = torch.ones(4)
    client.get_into("a", uncounted)
    assert torch.equal(batch, uncounted)


@pytest.mark.parametrize(
    ("stored", "out"),
    [
        (numpy.ones(4, "f4"), numpy.zeros(4, "i4")),
        (numpy.ones(4, "f4"), torch.zeros(8, dtype=torch.bfloat16)),
        (torch.ones(4), torch.zeros(4, dtype=torch.int32)),
        (torch.ones(4), numpy.zeros(2, "f8")),
        (numpy.ones(4, "f4"), numpy.zeros(4, ">f4")),
    ],
)
def test_get_into_refuses_an_array_of_another_dtype(client: tierd.Client, stored: Any, out: Any) -> None:
    client.put("key", stored)
    with pytest.raises(tierd.Invalid, match="'key' was put as float32, and the array to fill is of .*view of uint8"):
        client.get_into("key", out)
    assert not out.any(), "nothing was copied"
    uint8 = torch.uint8 if isinstance(out, torch.Tensor) else numpy.uint8
    client.get_into("key", out.view(uint8))  # It is meant …
    assert out.any() and client.get("key", out.dtype).dtype == out.dtype  # … as where it is stated.
    other = tierd.Client(client_module.Session(client._session.library, 2))  # type: ignore[arg-type]
    other.get_into("key", out)  # It has no dtype to go by.


def test_what_a_shared_tensor_was_put_as_is_said(client: tierd.Client) -> None:
    for values in (numpy.ones((2, 3), "f4"), torch.ones(2, 3)):
        client.put("key", values, shared=True, replace=True)
        with pytest.raises(tierd.Invalid, match=r"state dtype and shape \(this client put float32 of shape \(2, 3\)\)"):
            client.get("key", shared=True)
    client.get_into("key", numpy.zeros((2, 3), "i4"), shared=True)  # Another rank may have put that.


@pytest.mark.parametrize(
    "out", [numpy.zeros((4, 4), "f4")[:, :2], torch.zeros(4, 4).t()[:2], b"fixed", numpy.zeros(3, "f4")]
)
def test_get_into_refuses_what_cannot_be_filled_in_place(client: tierd.Client, out: object) -> None:
    client.put("key", numpy.arange(8, dtype="f4"))
    with pytest.raises(tierd.Invalid):
        client.get_into("key", out)


def test_a_read_only_array_is_not_filled(client: tierd.Client) -> None:
    client.put("key", numpy.arange(8, dtype="f4"))
    out = numpy.zeros(8, "f4")
    out.flags.writeable = False
    with pytest.raises(tierd.Invalid, match="read-only"):
        client.get_into("key", out)


def test_a_taken_key_is_refused_unless_replaced(client: tierd.Client) -> None:
    client.put("key", b"one")
    with pytest.raises(tierd.AlreadyExists, match="replace=True"):
        client.put("key", b"two")
    assert client.get("key") == b"one"
    client.put("key", b"three", replace=True)
    assert client.get("key") == b"three"


def test_a_client_remembers_no_key_of_what_it_freed(client: tierd.Client) -> None:
    for step in range(3):
        client.put(f"step {step}", b"bytes")
        client.delete(f"step {step}")
    assert client._session.ids == {}
    client.put("step 0", b"again")
    assert client.get("step 0") == b"again"


def test_a_client_remembers_so_many_keys(
    client: tierd.Client, fake: FakeLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tierd.session.KEYS_REMEMBERED", 10)
    for step in range(100):
        with pytest.raises(tierd.NotFound, match=f"step {step}"):
            client.get(f"step {step}")
        assert len(client._session.ids) <= 10 and len(client._session.keys) <= 10
    client.put("step 0", b"bytes")
    assert client.get("step 0") == b"bytes"


def test_shared_and_own_namespace_do_not_meet(client: tierd.Client) -> None:
    client.put(1, b"mine")
    client.put(1, b"ours", shared=True)
    assert (client.get(1), client.get(1, shared=True)) == (b"mine", b"ours")
    client.delete(1)
    assert client.get(1, shared=True) == b"ours"


def test_a_sharded_tensor_is_created_as_such(client: tierd.Client, fake: FakeLibrary) -> None:
    client.put("in ranges", bytes(2 * RANGE_BYTES), shared=True, sharded=True)
    with client.create("at once", 16, shared=True, sharded=True):
        pass
    client.put("of nobody in particular", b"bytes", shared=True)
    assert [bool(flags & library.SHARDED) for flags in fake.lease_flags] == [True, False, True, False]


def test_a_large_tensor_goes_range_by_range(client: tierd.Client, fake: FakeLibrary) -> None:
    content = numpy.random.default_rng(1).bytes(2 * RANGE_BYTES + 12345)
    client.put("key", content)
    assert fake.calls.count("create") == 1 and fake.calls.count("acquire") == 2
    assert client.get("key") == content


def test_a_range_shrinks_where_memory_is_short(client: tierd.Client, fake: FakeLibrary) -> None:
    fake.lease_bytes_max = 5 << 20
    content = numpy.random.default_rng(1).bytes(20 << 20)
    client.put("key", content)
    assert client.get("key") == content


@pytest.mark.parametrize("mebibytes", [3, 10, 16, 20])
def test_what_could_be_put_by_ranges_can_be_got_so(client: tierd.Client, fake: FakeLibrary, mebibytes: int) -> None:
    fake.lease_bytes_max = 3 << 20
    content = numpy.random.default_rng(1).bytes((mebibytes << 20) - 5)
    client.put("key", content)
    assert client.get("key") == content
    with pytest.raises(tierd.Invalid, match="holds"):
        client.get_into("key", bytearray(len(content) - 1))
    assert fake.leases == {}


def test_a_lease_of_ones_own_is_told_at_once_by_a_large_get(client: tierd.Client, fake: FakeLibrary) -> None:
    client.put("key", bytes(10 << 20))
    with client.lease("key", write=True):
        with pytest.raises(tierd.WouldDeadlock):
            client.get("key")


def test_a_timeout_of_zero_is_not_the_default_of_a_copy(client: tierd.Client, fake: FakeLibrary) -> None:
    client.put("key", bytes(100))
    for timeout in (0, 0.0004, 2, None):
        client.put("key", bytes(100), replace=True, timeout=timeout)
    large = bytearray(RANGE_BYTES + 1)
    client.put("large", large)
    client.get_into("large", large, timeout=0)
    never = (0, library.NO_WAIT)
    assert fake.copy_waits == [never, (1, 0), (2000, 0), (0, 0), never]


def test_what_others_may_have_replaced_is_not_read_as_what_was_put(client: tierd.Client, fake: FakeLibrary) -> None:
    other = tierd.Client(client_module.Session(fake, 2))  # type: ignore[arg-type]
    client.put("key", numpy.ones(4, "f4"), shared=True)
    other.put("key", numpy.arange(4, dtype="i4"), shared=True, replace=True)
    with pytest.raises(tierd.Invalid, match="state dtype"):
        client.get("key", shared=True)
    with client.lease("key", shared=True) as lease:
        with pytest.raises(tierd.Invalid, match="state the torch dtype"):
            lease.torch()
        assert lease.numpy("i4").tolist() == [0, 1, 2, 3]
    assert client.get("key", "i4", 4, shared=True).tolist() == [0, 1, 2, 3]


def test_a_put_reports_that_the_daemon_is_gone(client: tierd.Client, fake: FakeLibrary) -> None:
    fake.lost = True
    with pytest.raises(tierd.Disconnected, match="gone"):
        client.put("key", b"x" * 100)
    assert fake.leases == {}


def test_a_read_is_not_lost_with_the_daemon(client: tierd.Client, fake: FakeLibrary) -> None:
    client.put("key", b"x" * 100)
    fake.lost = True
    assert client.get("key") == b"x" * 100


def test_a_buffer_stays_where_it_is_while_its_memory_is_known() -> None:
    content = bytearray(100)
    with layout.readable(content) as memory:
        pass
    with pytest.raises(BufferError):
        content.extend(b"more")
    del memory
    content.extend(b"more")


def test_a_manifest_is_not_made_in_parts(client: tierd.Client) -> None:
    with pytest.raises(tierd.Invalid, match="one manifest"):
        client.persist(*range(1024))


@pytest.mark.parametrize("slice_ms", [SLICE_MS, 0])  # 0: each refusal comes at the end of its slice.
def test_a_put_that_fails_leaves_nothing_behind(
    client: tierd.Client, fake: FakeLibrary, monkeypatch: pytest.MonkeyPatch, slice_ms: int
) -> None:
    monkeypatch.setattr("tierd.session.SLICE_MS", slice_ms)
    fake.lease_bytes_max = 1 << 20
    with pytest.raises(tierd.NoMemory, match="1048576"):
        client.put("key", bytes(20 << 20))
    assert fake.tensors == {} and fake.leases == {}


@pytest.mark.parametrize("key", ["", "x" * 1025, -1, 1 << 64, True, 1.5, None])
def test_impossible_keys_are_refused(client: tierd.Client, key: object) -> None:
    with pytest.raises(tierd.Invalid):
        client.put(key, b"x")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value",
    [b"", numpy.zeros((3, 0)), torch.zeros(0), torch.zeros(2, 2).to_sparse(), numpy.array([object()]), object(), 3,
     torch.zeros(2, device="meta")],
)  # fmt: skip
def test_what_has_no_bytes_is_refused(client: tierd.Client, value: object) -> None:
    with pytest.raises(tierd.Invalid):
        client.put("key", value)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Pair(torch.ones(3), torch.zeros(3)), "a Pair has no bytes of its own"),
        (lambda: torch.nested.nested_tensor([torch.ones(3), torch.ones(2)]), "no bytes of its own"),
        (lambda: torch.ones(3).to_sparse(), "make it dense"),
        (lambda: torch.quantize_per_tensor(torch.ones(3), 0.5, 0, torch.qint8), "quantized"),
        (lambda: numpy.ma.masked_array([1.0, 2.0, 3.0], [False, True, False]), "mask"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*nested tensors.*", "ignore:.*quantized.*", "ignore:.*quantize_per_tensor.*")
def test_what_is_more_than_its_bytes_is_refused(client: tierd.Client, make: Callable[[], Any], sentence: str) -> None:
    client.put("key", bytes(24))
    for work in (lambda: client.put("other", make()), lambda: client.get_into("key", make())):
        with pytest.raises(tierd.Invalid, match=sentence):
            work()


def test_figures_beyond_64_bits_are_not_cut(client: tierd.Client, fake: FakeLibrary) -> None:
    client.put("a", bytes(64))
    fake.calls.clear()
    wrong: list[Callable[[], object]] = [
        lambda: client.create("b", ((1 << 61) + 1,), "f8"),
        lambda: client.lease("a", offset=(1 << 64) + 8),
        lambda: client.lease("a", offset=-8),
        lambda: client.lease("a", length=1.5),  # type: ignore[arg-type]
        lambda: client.lease_many([tierd.Part("b", size=(1 << 64) + 8)]),
        lambda: client.prefetch(tierd.Part("a", 0, -1)),
        lambda: client.step(-1),
    ]
    for work in wrong:
        with pytest.raises(tierd.Invalid, match="is .*: an int from 0"):
            work()
    assert fake.calls == []


def test_missing_keys_are_not_found(client: tierd.Client) -> None:
    for call in (client.get, client.delete, client.tensor, client.lease):
        with pytest.raises(tierd.NotFound):
            call("nobody")


@pytest.mark.parametrize(
    ("key", "name"), [("weights", "'weights'"), (1000, "1000"), ((1 << 64) - 1, str((1 << 64) - 1))]
)
def test_a_refusal_names_the_key_as_it_was_given(client: tierd.Client, key: int | str, name: str) -> None:
    for call in (client.get, client.delete, client.tensor, client.lease):
        with pytest.raises(tierd.NotFound, match=rf"^no tensor {name}$"):
            call(key)


def test_a_key_that_a_write_fails_under_is_named(client: tierd.Client, fake: FakeLibrary) -> None:
    client.put("weights", b"old")
    with pytest.raises(tierd.Disconnected, match="the writer of tensor 'weights' is gone"):
        with client.lease("weights", write=True):
            fake.lost = True


def test_a_wrong_type_is_told_what_is_taken(client: tierd.Client) -> None:
    client.put("key", b"four")
    with pytest.raises(
        tierd.Invalid, match="a list cannot be stored .*numpy array, a torch tensor, or contiguous bytes"
    ):
        client.put("list", [1, 2])
    with pytest.raises(tierd.Invalid, match="a bytes cannot be filled .*writable bytes such as a bytearray"):
        client.get_into("key", b"four")
    with pytest.raises(tierd.Invalid, match="a key is an int or a str, not float"):
        client.prefetch(1.5)  # type: ignore[arg-type]


def test_every_code_has_its_exception() -> None:
    names = (
        "INVALID NOT_FOUND ALREADY_EXISTS DENIED NO_MEMORY NO_SPACE IO_ERROR CORRUPT TORN STALE DISCONNECTED "
        "REVOKED WOULD_DEADLOCK TIMEOUT VERSION"
    ).split()
    assert [errors.from_code(code, "").name for code in range(1, 16)] == names
    assert isinstance(errors.from_code(99, "odd"), tierd.Error)
    assert errors.from_code(99, "odd").code == 99


@pytest.mark.parametrize("timeout", ["5", [5], 5j])
def test_a_timeout_that_is_no_number_is_refused(client: tierd.Client, timeout: Any) -> None:
    with pytest.raises(tierd.Invalid, match="timeout is .*: a number of seconds"):
        client.put("key", bytes(100), timeout=timeout)


def test_a_closed_client_refuses_everything(client: tierd.Client, fake: FakeLibrary) -> None:
    client.close()
    client.close()
    assert fake.closed == [1]
    for call in (lambda: client.get("a"), lambda: client.put("a", b"x"), client.stats, client.step):
        with pytest.raises(tierd.Stale, match="closed"):
            call()
    assert repr(client) == "<tierd.Client closed>"


def test_the_handle_outlives_close_until_the_last_array_is_gone(client: tierd.Client, fake: FakeLibrary) -> None:
    client.put("a", numpy.arange(4.0))
    view = client.lease("a").numpy()
    with pytest.warns(ResourceWarning, match="1 lease alive"):
        client.close()
    assert fake.closed == []
    assert view.sum() == 6
    del view
    assert fake.closed == [1] and fake.leases == {}


def test_a_client_let_go_is_closed(fake: FakeLibrary) -> None:
    client = tierd.Client(client_module.Session(fake, 3))  # type: ignore[arg-type]
    del client
    gc.collect()
    assert fake.closed == [3]


def test_a_client_is_not_copied(client: tierd.Client, fake: FakeLibrary) -> None:
    for work in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(tierd.Invalid, match="connect"):
            work(client)
    gc.collect()
    assert fake.closed == []  # A copy's end was the session's.
    client.put("a", b"x")


def test_a_forked_child_has_no_session_and_ends_nobody_elses(client: tierd.Client, fake: FakeLibrary) -> None:
    client.put("a", numpy.arange(4.0))
    view = client.lease("a").numpy()
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            client.get("a")
        except tierd.Disconnected as error:
            os.write(writer, str(error).encode())
        del view
        client.close()
        os.write(writer, f"|{fake.closed}|{len(fake.leases)}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        sentence, closed, leases = pipe.read().decode().split("|")
    assert "forked" in sentence and (closed, leases) == ("[]", "1")
    assert view.sum() == 6


def test_threads_share_a_client(client: tierd.Client, fake: FakeLibrary) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(50):
                key = f"{number}/{turn}"
                client.put(key, numpy.full(100, number))
                assert (client.get(key) == number).all()
                client.delete(key)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == [] and fake.tensors == {} and fake.leases == {}


def test_options_that_cannot_be_meant_are_refused(monkeypatch: pytest.MonkeyPatch, fake: FakeLibrary) -> None:
    monkeypatch.setattr("tierd.library.load", lambda: fake)
    for name, value in (
        ("mode", "take"), ("spin", "fast"), ("limit", "1 stone"), ("job", "a\0b"), ("job", 5), ("socket", b"path"),
        ("rank", "0"), ("world_size", True), ("copy_threads", -1),
    ):  # fmt: skip
        with pytest.raises(tierd.Invalid, match=name):
            tierd.connect(**{name: value})  # type: ignore[arg-type]
    with tierd.connect(job="x", limit="1GiB") as client:
        assert client.session.job == "job"
