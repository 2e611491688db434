"""The ctypes declarations against the header they mirror: a C compiler says what is right."""

from __future__ import annotations

import ctypes
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import tierd
from tierd import library

INCLUDE = pathlib.Path(__file__).resolve().parents[3] / "libclient" / "include"
HEADER = (INCLUDE / "tier" / "tier.h").read_text()
STRUCTURES: dict[str, type[ctypes.Structure]] = {
    "tier_connect_options": library.ConnectOptions,
    "tier_session_view": library.SessionFields,
    "tier_range": library.Range,
    "tier_tensor_view": library.TensorFields,
    "tier_copy_options": library.CopyOptions,
    "tier_copy_outcome": library.CopyOutcome,
    "tier_stats_view": library.StatsFields,
}
CONSTANTS = {
    "TIER_WRITE": library.WRITE, "TIER_SHARED": library.SHARED, "TIER_ABANDON": library.ABANDON,
    "TIER_NO_WAIT_OWN": library.NO_WAIT_OWN, "TIER_DISCARD": library.DISCARD, "TIER_NO_WAIT": library.NO_WAIT,
    "TIER_FREE_AFTER": library.FREE_AFTER, "TIER_UNTOUCHED": library.UNTOUCHED, "TIER_SHARDED": library.SHARDED,
    "TIER_EVICT_FIRST": library.EVICT_FIRST, "TIER_TRANSIENT": library.TRANSIENT,
    "TIER_TIMEOUT": library.TIMEOUT, "TIER_NO_MEMORY": library.NO_MEMORY, "TIER_WOULD_DEADLOCK": library.WOULD_DEADLOCK,
    "TIER_MODE_ATTACH": library.MODES["attach"], "TIER_MODE_CREATE": library.MODES["create"],
    "TIER_MODE_JOIN": library.MODES["join"], "TIER_MODE_RESUME": library.MODES["resume"],
    "TIER_MODE_RESUME_OR_CREATE": library.MODES["resume_or_create"],
}  # fmt: skip


def test_structures_and_constants_are_the_headers(tmp_path: pathlib.Path) -> None:
    compiler = shutil.which("gcc-12") or shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler: none is on PATH")
    lines = []
    for name, structure in STRUCTURES.items():
        lines.append(f'_Static_assert(sizeof({name}) == {ctypes.sizeof(structure)}, "size of {name}");')
        for field, *_ in structure._fields_:
            offset = getattr(structure, field).offset
            lines.append(f'_Static_assert(offsetof({name}, {field}) == {offset}, "{name}.{field}");')
    for constant, value in CONSTANTS.items():
        lines.append(f'_Static_assert({constant} == {value}, "{constant}");')
    source = tmp_path / "layout.c"
    source.write_text("#include <tier/tier.h>\n" + "\n".join(lines) + "\n")
    command = [compiler, "-std=c11", "-fsyntax-only", f"-I{INCLUDE}", str(source)]
    assert subprocess.run(command, capture_output=True, text=True).stderr == ""


def test_every_function_named_here_is_declared_there() -> None:
    declared = set(re.findall(r"TIER_API [\w *]+?\b(tier_\w+)\(", HEADER))
    assert set(library.SIGNATURES) <= declared
    for name, (_, arguments) in library.SIGNATURES.items():
        declaration = re.search(rf"TIER_API [\w *]+?\b{name}\(([^)]*)\)", HEADER)
        assert declaration is not None
        count = 0 if declaration.group(1) == "void" else declaration.group(1).count(",") + 1
        assert len(arguments) == count, name


def test_every_code_of_the_header_has_an_exception() -> None:
    codes = {name: int(value) for name, value in re.findall(r"^\s*TIER_(\w+) = (\d+),?\s*/\*", HEADER, re.MULTILINE)}
    for name, value in codes.items():
        if value:
            assert tierd.errors.BY_CODE[value].name == name.removesuffix("_MISMATCH")


def test_a_missing_library_is_reported_with_the_places_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIERD_LIBRARY", "/nowhere/libtier.so.0")
    library.load.cache_clear()
    try:
        with pytest.raises(tierd.NotFound, match="/nowhere/libtier.so.0"):
            library.load()
    finally:
        library.load.cache_clear()


def last_line_of(script: str) -> str:
    """What Python says last when it runs ``script``."""
    path = {**os.environ, "PYTHONPATH": str(pathlib.Path(tierd.__file__).parents[1])}
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=path)
    return (ended.stdout + ended.stderr).splitlines()[-1]


def test_the_integrations_are_imported_when_they_are_used() -> None:
    said = last_line_of("import sys, tierd; before = 'torch' in sys.modules; print(before, tierd.torch.AdamW.__name__)")
    assert said == "False AdamW"


def test_what_the_package_lacks_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'tierd' has no attribute 'tensors'"):
        _ = tierd.tensors  # type: ignore[attr-defined]


def test_without_torch_the_integrations_say_what_to_install() -> None:
    said = last_line_of("import sys; sys.modules['torch'] = None; import tierd; import tierd.torch")
    assert said == "ModuleNotFoundError: tierd.torch needs PyTorch: pip install torch"


def test_a_torch_that_is_too_old_is_named() -> None:
    said = last_line_of(
        "import sys, types; torch = sys.modules['torch'] = types.ModuleType('torch'); torch.__version__ = '2.6.0'; "
        "torch.optim = types.SimpleNamespace(Adam=type('Adam', (), {}), AdamW=type('AdamW', (), {})); "
        "import tierd.torch"
    )
    assert said == "ImportError: tierd.torch needs PyTorch 2.7 or later, this is 2.6.0: pip install -U torch"
