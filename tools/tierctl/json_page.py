"""docs/tierctl-json.md: what `tierctl --json` prints, made from control.proto and from the shapes below.

    python tools/tierctl/json_page.py > docs/tierctl-json.md

tests/e2e/test_tierctl_json.py holds the output of every verb against the same shapes.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
VERSION = 3
# Numbers that name something, and so are strings.
NAMES = {"id", "epoch", "space", "session"}
# In no document unless they are set.
MAY_LACK = {"token"}

# As proto3's own JSON has them.
_TIMES = {
    "google.protobuf.Duration": 'such as "3.500s"',
    "google.protobuf.Timestamp": 'UTC: "2026-11-24T12:00:01.250Z"',
}
_NUMBERS = {"int32", "uint32", "sint32", "int64", "uint64", "double"}


@dataclasses.dataclass(frozen=True)
class Field:
    kind: str  # "number", "string", "true or false", "array of Job", "Job" and so on; " or null" behind it.
    text: str = ""
    may_lack: bool = False


Shape = dict[str, Field]


def messages() -> dict[str, Shape]:
    """The messages of control.proto, as documents."""
    source = (ROOT / "proto/tier/v1/control.proto").read_text()
    found: dict[str, Shape] = {}
    enums = {name: _words(body) for name, body in re.findall(r"^enum (\w+) \{(.*?)^\}", source, re.M | re.S)}
    for name, body in re.findall(r"^message (\w+) \{(.*?)\}", source, re.M | re.S):
        shape: Shape = {}
        above = ""
        for line in body.splitlines():
            if comment := re.fullmatch(r"\s*//\s*(.*)", line):
                above += " " + comment[1]
                continue
            field = re.fullmatch(r"\s*(repeated |optional |)([\w.]+) (\w+) = \d+;\s*(?://\s*(.*))?", line.rstrip())
            if field is None:
                above = ""
                continue
            label, kind, key, behind = field.groups()
            text = "; ".join(filter(None, [enums.get(kind) or _TIMES.get(kind), (behind or above).strip()]))
            above = ""
            if kind in _NUMBERS:
                shown = "string" if key in NAMES and kind == "uint64" else "number"
            else:
                plain = dict.fromkeys(["string", *enums, *_TIMES], "string") | {"bool": "true or false"}
                shown = plain.get(kind, kind)
            shown = f"array of {shown}" if label == "repeated " else shown
            shape[key] = Field(shown, text, label == "optional " or key in MAY_LACK)
        found[name] = shape
    return found


def _words(enum: str) -> str:
    """Its enumerators as documents have them, without their common prefix; the first, unspecified, is in none."""
    names = re.findall(r"^\s*([A-Z_\d]+) = \d+;", enum, re.M)
    prefix = names[0].removesuffix("UNSPECIFIED")
    return ", ".join(name.removeprefix(prefix).lower() for name in names[1:])


def verbs() -> dict[str, Shape]:
    """The document of each verb, without `json_version`. Words in capitals stand for arguments."""
    of = messages()
    rate = "by second, between the two readings; null without a first one"
    top_job = {
        "id": Field("string"), "name": Field("string"), "uid": Field("number"), "owner": of["Job"]["owner"],
        "ram_bytes": Field("number"), "held_bytes": Field("number", "of its windows"), "ssd_bytes": Field("number"),
        "hit_ratio": Field("number or null", "of the ranges that were asked for: so many were in RAM"),
        "stall_share": Field("number or null", "seconds that its requests waited, " + rate),
        "swap_in_bytes_per_second": Field("number or null", rate),
        "swap_out_bytes_per_second": Field("number or null", rate),
    }  # fmt: skip
    top_device = {
        "index": Field("number"), "path": Field("string"), "free_bytes": Field("number"),
        "live_bytes": Field("number"), "errors_total": Field("number"), "state": Field("string"),
        "read_bytes_per_second": Field("number or null", rate),
        "written_bytes_per_second": Field("number or null", rate),
    }  # fmt: skip
    finding = {
        "check": Field("string"), "verdict": Field("string", "ok, note, degraded, bad"), "found": Field("string"),
        "remedy": Field("string", 'a line to paste; ""'), "advice": Field("string"),
    }  # fmt: skip
    superblock = {
        "path": Field("string"), "uuid": Field("string"), "size_bytes": Field("number"),
        "capacity_bytes": Field("number"), "commit": Field("number"), "block_device": Field("true or false"),
    }  # fmt: skip
    in_use = {"in_use": Field("Device", "as tierd tells it, where it answers and has it open", may_lack=True)}
    missing_file = {"file": Field("string"), "reason": Field("string")}
    PARTS.update(TopJob=top_job, TopDevice=top_device, Finding=finding, MissingFile=missing_file)
    jobs = {key: field for key, field in of["ListJobsResponse"].items() if key != "next_page_token"}
    tensors = {
        "tensors": Field("array of Tensor"),
        "truncated": Field("true or false", "the job has more: ask for them with --max"),
    }
    drained = {"drained": Field("string", 'the job; "": the daemon'), **of["DrainResponse"]}
    degraded = {"degraded": Field("true or false", "whether degraded_by of status names a cause")}
    return {
        "status": of["NodeStatus"] | degraded,
        "doctor": {"findings": Field("array of Finding")},
        "report": {
            "report": Field("string", "the file"), "files": Field("array of string", "in it"),
            "missing": Field("array of MissingFile"),
        },
        "version": {
            "tierctl": Field("string"), "tierd": Field("string or null", "null: it does not answer"),
            "reason": Field("string", 'why it does not; ""'),
        },
        "drain": drained,
        "drain JOB": drained,
        "drain --wait": {
            **drained,
            "sessions": Field("number", "processes that are still attached: 0"),
            "jobs": Field("number", "open jobs without processes that have tensors, and keep them"),
            "unpersisted": Field("string", "those that have persisted nothing, for which it fails; empty: none"),
        },
        "undrain": {"undrained": Field("true or false")},
        "top --once": {
            "interval_seconds": Field("number"), "epoch": Field("string"), "arena_bytes": Field("number"),
            "arena_stock_bytes": of["NodeStatus"]["arena_stock_bytes"], "arena_free_bytes": Field("number"),
            "host_available_bytes": Field("number"), "waiting_count": Field("number"),
            "draining": of["NodeStatus"]["draining"], **degraded,
            "jobs": Field("array of TopJob"), "devices": Field("array of TopDevice"),
        },
        "events": {"events": Field("array of Event")},
        "events --follow": of["Event"],
        "job list": jobs,
        "job list --lost": jobs,
        "job names": {"names": Field("array of string")},
        "job show JOB": of["Job"],
        "job open JOB": of["Job"],
        "job set JOB": of["Job"],
        "job stalls JOB": of["ListStallsResponse"],
        "job remove JOB": {
            "removed": Field("string"),
            "sessions": Field("array of JobSession", "the processes that lost the job, with --force"),
            "ram_bytes": Field("number", "that it held"),
            "ssd_bytes": Field("number", "that its tensors had there; 0 where a named job keeps what it persisted"),
        },
        "tensor list JOB": tensors,
        "tensor show JOB TENSOR": {"tensors": Field("array of Tensor")},
        "device list": of["ListDevicesResponse"],
        "device show PATH": superblock | in_use,
        "device format PATH": superblock,
        "device drain DEVICE": {
            "draining": Field("number", "the device"),
            "note": Field("string", 'what follows where no other device takes new tensors; "": another does'),
        },
        "device drain DEVICE --undo": {"used": Field("number", "the device")},
        "device retry DEVICE": {"retried": Field("number", "the device")},
        "device purge UUID": {"purged": Field("string", "the device")} | of["PurgeDeviceResponse"],
        "pool map": of["GetPoolMapResponse"],
        "config get": of["ListOptionsResponse"],
        "config get OPTION": of["ListOptionsResponse"],
        "config diff": of["ListOptionsResponse"],
        "config set OPTION VALUE": of["SetOptionResponse"],
        "socket open": of["OwnerSocket"],
        "socket close": {"closed": Field("string", "the owner"), "purged": Field("true or false", "with its name")},
        "socket list": of["ListSocketsResponse"],
        "quota show": of["ListQuotasResponse"],
        "quota list": of["ListQuotasResponse"],
        "quota set": {"set": Field("string", "whose quota: default, user NAME or group NAME")},
        "quota clear": {"cleared": Field("string", "whose quota: default, user NAME or group NAME")},
    }  # fmt: skip


# Shapes that only documents have, beside the messages.
PARTS: dict[str, Shape] = {}


def faults(value: Any, kind: str, at: str) -> list[str]:
    """Why a value of a document is not of this kind, by place."""
    if kind.endswith(" or null"):
        return [] if value is None else faults(value, kind.removesuffix(" or null"), at)
    if kind.startswith("array of "):
        if not isinstance(value, list):
            return [f"{at} is no array"]
        of = kind.removeprefix("array of ")
        return [fault for i, each in enumerate(value) for fault in faults(each, of, f"{at}[{i}]")]
    plain = {"string": str, "true or false": bool}
    if kind in plain:
        return [] if isinstance(value, plain[kind]) else [f"{at} is {value!r}, not a {kind}"]
    if kind == "number":
        good = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1 << 53
        return [] if good else [f"{at} is {value!r}, not a number that a double holds"]
    return shape_faults(value, (messages() | PARTS)[kind], at)


def shape_faults(document: Any, shape: Shape, at: str = "") -> list[str]:
    if not isinstance(document, dict):
        return [f"{at or 'the document'} is no object"]
    found = [f"{at}.{key} is not described" for key in document.keys() - shape.keys()]
    for key, field in shape.items():
        if key in document:
            found += faults(document[key], field.kind, f"{at}.{key}")
        elif not field.may_lack:
            found.append(f"{at}.{key} is missing")
    return found


def _table(shape: Shape) -> list[str]:
    lines = ["| field | | |", "| --- | --- | --- |"]
    for key, field in shape.items():
        text = field.text.replace("|", "\\|") + (" (only where it is set)" if field.may_lack else "")
        lines.append(f"| `{key}` | {field.kind} | {text.strip()} |")
    return lines


def _parts_of(shape: Shape, seen: dict[str, Shape]) -> None:
    known = messages() | PARTS
    for field in shape.values():
        name = re.sub(r"^array of | or null$", "", field.kind)
        if name in known and name not in seen:
            seen[name] = known[name]
            _parts_of(known[name], seen)


def page() -> str:
    by_shape: list[tuple[list[str], Shape]] = []
    for verb, shape in verbs().items():
        same = next((names for names, other in by_shape if other == shape), None)
        if same is None:
            by_shape.append(([verb], shape))
        else:
            same.append(verb)
    parts: dict[str, Shape] = {}
    for _, shape in by_shape:
        _parts_of(shape, parts)
    lines = [
        "# What `tierctl --json` prints",
        "",
        "<!-- Made by tools/tierctl/json_page.py from proto/tier/v1/control.proto: change these. -->",
        "",
        f"Every verb prints one document, an object, with `json_version` ({VERSION}) first; `events --follow` prints",
        "one on each line, and so does `top` without `--once`. The version rises when a field goes, or changes what it",
        "means. New fields may come at any time: ignore those that you do not know.",
        "",
        "Ids and epochs are strings, for they use all of 64 bits. Figures are numbers below 2^53. Bytes and counts are",
        "plain; names end in their unit. Times are as in the JSON of protobuf. What is not ASCII is escaped. A refusal",
        "prints nothing here: its sentence goes to standard error, and the exit status says what kind it is.",
        "",
        "A job's `token` is there after `job open`, and after `job show --show-token`; who has it may join the job.",
    ]
    for names, shape in by_shape:
        lines += ["", "## " + ", ".join(f"`{name}`" for name in names), "", *_table(shape)]
    for name, shape in parts.items():
        lines += ["", f"## {name}", "", *_table(shape)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
