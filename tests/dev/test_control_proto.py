"""The messages between programs follow the STANDARD rules of buf's linter (https://buf.build/docs/lint/rules).

They are checked on descriptors, which protoc makes. protoc itself refuses what is no valid proto3: a first enumerator
that is not zero, a required field, a cycle of imports.
"""

from __future__ import annotations

import collections
import pathlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

descriptor_pb2: Any = pytest.importorskip("google.protobuf.descriptor_pb2")

ROOT = pathlib.Path(__file__).resolve().parents[2] / "proto"
PASCAL = re.compile(r"(?:[A-Z][a-z0-9]*)+")
LOWER_SNAKE = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")
UPPER_SNAKE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*")
PACKAGE = re.compile(
    r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*(?:\.[a-z][a-z0-9]*(?:_[a-z0-9]+)*)*\.v[1-9]\d*(?:(?:alpha|beta)\d*)?"
)


def compiled(root: pathlib.Path, folder: pathlib.Path) -> list[Any]:
    """The descriptors of all files of a tree. protoc's warnings, as of an import that nothing uses, are failures."""
    protoc = shutil.which("protoc")
    if protoc is None:
        pytest.skip("needs protoc: apt install protobuf-compiler")
    names = [str(path.relative_to(root)) for path in sorted(root.rglob("*.proto"))]
    out = folder / "set.binpb"
    told = subprocess.run(
        [protoc, f"--proto_path={root}", f"--descriptor_set_out={out}", *names], capture_output=True, text=True
    )
    assert told.returncode == 0 and told.stderr == "", told.stderr
    return list(descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file)


def _enums(messages: list[Any]) -> Iterator[Any]:
    for message in messages:
        yield from message.enum_type


def _all_messages(found: list[Any]) -> list[Any]:
    return [each for message in found for each in [message, *_all_messages(list(message.nested_type))]]


def enum_faults(enum: Any) -> Iterator[tuple[str, str]]:
    if not PASCAL.fullmatch(enum.name):
        yield "ENUM_PASCAL_CASE", enum.name
    if enum.options.allow_alias:
        yield "ENUM_NO_ALLOW_ALIAS", enum.name
    prefix = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", enum.name).upper() + "_"
    for value in enum.value:
        if not UPPER_SNAKE.fullmatch(value.name):
            yield "ENUM_VALUE_UPPER_SNAKE_CASE", value.name
        if not value.name.startswith(prefix):
            yield "ENUM_VALUE_PREFIX", value.name
        if value.number == 0 and not value.name.endswith("_UNSPECIFIED"):
            yield "ENUM_ZERO_VALUE_SUFFIX", value.name


def message_faults(message: Any) -> Iterator[tuple[str, str]]:
    if not PASCAL.fullmatch(message.name):
        yield "MESSAGE_PASCAL_CASE", message.name
    for field in message.field:
        if not LOWER_SNAKE.fullmatch(field.name):
            yield "FIELD_LOWER_SNAKE_CASE", f"{message.name}.{field.name}"
    for oneof in message.oneof_decl:
        # protoc's own, behind an optional field, begin with "_".
        if not oneof.name.startswith("_") and not LOWER_SNAKE.fullmatch(oneof.name):
            yield "ONEOF_LOWER_SNAKE_CASE", f"{message.name}.{oneof.name}"


def service_faults(service: Any, uses: collections.Counter[str]) -> Iterator[tuple[str, str]]:
    if not PASCAL.fullmatch(service.name):
        yield "SERVICE_PASCAL_CASE", service.name
    if not service.name.endswith("Service"):
        yield "SERVICE_SUFFIX", service.name
    for rpc in service.method:
        if not PASCAL.fullmatch(rpc.name):
            yield "RPC_PASCAL_CASE", rpc.name
        for used, end in ((rpc.input_type, "Request"), (rpc.output_type, "Response")):
            name = used.rpartition(".")[2]
            if name not in (rpc.name + end, service.name + rpc.name + end):
                yield f"RPC_{end.upper()}_STANDARD_NAME", f"{rpc.name}: {name}"
            if uses[used] > 1:
                yield "RPC_REQUEST_RESPONSE_UNIQUE", f"{rpc.name}: {name}"


def file_faults(file: Any, uses: collections.Counter[str]) -> Iterator[tuple[str, str]]:
    path = pathlib.PurePosixPath(file.name)
    if file.syntax != "proto3":  # proto2, and so does protoc take a file that says nothing.
        yield "SYNTAX_SPECIFIED", file.name
    if not file.package:
        yield "PACKAGE_DEFINED", file.name
    elif not PACKAGE.fullmatch(file.package):
        yield "PACKAGE_VERSION_SUFFIX", file.package
    if path.parent != pathlib.PurePosixPath(*file.package.split(".")):
        yield "PACKAGE_DIRECTORY_MATCH", f"{file.name}: {file.package}"
    if not LOWER_SNAKE.fullmatch(path.stem):
        yield "FILE_LOWER_SNAKE_CASE", file.name
    if file.public_dependency:
        yield "IMPORT_NO_PUBLIC", file.name
    if file.weak_dependency:
        yield "IMPORT_NO_WEAK", file.name
    messages = _all_messages(list(file.message_type))
    for enum in [*file.enum_type, *_enums(messages)]:
        yield from enum_faults(enum)
    for message in messages:
        if not message.options.map_entry:
            yield from message_faults(message)
    for service in file.service:
        yield from service_faults(service, uses)


