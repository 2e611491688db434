"""Each style rule on a small tree that breaks it, and on one that does not."""

from __future__ import annotations

import pathlib
import subprocess
import textwrap

import compiler_rules
import engine_rules
import layer_rules
import name_rules
import pytest
import registration_rules
import size_rules
from cxx_functions import functions_of
from source_tree import Finding, SourceTree, code_of


def tree(**files: str) -> SourceTree:
    """tree(daemon__base__x__h="...") -> {"daemon/base/x.h": "..."}"""
    return SourceTree.of(
        {
            name.replace("__", "/")[::-1].replace("/", ".", 1)[::-1]: textwrap.dedent(text)
            for name, text in files.items()
        }
    )


def rules(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(finding.rule, finding.path) for finding in findings]


def test_an_include_that_points_up_is_found() -> None:
    bad = tree(daemon__base__x__h='#include "daemon/tiering/y.h"\n', daemon__tiering__y__h="")
    assert rules(layer_rules.check_layers(bad)) == [("layers", "daemon/base/x.h")]
    good = tree(daemon__base__x__h="", daemon__tiering__y__h='#include "daemon/base/x.h"\n')
    assert layer_rules.check_layers(good) == []


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("daemon/memory/a.h", "daemon/storage/b.h"),
        ("daemon/storage/b.h", "daemon/memory/a.h"),
        ("daemon/control/a.h", "daemon/metrics/b.h"),
        ("daemon/session/a.h", "libclient/ring/b.h"),
        ("libclient/a.cc", "daemon/base/b.h"),
        ("proto/a.h", "daemon/base/b.h"),
        ("daemon/config/a.h", "tests/support/b.h"),
    ],
)
def test_a_forbidden_pair_of_layers_is_found(path: str, target: str) -> None:
    bad = SourceTree.of({path: f'#include "{target}"\n', target: ""})
    assert rules(layer_rules.check_layers(bad)) == [("layers", path)]


def test_an_include_of_nothing_is_found() -> None:
    bad = tree(daemon__base__x__h='#include "daemon/base/gone.h"\n')
    assert rules(layer_rules.check_layers(bad)) == [("layers", "daemon/base/x.h")]


@pytest.mark.parametrize(
    ("path", "header"),
    [
        ("daemon/storage/file.cc", "liburing.h"),
        ("daemon/tiering/engine.cc", "boost/asio.hpp"),
        ("daemon/memory/window.cc", "boost/interprocess/mapped_region.hpp"),
        ("daemon/session/session.cc", "grpcpp/grpcpp.h"),
        ("daemon/control/service.cc", "prometheus/counter.h"),
        ("daemon/main.cc", "toml++/toml.h"),
        ("daemon/storage/extent_store.cc", "lmdb.h"),
        ("libclient/client.cc", "cuda.h"),
    ],
)
def test_a_third_party_header_away_from_home_is_found(path: str, header: str) -> None:
    bad = SourceTree.of({path: f"#include <{header}>\n"})
    assert rules(layer_rules.check_homes(bad)) == [("homes", path)]


def test_a_third_party_header_at_home_passes() -> None:
    good = SourceTree.of(
        {
            "daemon/storage/uring_port.cc": "#include <liburing.h>\n",
            "tests/unit/storage/x_test.cc": "#include <lmdb.h>\n",
        }
    )
    assert layer_rules.check_homes(good) == []


@pytest.mark.parametrize("header", ["<mutex>", "<thread>", "<random>", "<sys/socket.h>", '"daemon/base/clock.h"'])
def test_tiering_with_a_clock_or_a_lock_is_found(header: str) -> None:
    bad = SourceTree.of({"daemon/tiering/engine.h": f"#include {header}\n"})
    assert rules(layer_rules.check_tiering_is_pure(bad)) == [("tiering-pure", "daemon/tiering/engine.h")]


