"""`tierctl job stalls` beside a real daemon: requests that waited for the SSD, and for another process's lease."""

from __future__ import annotations

import json
import os
import pathlib
import threading
from collections.abc import Iterator
from typing import Any

import launcher
import pytest

import tierd

OTHER = 12345


@pytest.fixture
def node(socket_folder: pathlib.Path) -> Iterator[launcher.Running]:
    settings = {"jobs": {"stall_threshold": "0s"}}
    with launcher.start(socket_folder, arena="16MiB", tier="256MiB", settings=settings) as running:
        os.chmod(running.directory, 0o755)
        yield running


def stalls(node: launcher.Running, job: str, *words: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads(launcher.tierctl(node, "--json", "job", "stalls", job, *words))["stalls"]
    return listed


def seconds(text: str) -> float:
    return float(text.removesuffix("s"))


def test_reads_from_ssd_are_named_with_tensor_and_step(node: launcher.Running) -> None:
    with tierd.connect(job="swap", socket=node.socket) as client:
        for key in range(16):
            client.put(f"layer{key}", bytes([key]) * (2 << 20))
        client.step(7)
        for key in range(16):
            assert bytes(client.get(f"layer{key}")) == bytes([key]) * (2 << 20)
        listed = stalls(node, "swap")
        reads = [stall for stall in listed if any(part["cause"] == "ssd_read" for part in stall["parts"])]
        assert reads, listed
        for stall in reads:
            assert stall["key"].startswith("layer") and stall["outcome"] == "OK" and not stall["waiting"]
            parts = sum(seconds(part["duration"]) for part in stall["parts"])
            assert parts == pytest.approx(seconds(stall["duration"]), abs=1e-6)
        assert 7 in {stall["step"] for stall in reads if stall["operation"] == "acquire"}
        longest = [seconds(stall["duration"]) for stall in stalls(node, "swap", "--longest")]
        assert longest == sorted(longest, reverse=True)
        assert "ssd_read" in launcher.tierctl(node, "job", "stalls", "swap")


def test_who_waits_for_a_lease_is_seen_while_it_waits(node: launcher.Running) -> None:
    with tierd.connect(job="shared", socket=node.socket) as holder:
        holder.put("w", bytes(1 << 20), shared=True)
        with tierd.connect(job="shared", socket=node.socket, token=holder.session.token) as waiter:
            with holder.lease("w", write=True, shared=True) as view:
                thread = threading.Thread(target=lambda: waiter.get("w", shared=True))
                thread.start()
                found: list[dict[str, Any]] = []

                def waits() -> bool:
                    found[:] = [stall for stall in stalls(node, "shared") if stall["waiting"]]
                    return bool(found)

                launcher.wait_for("a request that waits", waits)
                del view
            thread.join()
            assert found[0]["key"] == "w" and found[0]["parts"][0]["cause"] == "lease" and found[0]["outcome"] == ""
            ended = [stall for stall in stalls(node, "shared") if not stall["waiting"]]
            assert any(stall["parts"] and stall["parts"][0]["cause"] == "lease" for stall in ended), ended


def test_other_users_do_not_see_them(node: launcher.Running) -> None:
    launcher.need_user(OTHER)
    with tierd.connect(job="mine", socket=node.socket):
        asked = launcher.run_tierctl(
            node.directory / "control.sock", "job", "stalls", "mine", user=OTHER, group=OTHER, extra_groups=[], cwd="/"
        )
        assert asked.returncode == 3 and "NOT_FOUND" in asked.stderr, asked