def faults(files: list[Any]) -> list[tuple[str, str]]:
    """Each broken rule, with what breaks it."""
    rpcs = [rpc for file in files for service in file.service for rpc in service.method]
    uses = collections.Counter(name for rpc in rpcs for name in (rpc.input_type, rpc.output_type))
    found = [fault for file in files for fault in file_faults(file, uses)]
    options = collections.defaultdict(set)
    for file in files:
        options[file.package].add(file.options.SerializeToString(deterministic=True))
    found += [("PACKAGE_SAME_OPTIONS", package) for package, kinds in options.items() if len(kinds) > 1]
    return found


def test_the_interface_follows_the_rules(tmp_path: pathlib.Path) -> None:
    files = compiled(ROOT, tmp_path)
    assert [file.name for file in files if file.service] == ["tier/v1/control.proto"]
    assert faults(files) == []


def test_times_are_googles_types_and_numbers_say_their_unit(tmp_path: pathlib.Path) -> None:
    for file in compiled(ROOT, tmp_path):
        for message in file.message_type:
            for field in message.field:
                # Counters, such as stall_seconds_total, are named as the metrics are.
                assert not re.search(r"_(ms|us|ns|millis|seconds|minutes)$", field.name), field.name
                # Of a page and of a world (torch's word) a size is a count.
                assert not re.fullmatch(r"(?!page_|world_)(.*_)?size(_min|_max)?", field.name), field.name


HEAD = 'syntax = "proto3"; package tier.v1; '
RPC = (
    "message GetXRequest {} message GetXResponse {} service XService { rpc GetX(GetXRequest) returns (GetXResponse); } "
)
BROKEN = {
    "SYNTAX_SPECIFIED": "package tier.v1;",
    "PACKAGE_VERSION_SUFFIX": 'syntax = "proto3"; package tier.one;',
    "PACKAGE_DEFINED": 'syntax = "proto3";',
    "PACKAGE_DIRECTORY_MATCH": 'syntax = "proto3"; package tier.v2;',
    "IMPORT_NO_PUBLIC": HEAD + 'import public "tier/v1/other.proto";',
    "ENUM_PASCAL_CASE": HEAD + "enum some_mode { SOME_MODE_UNSPECIFIED = 0; }",
    "ENUM_NO_ALLOW_ALIAS": HEAD + "enum Mode { option allow_alias = true; MODE_UNSPECIFIED = 0; MODE_B = 0; }",
    "ENUM_VALUE_UPPER_SNAKE_CASE": HEAD + "enum Mode { MODE_UNSPECIFIED = 0; MODE_On = 1; }",
    "ENUM_VALUE_PREFIX": HEAD + "enum OpenMode { OPEN_MODE_UNSPECIFIED = 0; MODE_ON = 1; }",
    "ENUM_ZERO_VALUE_SUFFIX": HEAD + "message M { enum Mode { MODE_OFF = 0; } }",
    "MESSAGE_PASCAL_CASE": HEAD + "message some_message {}",
    "FIELD_LOWER_SNAKE_CASE": HEAD + "message M { message N { uint32 windowCount = 1; } }",
    "ONEOF_LOWER_SNAKE_CASE": HEAD + "message M { oneof Either { uint32 a = 1; uint32 b = 2; } }",
    "SERVICE_PASCAL_CASE": HEAD + "service x_Service {}",
    "SERVICE_SUFFIX": HEAD + RPC.replace("XService", "X"),
    "RPC_PASCAL_CASE": HEAD + RPC.replace("rpc GetX", "rpc getX"),
    "RPC_REQUEST_STANDARD_NAME": HEAD + RPC.replace("GetXRequest", "XRequest"),
    "RPC_RESPONSE_STANDARD_NAME": HEAD + RPC.replace("GetXResponse", "X"),
    "RPC_REQUEST_RESPONSE_UNIQUE": HEAD + RPC.replace("returns (GetXResponse)", "returns (GetXRequest)"),
    "PACKAGE_SAME_OPTIONS": HEAD + 'option java_package = "other";',
}  # fmt: skip


@pytest.mark.parametrize("rule", BROKEN)
def test_each_broken_rule_is_found(rule: str, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "tree" / "tier" / "v1"
    folder.mkdir(parents=True)
    (folder / "other.proto").write_text(HEAD + "message Other {}")
    assert faults(compiled(tmp_path / "tree", tmp_path)) == []
    (folder / "a.proto").write_text(BROKEN[rule])
    try:
        files = compiled(tmp_path / "tree", tmp_path)
    except AssertionError as told:  # A warning of protoc's is a fault as well.
        assert rule == "SYNTAX_SPECIFIED" and "No syntax specified" in str(told)
        return
    assert rule in {name for name, _ in faults(files)}


def test_a_file_in_capitals_and_an_import_without_use_are_found(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "tree" / "tier" / "v1"
    folder.mkdir(parents=True)
    (folder / "Control.proto").write_text(HEAD)
    assert faults(compiled(tmp_path / "tree", tmp_path)) == [("FILE_LOWER_SNAKE_CASE", "tier/v1/Control.proto")]
    (folder / "a.proto").write_text(HEAD + 'import "tier/v1/Control.proto";')
    with pytest.raises(AssertionError, match="unused"):
        compiled(tmp_path / "tree", tmp_path)