def test_a_long_file_is_found() -> None:
    bad = SourceTree.of({"proto/a.h": "\n" * 301, "proto/a.cc": "\n" * 500, "proto/b.cc": "\n" * 501})
    assert rules(size_rules.check_file_sizes(bad)) == [("file-size", "proto/a.h"), ("file-size", "proto/b.cc")]


def test_a_long_function_is_found_by_name() -> None:
    body = "  int x = 0;\n" * 60
    bad = SourceTree.of({"proto/a.cc": f"namespace tier {{\nvoid Long(int a) {{\n{body}}}\nvoid Short() {{}}\n}}\n"})
    findings = size_rules.check_functions(bad)
    assert rules(findings) == [("function-size", "proto/a.cc")]
    assert findings[0].text.startswith("Long: 62 lines") and findings[0].line == 2


def test_six_parameters_are_found_and_five_are_not() -> None:
    bad = tree(
        proto__a__cc="""
        void Six(int a, std::map<int, int> b, int c, int d = f(1, 2), int e, void (*g)(int, int)) {}
        void Five(int a, std::map<int, int> b, int c, int d, int e) {}
        Thing::Thing(int a, int b) : a_{a}, b_(b, 1, 2, 3, 4, 5) { Run(); }
        """
    )
    findings = size_rules.check_functions(bad)
    assert [finding.text.split(":")[0] for finding in findings] == ["Six"]


def test_nesting_of_four_is_found_and_lambdas_do_not_count() -> None:
    deep = "void Deep() { if (a) { for (;;) { while (b) { switch (c) { case 1: { break; } } } } } }\n"
    flat = "void Flat() { if (a) { Each([&](int x) { if (x) { y = {1, 2}; } }); } }\n"
    findings = size_rules.check_functions(SourceTree.of({"proto/a.cc": deep + flat}))
    assert [(finding.rule, finding.text.split(":")[0]) for finding in findings] == [("nesting", "Deep")]


def test_functions_are_told_from_types_and_initialisers() -> None:
    names = [
        function.name
        for function in functions_of(
            textwrap.dedent("""
        namespace tier { // {
        enum class Kind : uint8_t { kOne, kTwo };
        constexpr int kTable[] = {1, 2, 3};
        const char* kText = "void NotMe() {";
        template <class T, typename U = std::pair<int, int>>
        auto Free(T t) -> std::vector<T> { return {t}; }
        class Type final : public Base {
         public:
          explicit Type(int a) : a_{a}, b_(a) {}
          bool operator()(int x) const noexcept { return x == a_; }
          int get() const { return a_; }
         private:
          int a_{0};
        };
        TEST(Thing, DoesWhatItSays) { EXPECT_EQ(1, 1); }
        }
        """)
        )
    ]
    assert names == ["Free", "Type", "operator_call", "get", "TEST"]


def test_comments_and_literals_are_not_code() -> None:
    assert code_of('int a; // "x\n/* {\n*/ char b = \'{\'; auto c = R"(\n{)";').count("{") == 0
    assert code_of("int x = 1'000'000; f('a');").count("000") == 2


def test_a_long_line_is_found() -> None:
    bad = SourceTree.of({"proto/a.h": "x" * 120 + "\n" + "ü" * 121 + "\n"})
    assert [(finding.rule, finding.line) for finding in size_rules.check_line_lengths(bad)] == [("line-length", 2)]


def test_too_few_checks_are_found() -> None:
    bad = SourceTree.of({"daemon/memory/a.cc": "int x;\n" * 99 + "TIER_CHECK(a);\n"})
    assert rules(size_rules.check_density(bad)) == [("check-density", "daemon/memory")]
    good = SourceTree.of({"daemon/memory/a.cc": "int x;\n" * 98 + "TIER_CHECK(a);\n" * 2 + "// no code\n" * 100})
    assert size_rules.check_density(good) == []


