"""The rules of units and of folders inside a layer, each on a small tree that breaks it, and on one that does not."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess

import layer_rules
import name_rules
import pytest
import unit_rules
from source_tree import SourceTree
from unit_rules import Upward

ORDER: dict[str, tuple[str, ...]] = {"daemon/tiering/": ("pieces", "leases")}


def findings_by_includes(files: dict[str, str]) -> list[tuple[str, str]]:
    graph = unit_rules.include_graph(SourceTree.of(files))
    return [(finding.path, finding.text) for finding in unit_rules.cycle_findings(graph)]


def test_a_header_and_its_source_are_one_unit() -> None:
    alone = {"proto/a.h": "", "proto/a.cc": '#include "proto/a.h"\n'}
    assert findings_by_includes(alone) == []


def test_an_include_cycle_of_units_that_no_header_shows_is_found() -> None:
    planted = {
        "daemon/base/a.h": "",
        "daemon/base/a.cc": '#include "daemon/base/a.h"\n#include "daemon/base/b.h"\n',
        "daemon/base/b.h": '#include "daemon/base/c.h"\n',
        "daemon/base/c.h": "",
        "daemon/base/c.cc": '#include "daemon/base/a.h"\n',
        "daemon/base/above.cc": '#include "daemon/base/a.h"\n',
    }
    assert findings_by_includes(planted) == [
        ("daemon/base/a", "daemon/base/a -> daemon/base/b -> daemon/base/c -> daemon/base/a"),
        ("daemon/base/b", "daemon/base/b -> daemon/base/c -> daemon/base/a -> daemon/base/b"),
        ("daemon/base/c", "daemon/base/c -> daemon/base/a -> daemon/base/b -> daemon/base/c"),
    ]


class Build:
    """Sources in a folder, and a build folder as CMake leaves it: object files and compile_commands.json."""

    def __init__(self, root: pathlib.Path, files: dict[str, str]) -> None:
        compiler = shutil.which("g++-12")
        if compiler is None:
            pytest.skip("needs g++-12: planted object files are compiled")
        self.root = root
        self.build = root / "build"
        self.tree = SourceTree.of(files)
        commands = []
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        for path in (path for path in files if path.endswith(".cc")):
            folder, name = path.rsplit("/", 1)
            words = [compiler, "-I", str(root), "-o", f"{folder}/CMakeFiles/x.dir/{name}.o", "-c", str(root / path)]
            (self.build / folder / "CMakeFiles/x.dir").mkdir(parents=True, exist_ok=True)
            subprocess.run(words, cwd=self.build, check=True)
            commands.append({"directory": str(self.build), "command": " ".join(words), "file": str(root / path)})
        (self.build / "compile_commands.json").write_text(json.dumps(commands))

    def graph(self, upward: tuple[Upward, ...] = ()) -> unit_rules.Graph:
        included = unit_rules.include_graph(self.tree)
        symbols = unit_rules.symbol_graph(unit_rules.object_files(self.tree, self.root, self.build))
        return unit_rules.joined(included, unit_rules.without_upward(symbols, included, upward))


# Look() is declared below, beside its caller, and defined above: the includes point down only.
CALL_CYCLE = {
    "daemon/base/low.h": "void Look();\nvoid Low();\n",
    "daemon/base/low.cc": '#include "daemon/base/low.h"\nvoid Low() { Look(); }\n',
    "daemon/base/high.cc": '#include "daemon/base/low.h"\nvoid Look() { Low(); }\n',
}
LOOK = Upward("Look", "daemon/base/low", "daemon/base/high")


def test_a_call_cycle_that_no_include_shows_is_found_in_object_files(tmp_path: pathlib.Path) -> None:
    planted = Build(tmp_path, CALL_CYCLE)
    assert unit_rules.cycles(unit_rules.include_graph(planted.tree)) == []
    assert unit_rules.cycles(planted.graph()) == [["daemon/base/high", "daemon/base/low"]]


def test_a_call_up_passes_by_an_entry_of_the_table(tmp_path: pathlib.Path) -> None:
    planted = Build(tmp_path, CALL_CYCLE)
    assert unit_rules.cycles(planted.graph((LOOK,))) == []
    included = unit_rules.include_graph(planted.tree)
    symbols = unit_rules.symbol_graph(unit_rules.object_files(planted.tree, planted.root, planted.build))
    gone = Upward("Gone", "daemon/base/high", "daemon/base/low")
    findings = unit_rules.unneeded_findings((LOOK, gone), symbols, included)
    assert [finding.text for finding in findings] == ["Gone of daemon/base/high: nothing needs the entry any more"]


def test_symbols_that_several_units_define_are_nobodys(tmp_path: pathlib.Path) -> None:
    """Inline functions and templates (weak) lie in every object file; so may a function that several units define."""
    header = "inline int Twice(int x) { return 2 * x; }\nint Own();\n"
    code = '#include "proto/a.h"\nint Own() { return Twice(1); }\n'
    planted = Build(tmp_path, {"proto/a.h": header, "proto/b.cc": code, "proto/c.cc": code})
    assert planted.graph() == {"proto/a": set(), "proto/b": {"proto/a"}, "proto/c": {"proto/a"}}


def test_a_missing_or_outdated_object_file_is_said(tmp_path: pathlib.Path) -> None:
    planted = Build(tmp_path, CALL_CYCLE)
    newer = (tmp_path / "build/daemon/base/CMakeFiles/x.dir/low.cc.o").stat().st_mtime + 1
    os.utime(tmp_path / "daemon/base/low.cc", (newer, newer))
    with pytest.raises(unit_rules.BuildMissing, match=r"daemon/base/low\.cc"):
        planted.graph()
    with pytest.raises(unit_rules.BuildMissing, match="is not configured"):
        unit_rules.object_files(planted.tree, tmp_path, tmp_path / "none")


# The session implements what the engine, which it needs, calls.
INTERFACE = {
    "daemon/tiering/sink.h": (
        "class Sink {\n public:\n  virtual ~Sink() = default;\n  Sink(const Sink&) = delete;\n"
        "  virtual void Put(int reply) = 0;\n};\n"
    ),
    "daemon/tiering/engine.h": '#include "daemon/tiering/sink.h"\nclass Engine { Sink& sink_; };\n',
    "daemon/session/table.h": (
        '#include "daemon/tiering/engine.h"\nclass Table final : public Sink { Engine engine_; };\n'
    ),
}


def upward(files: dict[str, str]) -> list[Upward]:
    tree = SourceTree.of(files)
    return unit_rules.upward_interfaces(tree, unit_rules.include_graph(tree))


def test_an_interface_that_is_implemented_above_its_caller_is_found() -> None:
    found = Upward("Sink", "daemon/tiering/sink", "daemon/session/table")
    assert upward(INTERFACE) == [found]
    assert [finding.path for finding in unit_rules.upward_findings([found], [])] == ["daemon/session/table"]
    assert unit_rules.upward_findings([found], [found]) == []


def test_an_interface_that_is_implemented_below_its_caller_passes() -> None:
    below = '#include "daemon/tiering/sink.h"\nclass Table final : public Sink {};\n'
    assert upward({**INTERFACE, "daemon/session/table.h": below}) == []


def test_an_include_up_between_folders_of_a_layer_is_found() -> None:
    planted = SourceTree.of(
        {
            "daemon/tiering/pieces/piece.h": '#include "daemon/tiering/leases/lease.h"\n',
            "daemon/tiering/pieces/state.h": '#include "daemon/tiering/engine.h"\n',
            "daemon/tiering/leases/lease.h": '#include "daemon/tiering/pieces/state.h"\n',
            "daemon/tiering/engine.h": '#include "daemon/tiering/leases/lease.h"\n',
            "daemon/tiering/odds/end.h": "",
        }
    )
    assert [(finding.path, finding.text) for finding in layer_rules.check_folder_order(planted, ORDER)] == [
        ("daemon/tiering/odds/end.h", "folder 'odds' has no place in FOLDER_ORDER of layer_rules.py"),
        ("daemon/tiering/pieces/piece.h", "daemon/tiering/leases/lease.h is above it in FOLDER_ORDER"),
        ("daemon/tiering/pieces/state.h", "daemon/tiering/engine.h is above it in FOLDER_ORDER"),
    ]


def test_a_folder_inside_a_layer_of_the_daemon_has_a_short_readme() -> None:
    bad = SourceTree.of(
        {
            "daemon/README.md": "",
            "daemon/tiering/README.md": "",
            "daemon/tiering/pieces/piece.h": "",
            "daemon/tiering/leases/README.md": "x\n" * 61,
        }
    )
    assert [finding.path for finding in name_rules.check_readmes(bad)] == [
        "daemon/tiering/pieces",
        "daemon/tiering/leases/README.md",
    ]
