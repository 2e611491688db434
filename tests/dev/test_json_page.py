"""docs/tierctl-json.md is what tools/tierctl/json_page.py makes of control.proto."""

from __future__ import annotations

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/tierctl"))

import json_page  # noqa: E402


def test_the_page_is_up_to_date() -> None:
    assert (ROOT / "docs/tierctl-json.md").read_text() == json_page.page(), "run tools/tierctl/json_page.py"


def test_the_version_is_the_programs() -> None:
    header = (ROOT / "tools/tierctl/message_json.h").read_text()
    assert f"kJsonVersion = {json_page.VERSION};" in header


def test_every_message_that_is_read_has_its_fields() -> None:
    of = json_page.messages()
    assert of["ListDevicesResponse"] == {
        "devices": json_page.Field("array of Device"),
        "missing": json_page.Field("array of MissingDevice"),
    }
    assert of["Job"]["id"].kind == "string" and of["Job"]["token"].may_lack
    assert of["Stall"]["session"].kind == of["Stall"]["space"].kind == "string"
    assert of["PoolWindow"]["numa_node"].may_lack and of["PoolWindow"]["kind"].kind == "string"
    assert of["Job"]["ranks"].kind == "array of number"
    assert of["Device"]["state"].kind == "string" and of["Device"]["state"].text == "online, suspect, offline, gone"
    assert of["Event"]["event_time"].kind == "string" and of["NodeStatus"]["uptime"].kind == "string"


def test_what_does_not_fit_is_named_by_its_place() -> None:
    shape = {"jobs": json_page.Field("array of Tensor"), "note": json_page.Field("string or null")}
    tensor = {
        key: {"string": "", "number": 0, "true or false": False}[field.kind]
        for key, field in json_page.messages()["Tensor"].items()
    }
    assert json_page.shape_faults({"jobs": [tensor], "note": None}, shape) == []
    wrong = {"jobs": [{**tensor, "id": 7, "size_bytes": 1 << 60}], "note": 3, "more": 1}
    assert sorted(fault.split(" ")[0] for fault in json_page.shape_faults(wrong, shape)) == [
        ".jobs[0].id", ".jobs[0].size_bytes", ".more", ".note",
    ]  # fmt: skip
    assert json_page.shape_faults({"note": None}, shape) == [".jobs is missing"]
    assert json_page.shape_faults([], shape) == ["the document is no object"]