def test_fewer_tests_than_code_is_found() -> None:
    bad = SourceTree.of({"proto/a.cc": "int x;\n" * 10, "tests/unit/proto/a_test.cc": "int x;\n" * 9})
    assert rules(size_rules.check_tests_per_code(bad)) == [("tests-per-code", "proto")]
    good = SourceTree.of(
        {
            "proto/a.cc": "int x;\n" * 10,
            "tests/unit/proto/a_test.cc": "int x;\n" * 6,
            "tests/fuzz/proto/a_fuzz.cc": "int x;\n" * 4,
        }
    )
    assert size_rules.check_tests_per_code(good) == []


@pytest.mark.parametrize(
    "path",
    [
        "proto/utils.h",
        "daemon/base/string_helpers.cc",
        "daemon/session/session_manager.h",
        "bindings/python/tierd/common.py",
        "proto/CamelCase.h",
        "proto/tensor_info.h",
    ],
)
def test_a_file_name_that_says_nothing_is_found(path: str) -> None:
    assert rules(name_rules.check_file_names(SourceTree.of({path: ""}))) == [("names", path)]


def test_an_adjective_is_no_empty_noun() -> None:
    assert name_rules.check_file_names(SourceTree.of({"tests/support/session/data_client.h": ""})) == []


def test_a_type_name_that_says_nothing_is_found() -> None:
    bad = SourceTree.of({"proto/a.h": "class JobManager {};\nstruct Extent {};\n// class NotAHelper\n"})
    assert [finding.line for finding in name_rules.check_type_names(bad)] == [1]


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        ("unfinished", "// TO" + "DO: later"),
        ("unfinished", "# FIX" + "ME"),
        ("machine-path", "see /ro" + "ot/x"),
        ("machine-path", "cd /ho" + "me/me"),
        ("machine-path", "https://pypi" + ".org/simple"),
    ],
)
def test_a_word_that_must_not_land_is_found(rule: str, line: str) -> None:
    assert rules(name_rules.check_words(SourceTree.of({"proto/a.h": line}))) == [(rule, "proto/a.h")]


def test_ordinary_paths_pass() -> None:
    good = SourceTree.of({"docs/a.md": "build/work/x $ROOT/root/ /proc/self/root and ~/home\n"})
    assert name_rules.check_words(good) == []


def test_a_folder_without_readme_and_a_long_readme_are_found() -> None:
    bad = SourceTree.of({"daemon/README.md": "x\n" * 61, "daemon/base/a.h": "", "README.md": "x\n" * 151})
    assert rules(name_rules.check_readmes(bad)) == [
        ("readme", "daemon/base"),
        ("readme", "README.md"),
        ("readme", "daemon/README.md"),
    ]


def test_an_unregistered_test_is_found() -> None:
    bad = SourceTree.of(
        {
            "tests/unit/proto/CMakeLists.txt": "tier_test(a SOURCES a_test.cc) # b_test.cc\n",
            "tests/unit/proto/a_test.cc": "",
            "tests/unit/proto/b_test.cc": "",
            "proto/dead.cc": "",
        }
    )
    assert rules(registration_rules.check_sources_are_built(bad)) == [
        ("dead-file", "proto/dead.cc"),
        ("unregistered-test", "tests/unit/proto/b_test.cc"),
    ]


def test_a_source_named_from_the_root_or_by_a_cmake_file_is_registered() -> None:
    good = SourceTree.of(
        {
            "tests/unit/a/CMakeLists.txt": "x(${PROJECT_SOURCE_DIR}/tests/support/fake.cc)",
            "tests/support/fake.cc": "",
            "daemon/main.cmake": "add_executable(tierd main.cc)",
            "daemon/main.cc": "",
            "lib/CMakeLists.txt": "foreach(k ${D}/kernels.cc)",
            "lib/kernels.cc": "",
        }
    )
    assert registration_rules.check_sources_are_built(good) == []


