"""tools/dev as a person meets it: help, refusals, the preflight, the last line of a test run."""

from __future__ import annotations

import os
import pathlib
import re
import resource
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEV = ROOT / "tools/dev"
VERBS = (
    "setup",
    "build",
    "test",
    "check",
    "fmt",
    "tidy",
    "docs",
    "pictures",
    "demo",
    "bench",
    "faults",
    "fuzz",
    "package",
    "clean",
)
PARTS = ("say", "packages", "preflight", "setup")


def dev(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([DEV, *arguments], capture_output=True, text=True, check=False)


def parts(script: str, *prefix: str) -> subprocess.CompletedProcess[str]:
    """Runs `script` with the functions of tools/dev at hand."""
    sources = "; ".join(f"source {ROOT}/tools/dev.d/{part}.sh" for part in PARTS)
    return subprocess.run(
        [*prefix, "bash", "-c", f"set -euo pipefail; ROOT={ROOT}; cd {ROOT}; {sources}; {script}"],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb: str) -> None:
    answer = dev(verb, "--help")
    assert answer.returncode == 0 and answer.stdout.startswith(f"usage: tools/dev {verb}")


def test_the_list_of_verbs_is_whole() -> None:
    answer = dev("--help")
    assert answer.returncode == 0 and all(f"\n  {verb} " in answer.stdout for verb in VERBS)


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("build", "nonsense"),
        ("setup", "--nonsense"),
        ("test", "--nonsense"),
        ("package", "nonsense"),
        ("docs", "nonsense"),
    ],
)
def test_a_wrong_word_is_refused_with_the_right_ones(arguments: tuple[str, ...]) -> None:
    answer = dev(*arguments)
    assert (
        answer.returncode == 2
        and "nonsense" in answer.stderr
        and ("one of" in answer.stderr or "--help" in answer.stderr or "wheel or deb" in answer.stderr)
    )


@pytest.mark.parametrize("verb", ["demo", "bench"])
@pytest.mark.parametrize(("option", "status"), [("--help", 0), ("-h", 0), ("--nonsense", 2)])
def test_options_are_checked_before_anything_is_set_up(verb: str, option: str, status: int) -> None:
    """Without .venv: by the system's Python, which has none of the packages."""
    script = f"source {ROOT}/tools/dev.d/{verb}.sh; dev_setup() {{ exit 9; }}; ensure_setup() {{ exit 9; }}; "
    answer = parts(f"{script} source {ROOT}/tools/dev.d/demo.sh; PATH=/usr/bin:/bin; dev_{verb} -- {option}")
    assert answer.returncode == status, answer.stderr
    if status == 0:
        assert answer.stdout.startswith(f"usage: tools/dev {verb} ") and answer.stderr == ""
    else:
        assert "unrecognized arguments: --nonsense" in answer.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("train --model 121M --ram 256MiB --help", "usage: tools/dev bench "),
        ("train --model 121M --ram 1", "--ram: 1 is less than 16 MiB"),
        ("trains", "'trains' is none of ram, "),
    ],
)
def test_a_part_of_the_bench_is_named_without_an_option(words: str, says: str) -> None:
    script = f"source {ROOT}/tools/dev.d/bench.sh; dev_build() {{ echo builds; exit 9; }}; "
    answer = parts(f"{script} source {ROOT}/tools/dev.d/demo.sh; PATH=/usr/bin:/bin; dev_bench {words}")
    assert answer.returncode == (0 if "--help" in words else 2), answer.stderr
    assert says in answer.stdout + answer.stderr and "builds" not in answer.stdout
    literal = parts(f"{script} check_options() {{ :; }}; dev_bench train --model 121M")
    assert literal.stdout == "builds\n" and literal.returncode == 9


@pytest.mark.parametrize(
    "options",
    [
        "--steps 0",
        "--batch x",
        "--threads 0",
        "--heads 7",
        "--arena x",
        "--arena 1MiB",
        "--ssd 1MiB",
        "--ssd 0",
        "--width 8 --heads 1",
    ],
)
def test_the_demo_refuses_what_cannot_train_before_it_starts(options: str) -> None:
    script = f"source {ROOT}/tools/dev.d/demo.sh; PATH=/usr/bin:/bin"
    answer = parts(f"{script}; check_options bindings/python/demo/options.py {options}")
    assert answer.returncode == 2 and "usage: tools/dev demo" in answer.stderr


def test_without_root_setup_prints_the_one_line_and_exits_2() -> None:
    prefix = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups") if os.geteuid() == 0 else ()
    if prefix and shutil.which("setpriv") is None:
        pytest.skip("needs setpriv: Debian's util-linux")
    answer = parts("present_packages() { true; }; install_debian_packages one-dev two-dev", *prefix)
    if "Permission denied" in answer.stderr:
        pytest.skip("needs a checkout that others may read: it lies below a private folder")
    assert answer.returncode == 2
    assert answer.stdout == "sudo apt-get install -y --no-install-recommends one-dev two-dev\n"


