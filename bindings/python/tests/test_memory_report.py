"""The report of what lies where: each byte once, by what the library says of each tensor."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest
import torch
from fake_library import FakeLibrary
from torch import nn

import tierd
import tierd.torch
from tierd import inspection
from tierd.inspection import Pss
from tierd.session import Session
from tierd.torch import memory_picture, memory_report
from tierd.torch.memory_report import Place

KIB = 1 << 10


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 128, bias=False)  # 32 KiB.
        self.frozen = nn.Linear(128, 64, bias=False).requires_grad_(False)  # 32 KiB.
        self.small = nn.Parameter(torch.ones(256))  # 1 KiB, stays in the process.
        self.register_buffer("table", torch.ones(512))  # 2 KiB.

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x).exp()
        return (self.frozen(y).sum() * self.small.sum()).square() * self.table[0]


def offloaded(**options: Any) -> tuple[Any, Any, FakeLibrary, tierd.Client]:
    fake = FakeLibrary()
    client = tierd.Client(Session(fake, 1))  # type: ignore[arg-type]
    options = {"min_bytes": "4KiB", "name": "net", **options}
    model, optimizer = tierd.torch.offload(Net(), tierd.torch.AdamW, client=client, **options)
    return model, optimizer, fake, client


def test_each_byte_is_counted_where_it_lies_at_each_point_of_a_step() -> None:
    model, optimizer, fake, client = offloaded()
    ids = {name.decode(): number for name, number in fake.names.items()}
    fake.ram_bytes[ids["net/first.weight"]] = 8 * KIB
    report = optimizer.memory_report()
    assert report.parameters == Place(process=KIB, ram=(8 + 32) * KIB, ssd=24 * KIB)
    assert report.buffers == Place(process=2 * KIB)
    assert report.gradients == report.optimizer_state == report.activations == Place()
    # Plain torch: 65 KiB of parameters, a gradient and two moments of the 33 that are trained, and the buffer.
    assert report.plain_torch == (65 + 3 * 33 + 2) * KIB

    loss = model(torch.ones(256, 64))  # exp saves its result: 128 KiB.
    forward = tierd.torch.memory_report(model)
    assert forward.activations.ram == 256 * 128 * 4 + 256 * 64 * 4 and forward.gradients == Place()
    assert forward.plain_torch == report.plain_torch + forward.activations.ram
    loss.backward()
    backward = optimizer.memory_report()
    assert backward.gradients == Place(process=KIB, ram=32 * KIB) and backward.activations == Place()
    optimizer.step()
    optimizer.zero_grad()
    pending = optimizer.memory_report()
    assert pending.gradients == Place(ram=32 * KIB) and pending.optimizer_state.ram == 2 * KIB, (
        "no update was made for it"
    )
    optimizer.settle()
    fake.ram_bytes[fake.names[b"net/state/0/exp_avg"]] = 0
    after = optimizer.memory_report()
    steps = sum(state["step"].nbytes for state in optimizer.state.values())
    assert after.gradients == Place() and after.optimizer_state.process == steps == 8
    assert after.optimizer_state.ram + after.optimizer_state.ssd == 2 * 33 * KIB and after.optimizer_state.ssd > 0
    assert after.plain_torch == report.plain_torch
    asked = len(fake.calls)
    optimizer.memory_report()
    assert set(fake.calls[asked:]) == {"tensor"} and not fake.leases  # It moves nothing.


def test_a_gradient_on_its_way_and_a_page_more_than_the_tensor_are_counted_as_the_tensor() -> None:
    model, optimizer, fake, client = offloaded()
    model(torch.ones(2, 64)).backward()
    gradient = fake.names[b"net/first.weight/gradient"]
    assert (gradient, 0) not in fake.tensors  # Copied when it is waited for.
    assert optimizer.memory_report().gradients.ram == 32 * KIB
    optimizer.step()
    fake.ram_bytes[gradient] = 36 * KIB
    assert optimizer.memory_report().gradients == Place(process=KIB, ram=32 * KIB)


def test_parts_that_stay_in_the_process_count_there() -> None:
    model, optimizer, fake, client = offloaded(gradients="device", activations="device")
    model(torch.ones(256, 64)).backward()
    report = tierd.torch.memory_report(model)
    assert report.gradients == Place(process=33 * KIB) and report.activations == Place()


def test_an_optimizer_alone_reports_its_parameters(client: tierd.Client) -> None:
    parameter = nn.Parameter(torch.ones(1024, dtype=torch.bfloat16))
    optimizer = tierd.torch.AdamW([parameter], client=client, master_weights=True)
    parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    report = optimizer.memory_report()
    assert report.parameters == report.gradients == Place(process=2 * KIB)
    assert report.optimizer_state.ram == 3 * 4 * KIB and report.plain_torch == (2 + 2 + 12) * KIB


def test_a_report_outlives_model_and_optimizer_and_refuses_a_plain_model() -> None:
    model, optimizer, fake, client = offloaded()
    with pytest.raises(tierd.Invalid, match="not offloaded"):
        tierd.torch.memory_report(nn.Linear(2, 2))
    del optimizer
    assert tierd.torch.memory_report(model).optimizer_state == Place()
    text = str(tierd.torch.memory_report(model))
    del model
    assert "65 KiB" in text


# ---- What processes take ----


def test_what_the_daemon_does_not_show_is_unknown() -> None:
    _, optimizer, fake, client = offloaded()
    report = optimizer.memory_report()
    assert report.process is not None and report.process.anonymous > 0 and report.process.files > 0
    assert (report.daemon, report.memfds, report.arena, report.held, report.measured) == (None,) * 5
    assert str(report).count("unknown") == 4


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> memory_report.MemoryReport:
    pss = {"self": Pss(5 << 20, 3 << 20), 7: Pss(2 << 20, 1 << 20)}
    monkeypatch.setattr(inspection, "daemon_status", lambda c: {"pid": 7, "arena_bytes": 16, "arena_max_bytes": 32})
    monkeypatch.setattr(inspection, "job_figures", lambda client: {"held_bytes": 8})
    monkeypatch.setattr(inspection, "pss_of", lambda pid="self": pss[pid])
    monkeypatch.setattr(inspection, "memfd_bytes", lambda pid: 64 << 20)
    _, optimizer, fake, client = offloaded()
    fake.ram_bytes[fake.names[b"net/first.weight"]] = 8 * KIB
    found: memory_report.MemoryReport = optimizer.memory_report()
    return found


def test_all_processes_and_memfds_are_one_sum(report: memory_report.MemoryReport) -> None:
    assert report.measured == (5 + 3 + 2 + 1 + 64) << 20
    assert (report.arena, report.arena_max, report.held) == (16, 32, 8)
    assert "75 MiB" in str(report) and "16 B of at most 32 B; this job holds 8 B" in str(report)
    assert dataclasses.replace(report, daemon=None).measured is None


def test_figures_of_processes_come_from_the_kernels_files(tmp_path: pathlib.Path) -> None:
    (tmp_path / "5").mkdir()
    (tmp_path / "5" / "smaps_rollup").write_text(
        "00-ff ---p 0 00:00 0 [rollup]\nRss: 900 kB\nPss_Anon: 10 kB\nPss_File: 20 kB\nPss_Shmem: 500 kB\n"
    )
    assert inspection.pss_of(5, str(tmp_path)) == Pss(10 * KIB, 20 * KIB)
    assert inspection.pss_of(6, str(tmp_path)) is None


# ---- How it is shown ----


def cells(text: str) -> list[list[str]]:
    return [re.split(r"\s{2,}", line.strip()) for line in text.splitlines() if re.search(r"[a-z]", line)]


def test_with_and_without_rich_the_table_says_the_same(
    report: memory_report.MemoryReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = cells(str(report))
    monkeypatch.setitem(sys.modules, "rich.table", None)
    assert cells(str(report)) == drawn
    assert ["parameters", "1 KiB", "40 KiB", "24 KiB", "65 KiB"] in drawn
    assert ["in all", "3 KiB", "40 KiB", "24 KiB", "67 KiB"] in drawn


def test_the_notebooks_table_is_the_same_and_escaped(report: memory_report.MemoryReport) -> None:
    page = ElementTree.fromstring(f"<div>{report._repr_html_()}</div>")
    rows = [[cell.text or "" for cell in row] for row in page.iter("tr")]
    assert rows[0] == ["", "process", "tierd's RAM", "SSD only", "in all"]
    assert rows[1] == ["parameters", "1 KiB", "40 KiB", "24 KiB", "65 KiB"]
    assert "tierd&#x27;s" in report._repr_html_()


def test_the_picture_has_a_bar_for_each_place_in_proportion(
    report: memory_report.MemoryReport, tmp_path: pathlib.Path
) -> None:
    picture = report.plot(tmp_path / "memory.svg")
    drawn: str = picture._repr_svg_()  # type: ignore[attr-defined]
    assert drawn == picture and type(drawn) is str and picture in report._repr_html_()
    assert (tmp_path / "memory.svg").read_text() == picture == report.plot()
    space = "{http://www.w3.org/2000/svg}"
    bars = {}
    for box in ElementTree.fromstring(picture).iter(f"{space}rect"):
        title = box.find(f"{space}title")
        if title is not None and title.text is not None and ":" in title.text:
            bars[title.text] = (float(box.attrib["x"]), float(box.attrib["width"]))
    assert list(bars) == [
        "parameters, process: 1 KiB",
        "parameters, tierd's RAM: 40 KiB",
        "parameters, SSD only: 24 KiB",
        "buffers, process: 2 KiB",
    ]
    (left, first), (second, _), (third, last) = list(bars.values())[:3]
    assert left + first == pytest.approx(second, abs=0.2) and third > second
    assert last / bars["buffers, process: 2 KiB"][1] == pytest.approx(12, rel=0.02)
    empty = dataclasses.replace(report, parameters=Place(), buffers=Place())
    assert "0 B" in memory_picture.svg(empty)