def test_a_python_test_that_is_not_collected_is_found() -> None:
    bad = SourceTree.of(
        {
            "tests/e2e/swap_checks.py": "def test_swap() -> None: ...\n",
            "tests/e2e/test_a.py": "def test_a() -> None: ...\n",
        }
    )
    assert rules(registration_rules.check_python_tests_are_collected(bad)) == [
        ("unregistered-test", "tests/e2e/swap_checks.py")
    ]


def test_a_header_that_nobody_includes_is_found() -> None:
    bad = SourceTree.of(
        {"proto/a.h": "", "proto/b.h": "", "proto/b.cc": '#include "proto/b.h"\n', "libclient/include/tier/tier.h": ""}
    )
    assert rules(registration_rules.check_headers_are_included(bad)) == [("dead-file", "proto/a.h")]


def test_a_readme_command_that_no_test_runs_is_found() -> None:
    bad = SourceTree.of({"README.md": "```sh\ntools/dev demo   # minutes\nrm -rf x\n```\n```python\nx\n```\n"})
    covered = {"tools/dev demo": "run by hand: minutes", "gone": "tests/e2e/test_gone.py::test_x"}
    texts = [finding.text for finding in registration_rules.check_readme_commands(bad, covered)]
    assert len(texts) == 3 and "`rm -rf x`" in texts[0] and "`gone`" in texts[1] and "is gone" in texts[2]


FLAGS = "target_compile_options(tier_flags INTERFACE\n  -Wall -Wconversion -Wno-sign-conversion)\n"


def conversions(flags: str = FLAGS, **lists: str) -> list[tuple[str, str]]:
    files = {"cmake/TierTargets.cmake": flags} | {f"{path}/CMakeLists.txt": text for path, text in lists.items()}
    return rules(compiler_rules.check_conversions_warn(SourceTree.of(files)))


@pytest.mark.parametrize("flags", ["", FLAGS.replace("-Wconversion", "-Wextra"), FLAGS.replace("-Wall", "# ")])
def test_flags_without_conversion_are_found(flags: str) -> None:
    assert conversions(flags) == [("conversions", "cmake/TierTargets.cmake")]


@pytest.mark.parametrize(
    "text",
    [
        "add_executable(a a.cc)\ntarget_link_libraries(a PRIVATE b)  # tier_flags\n",
        "add_library(a_${n} OBJECT\n  x.h a.cc)\ntarget_link_libraries(b PRIVATE tier_flags)\n",
        "function(f name)\nadd_executable(${name} ${ARG_SOURCES})\nendfunction()\n",
        "target_compile_options(a PRIVATE -Wno-conversion)\n",
        "set_source_files_properties(a.cc PROPERTIES COMPILE_OPTIONS -w)\n",
    ],
)
def test_a_target_without_conversion_warnings_is_found(text: str) -> None:
    assert conversions(proto=text) == [("conversions", "proto/CMakeLists.txt")]


def test_targets_with_the_flags_and_those_that_compile_no_source_of_ours_pass() -> None:
    linked = "add_library(a_${n} OBJECT a.cc)\ntarget_link_libraries(a_${n} PUBLIC b PRIVATE\n  tier_flags)\n"
    others = 'add_library(c STATIC $<TARGET_OBJECTS:a>)\nadd_executable(d d.c)\nadd_library(e "${generated}/e.pb.cc")\n'
    assert conversions(proto=linked + others) == []