def test_what_is_installed_is_not_installed_again() -> None:
    answer = parts('present_packages() { printf "%s\\n" "$@"; }; install_debian_packages one-dev two-dev')
    assert answer.returncode == 0 and "apt-get" not in answer.stderr + answer.stdout


def test_the_preflight_takes_less_than_a_second_and_shows_the_machine() -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    answer = parts("preflight 1 1; print_phases")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Of processor time: the machine may be busy with other tests.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1.0
    assert answer.returncode == 0, answer.stderr
    for word in ("disk ", "memory ", "compiler ", "io_uring ", "phase 1", "phase 4", "minutes"):
        assert word in answer.stdout


@pytest.mark.parametrize(("needs", "word"), [("999999999 1", "of disk"), ("1 999999999", "of available memory")])
def test_the_preflight_refuses_with_the_figures(needs: str, word: str) -> None:
    answer = parts(f"preflight {needs}")
    assert answer.returncode == 1 and word in answer.stderr and "999999999" in answer.stderr


NO_TORCH = "python_packages_present() { false; }; unset PIP_FIND_LINKS PIP_INDEX_URL PIP_EXTRA_INDEX_URL; "


@pytest.mark.parametrize(
    ("state", "needed"),
    [
        ("", 16384),
        ("PIP_EXTRA_INDEX_URL=https://index.example/simple; ", 16384),
        ("PIP_EXTRA_INDEX_URL=https://index.example/whl/cpu; ", 8192),
        ("PIP_FIND_LINKS=/nowhere; ", 16384),
        ('PIP_FIND_LINKS="/nowhere $WHEELS"; touch "$WHEELS/torch-${TORCH_REQUIREMENT#*==}+cpu-cp311.whl"; ', 8192),
        ("python_packages_present() { true; }; ", 8192),
    ],
)
def test_the_demo_wants_the_disk_that_its_torch_takes(tmp_path: pathlib.Path, state: str, needed: int) -> None:
    """With room for one, before anything is set up."""
    demo = f"source {ROOT}/tools/dev.d/demo.sh; ensure_setup() {{ exit 9; }}; "
    machine = "disk_free_mib() { echo 12000; }; memory_available_mib() { echo 12000; }; "
    answer = parts(f"WHEELS={tmp_path}; {NO_TORCH}{state}{demo}{machine}dev_demo")
    if needed > 12000:
        assert answer.returncode == 1 and f"needs {needed} MiB of disk" in answer.stderr, answer.stderr
        assert "12000" in answer.stderr and "PIP_FIND_LINKS" in answer.stderr
    else:
        assert answer.returncode == 9 and f"12000 MiB free here, {needed} needed" in answer.stdout, answer.stderr


@pytest.mark.parametrize("status", [0, 1])
def test_a_demo_that_succeeds_says_what_to_read_next(status: int) -> None:
    stubs = "".join(f"{name}() {{ true; }}; " for name in ("check_options", "preflight", "ensure_setup", "dev_build"))
    answer = parts(f"source {ROOT}/tools/dev.d/demo.sh; {stubs}with_build_tree() {{ return {status}; }}; dev_demo")
    assert answer.returncode == status, answer.stderr
    last = answer.stderr.splitlines()[-1]
    pages = [word.strip(",") for word in last.split() if word.startswith("docs/")]
    assert len(pages) == (2 if status == 0 else 0) and all((ROOT / page).is_file() for page in pages), last


def test_set_up_installs_no_package_that_carries_a_service() -> None:
    answer = parts('printf "%s\\n" "${BASE_PACKAGES[@]}" "${FULL_PACKAGES[@]}" "${FIO_LIBRARIES[@]}"')
    if shutil.which("dpkg") is None:
        pytest.skip("needs dpkg: Debian")
    present = parts(f"present_packages {' '.join(answer.stdout.split())}").stdout
    listing = subprocess.run(["dpkg", "-L", *present.split()], capture_output=True, text=True, check=False).stdout
    services = [line for line in listing.splitlines() if "/systemd/system/" in line]
    assert present and not services


def test_packaging_tools_count_as_installed_only_when_all_of_them_are(tmp_path: pathlib.Path) -> None:
    """Also for a caller that goes on without them."""
    tools = tmp_path / ".cache/packaging"
    python = tools / "bin/python"
    python.parent.mkdir(parents=True)
    (tmp_path / "tools/dev.d").mkdir(parents=True)
    (tmp_path / "tools/dev.d/packaging.txt").write_text("build==1\n")
    script = f"ROOT={tmp_path}; setup_packaging || echo went on"
    for status, output in ((3, "went on\n"), (0, "")):
        python.write_text(f'#!/bin/sh\necho "$@" >>"{tmp_path}/calls"\nexit {status}\n')
        python.chmod(0o755)
        answer = parts(script)
        assert (answer.returncode, answer.stdout) == (0, output), answer.stderr
        assert (tools / "installed.txt").exists() == (status == 0)
    assert parts(script).stderr == ""  # Nothing is run again.
    assert len((tmp_path / "calls").read_text().splitlines()) == 2