TIDY = """
Checks: >
  -*,
  readability-function-size,
WarningsAsErrors: '*'
CheckOptions:
  readability-function-size.LineThreshold: 60
  readability-function-size.ParameterThreshold: 5
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("  readability-function-size,", "  -readability-function-size,"),
        ("LineThreshold: 60", "LineThreshold: 600"),
        ("  readability-function-size.Par", "  # readability-function-size.Par"),
        ("'*'", "''"),
    ],
)
def test_a_tidy_that_measures_less_is_found(before: str, after: str) -> None:
    bad = SourceTree.of({".clang-tidy": TIDY.replace(before, after)})
    assert rules(compiler_rules.check_tidy_measures_functions(bad)) == [("tidy", ".clang-tidy")]
    assert compiler_rules.check_tidy_measures_functions(SourceTree.of({".clang-tidy": TIDY})) == []


STATES = """
enum class Copies : uint8_t {
  kRam,  // kNothing
  kLost,
};
enum class Activity : uint8_t { kNone };
"""


@pytest.mark.parametrize(
    ("path", "use"),
    [
        ("daemon/tiering/tables/transitions.h", "Copies a = Copies::kLost;\n"),
        ("daemon/tiering/b.cc", "// Copies::kLost\n"),
        ("daemon/tiering/b.cc", 'switch (c) {\n  case Copies::kLost:\n    return "lost";\n}\n'),
        ("daemon/tiering/b.cc", "Copies a = Copies::kLostToo;\n"),
        ("tests/b_test.cc", "Copies a = Copies::kLost;\n"),
    ],
)
def test_a_dead_state_is_found(path: str, use: str) -> None:
    alive = {"daemon/tiering/a.cc": "if (p == Copies::kRam) Set(Activity::kNone);\n"}
    states = {"daemon/tiering/tables/piece.h": STATES}
    findings = engine_rules.check_states_are_used(SourceTree.of(states | alive | {path: use}))
    assert [(finding.rule, finding.text.split()[-1]) for finding in findings] == [("dead-state", "Copies::kLost")]
    used = {"daemon/tiering/b.cc": "case Copies::kLost: return Copies::kRam;\n"}
    assert engine_rules.check_states_are_used(SourceTree.of(states | alive | used)) == []


def test_an_engine_thread_that_reads_the_host_is_found() -> None:
    body = "void Turn() { // RefreshHost()\n  arena.RefreshHost();\n}\n"
    paths = ["daemon/memory/a.cc", "daemon/session/a.cc", "daemon/tiering/a.cc", "tests/unit/memory/a_test.cc"]
    findings = engine_rules.check_host_is_read_in_memory(SourceTree.of(dict.fromkeys(paths, body)))
    assert [finding.path for finding in findings] == ["daemon/session/a.cc", "daemon/tiering/a.cc"]
    assert findings[0].line == 2 and findings[0].text.startswith("Turn ")


@pytest.mark.parametrize(
    "loop",
    [
        "for (JobState* job : tables.jobs.open()) job->Visit();",
        "for (JobState* job :\n       tables_.jobs().open()) {}",
        "std::ranges::any_of(tables.jobs.open(), f);",
        "tables.jobs.ForEach([](JobState& job) {});",
    ],
)
def test_a_visit_of_every_job_is_found_by_function(loop: str) -> None:
    bad = SourceTree.of({"daemon/tiering/a.cc": f"void Fine() {{}}\nvoid Turn() {{\n  {loop}\n}}\n"})
    findings = engine_rules.check_loops_over_jobs(bad)
    assert rules(findings) == [("all-jobs", "daemon/tiering/a.cc")] and findings[0].text.startswith("Turn ")


def test_the_number_of_jobs_may_be_asked() -> None:
    good = SourceTree.of(
        {"daemon/tiering/a.cc": "bool One() { return jobs.open().size() == 1 || Each(file.open()); }\n"}
    )
    assert engine_rules.check_loops_over_jobs(good) == []


def test_the_tree_holds_what_git_would_and_no_binaries(tmp_path: pathlib.Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("/build/\n")
    (tmp_path / "build").mkdir()
    (tmp_path / "build/a.h").write_text("")
    (tmp_path / "a.h").write_text("x")
    (tmp_path / "b.bin").write_bytes(b"\0\1")
    assert SourceTree.read(tmp_path).paths() == [".gitignore", "a.h"]