REPORT = """<testsuites><testsuite>
<testcase classname="a" name="good" status="run"/>
<testcase classname="a" name="bad" status="fail"><failure message="x"/></testcase>
<testcase classname="a" name="left out" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>
<system-out>x_test.cc:7: Skipped
needs hugepages: none are free
</system-out></testcase>
</testsuite></testsuites>"""


def count(folder: pathlib.Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/usr/bin/python3", ROOT / "tools/dev.d/count_tests.py", "--minutes", "1.0", folder],
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_last_line_of_a_run_counts_and_reasons_are_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "ctest-release.xml").write_text(REPORT)
    (tmp_path / "phases.txt").write_text("release 8 60\n")
    answer = count(tmp_path)
    assert answer.returncode == 1
    assert answer.stdout.splitlines()[-1] == "1 passed, 1 failed, 1 skipped"
    assert "needs hugepages: none are free" in answer.stdout and "FAILED ctest-release: a::bad" in answer.stdout


def test_a_phase_that_broke_before_its_tests_is_a_failure(tmp_path: pathlib.Path) -> None:
    (tmp_path / "pytest.xml").write_text(REPORT.replace('<failure message="x"/>', ""))
    (tmp_path / "phases.txt").write_text("python 0 1\nasan 1 1\n")
    answer = count(tmp_path)
    assert answer.returncode == 1 and answer.stdout.splitlines()[-1] == "2 passed, 1 failed, 1 skipped"
    assert "phase asan" in answer.stdout


def test_a_test_that_was_not_built_is_a_failure(tmp_path: pathlib.Path) -> None:
    report = REPORT.replace('status="fail"><failure message="x"/>', 'status="run">')
    (tmp_path / "ctest-asan.xml").write_text(
        report.replace("SKIP_REGULAR_EXPRESSION_MATCHED", "Unable to find executable").replace("needs", "")
    )
    (tmp_path / "phases.txt").write_text("asan 1 1\n")
    answer = count(tmp_path)
    assert answer.returncode == 1 and answer.stdout.splitlines()[-1] == "2 passed, 1 failed, 0 skipped"
    assert "FAILED ctest-asan: a::left out (not built)" in answer.stdout


def test_what_the_sanitizers_run_is_what_they_build() -> None:
    labelled = re.compile(r"LABELS[^)]*\b(unit|property)\b")
    elsewhere = [
        path
        for path in sorted((ROOT / "tests").rglob("CMakeLists.txt"))
        if path.relative_to(ROOT / "tests").parts[0] not in ("unit", "property") and labelled.search(path.read_text())
    ]
    assert not elsewhere


def test_nothing_run_is_no_success(tmp_path: pathlib.Path) -> None:
    assert count(tmp_path).returncode == 1


def test_phases_that_count_no_tests_succeed_by_themselves(tmp_path: pathlib.Path) -> None:
    (tmp_path / "phases.txt").write_text("simulation 0 60\nfuzz 0 60\n")
    assert count(tmp_path).returncode == 0
    (tmp_path / "phases.txt").write_text("simulation 0 60\nfuzz 1 60\n")
    assert count(tmp_path).returncode == 1
    (tmp_path / "phases.txt").write_text("release 0 60\nfuzz 0 60\n")
    assert count(tmp_path).returncode == 1


def test_clean_deletes_nothing_it_was_not_asked_for() -> None:
    for arguments in (["--foo"], ["--al"], ["--all", "--foo"]):
        answer = subprocess.run([ROOT / "tools/dev", "clean", *arguments], capture_output=True, text=True, check=False)
        assert answer.returncode == 2 and "unknown arguments" in answer.stderr, answer
    assert not (ROOT / "build").exists() or any((ROOT / "build").iterdir())


def test_every_fuzzer_is_run() -> None:
    names = {path.stem for path in (ROOT / "tests/fuzz").rglob("*fuzz*.cc")}
    assert len(names) >= 4 and all((ROOT / "tests/fuzz/corpus" / name).is_dir() for name in names)
    built = "".join(f"tests/fuzz/x/{name}{kind}\n" for name in sorted(names) for kind in ("", "_test", "_slice"))
    answer = parts(f"source {ROOT}/tools/dev.d/fuzz.sh; test_targets() {{ printf '{built}'; }}; fuzz_binaries")
    assert {pathlib.Path(line).name for line in answer.stdout.splitlines()} == names
