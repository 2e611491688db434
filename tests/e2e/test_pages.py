"""Every code block of the pages for users: run, compiled, or checked as a configuration; what it prints is what the
page shows. Blocks that need a host of their own say why in the page's source, and are looked up in each program's help.
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator

import launcher
import pytest
import shell_words
from launcher import BUILD, ROOT
from page_blocks import Block, blocks, user_pages

import tierd

PAGES = list(user_pages())
BLOCKS = [block for page in PAGES for block in blocks(page)]
# Pages whose blocks other tests run, against answers of their own.
ELSEWHERE = {"README.md": "test_readme.py", "docs/training.md": "test_training_guide.py"}
RUN = [block for block in BLOCKS if block.run.split()[0] in ("whole", "partly") and block.page not in ELSEWHERE]
LANGUAGES = ("sh", "python", "c", "toml", "ini", "yaml")
# tierctl ends with 6 where the daemon is degraded, as on a machine that locks no memory: no failure of the page.
TIERCTL = '#!/bin/sh\n"{program}" "$@"\nstatus=$?\n[ $status = 6 ] || exit $status\n'
C_FLAGS = "-std=c11 -Wall -Wextra -Wno-missing-field-initializers -Werror".split()


def of(language: str) -> list[Block]:
    return [block for block in RUN if block.language == language]


def test_every_block_is_of_a_language_that_is_run() -> None:
    assert [str(block) for block in BLOCKS if block.language not in LANGUAGES and block.page not in ELSEWHERE] == []
    assert len(of("sh")) > 5 and len(of("python")) > 1 and len(of("c")) > 0 and len(of("toml")) > 1


def test_every_block_that_is_not_run_says_why_and_is_of_the_shell() -> None:
    unrun = [block for block in BLOCKS if block.run != "whole run"]
    assert [str(block) for block in unrun if block.language != "sh" or len(block.reason) < 15] == []
    assert [str(block) for block in unrun if block.run == "partly run" and not block.script] == []


def test_a_block_that_another_test_runs_names_one_that_types_it() -> None:
    tests = {block.reason.split()[0] for block in BLOCKS if block.run == "run by"}
    assert tests and all("run_by(__file__)" in (ROOT / test).read_text() for test in tests)


def test_no_command_in_a_sentence_is_split_over_lines() -> None:
    """It is pasted from the page's source too, as from a terminal or an alert's runbook."""
    split = []
    for page in PAGES:
        text = re.sub(r"^ *```.*?^ *```$", "", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)
        for paragraph in text.split("\n\n"):
            split += [f"{page}: {code}" for code in re.findall(r"`([^`]+)`", paragraph) if "\n" in code]
    assert split == []


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[launcher.Running]:
    """A daemon where clients look for one, and in it the job that runbooks call JOB."""
    launcher.need_build()
    runtime = tmp_path_factory.mktemp("run", numbered=True)
    folder = runtime / "tierd"
    folder.mkdir(mode=0o700)
    with launcher.start(folder, arena="64MiB", tier="1GiB") as running:
        with tierd.connect(job="JOB", socket=running.socket) as client:
            client.put("weights", bytes(1 << 20))
            yield running


def environment(folder: pathlib.Path, runtime: pathlib.Path, **extra: str) -> dict[str, str]:
    """For a program in `folder` that looks for a daemon in `runtime`; tierd and tierctl are on its PATH."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    (programs / "tierctl").write_text(TIERCTL.format(program=BUILD / "tools/tierctl/tierctl"))
    (programs / "tierctl").chmod(0o755)
    for name, program in (("tierd", BUILD / "daemon/tierd"), ("python3", pathlib.Path(sys.executable))):
        (programs / name).unlink(missing_ok=True)
        (programs / name).write_text(f'#!/bin/sh\nexec "{program}" "$@"\n')
        (programs / name).chmod(0o755)
    known = launcher.environment(XDG_RUNTIME_DIR=str(runtime), HOME=str(folder), **extra)
    known["PATH"] = f"{programs}:{known['PATH']}"
    for name in ("TIERD_SOCKET", "TIERD_JOB_TOKEN"):
        known.pop(name, None)
    return known


def run(command: list[str | pathlib.Path], block: Block, folder: pathlib.Path, known: dict[str, str]) -> None:
    found = subprocess.run(command, cwd=folder, env=known, capture_output=True, text=True, check=False, timeout=120)
    assert found.returncode == 0, f"{block}: {found.stdout}{found.stderr}"
    if block.language != "sh" or block.answer is not None:
        assert found.stdout == (block.answer or ""), f"{block} prints something else than the page shows"


@pytest.mark.parametrize("block", of("sh"), ids=str)
def test_a_shell_block_runs(block: Block, daemon: launcher.Running, tmp_path: pathlib.Path) -> None:
    """In a folder that has the page's other blocks' files, against a daemon."""
    metrics = daemon.metrics_url.split("/")[2]
    text = block.script.replace("UID/JOB", f"{os.getuid()}/JOB").replace("127.0.0.1:9464", metrics)
    run(["bash", "-eu", "-o", "pipefail", "-c", text], block, tmp_path, environment(tmp_path, daemon.directory.parent))


@pytest.mark.parametrize("block", of("python"), ids=str)
def test_a_python_block_runs(block: Block, tmp_path: pathlib.Path) -> None:
    """As the first program of a user: no daemon runs, and it starts one."""
    launcher.need_build()
    with launcher.disk_folder() as disk:
        known = environment(tmp_path, tmp_path, XDG_STATE_HOME=str(disk), TMPDIR=str(disk))
        (tmp_path / "pasted.py").write_text(block.text)
        run([sys.executable, "pasted.py"], block, tmp_path, known)


@pytest.mark.parametrize("block", of("c"), ids=str)
def test_a_c_block_compiles_and_runs(block: Block, daemon: launcher.Running, tmp_path: pathlib.Path) -> None:
    (tmp_path / "pasted.c").write_text(block.text)
    library = BUILD / "libclient"
    where = [f"-I{ROOT / 'libclient/include'}", f"-L{library}", f"-Wl,-rpath,{library}"]
    command = ["gcc-12", *C_FLAGS, *where[:1], "pasted.c", *where[1:], "-ltier", "-o", "pasted"]
    subprocess.run(command, cwd=tmp_path, check=True)
    run([tmp_path / "pasted"], block, tmp_path, environment(tmp_path, daemon.directory.parent))


@pytest.mark.parametrize("block", of("toml"), ids=str)
def test_a_configuration_has_no_mistake(block: Block, tmp_path: pathlib.Path) -> None:
    """Its devices, folders and sizes of memory are a host's own: they are replaced."""
    program = launcher.need_build()
    (tmp_path / "tierd.toml").write_text(block.text)
    known = dict(os.environ, XDG_RUNTIME_DIR=str(tmp_path), XDG_STATE_HOME=str(tmp_path))
    command = [
        program,
        "--check-config",
        "--config",
        "tierd.toml",
        "--set",
        'ssd.devices=["none"]',
        "--set",
        f"daemon.data_directory={tmp_path}",
        "--set",
        "arena.maximum=25%",
        "--set",
        "arena.host_reserve=0",
    ]
    found = subprocess.run(command, cwd=tmp_path, env=known, capture_output=True, text=True, check=False)
    assert found.returncode == 0 and "no mistake found" in found.stdout, f"{block}: {found.stderr}"


@pytest.mark.parametrize("block", of("ini"), ids=str)
def test_systemd_reads_a_drop_in_without_a_word(block: Block, tmp_path: pathlib.Path) -> None:
    """Nothing that it would not say of the unit alone."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze: Debian's systemd")
    unit = tmp_path / "tierd.service"
    text = (ROOT / "deploy/systemd/tierd.service").read_text()
    unit.write_text(re.sub(r"/usr/bin/tierd", "/bin/true", text))
    command = ["systemd-analyze", "verify", "--man=no", str(unit)]
    before = subprocess.run(command, capture_output=True, text=True, check=False).stderr
    (tmp_path / "tierd.service.d").mkdir()
    (tmp_path / "tierd.service.d/drop.conf").write_text(block.text)
    after = subprocess.run(command, capture_output=True, text=True, check=False).stderr
    assert after == before and block.text.startswith("["), f"{block}: {after}"


def has_kind(block: Block) -> bool:
    return block.text.startswith("apiVersion:")


@pytest.mark.parametrize("block", [block for block in of("yaml") if has_kind(block)], ids=str)
def test_a_pod_is_given_the_folder_of_one_owner_and_nothing_else(block: Block) -> None:
    yaml = pytest.importorskip("yaml", reason="needs PyYAML: tools/dev setup installs it")
    spec = yaml.safe_load(block.text)["spec"]
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"]}
    mounts = [mount for container in spec["containers"] for mount in container["volumeMounts"]]
    assert [paths[mount["name"]] for mount in mounts] == ["/run/tierd/owners/pod-a"], str(block)
    assert all(mount["readOnly"] and mount["mountPath"] == "/run/tierd" for mount in mounts), str(block)


@pytest.mark.parametrize("block", [block for block in of("yaml") if not has_kind(block)], ids=str)
def test_a_part_of_prometheus_configuration_is_the_one_that_is_installed(block: Block) -> None:
    yaml = pytest.importorskip("yaml", reason="needs PyYAML: tools/dev setup installs it")
    installed = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    shown = yaml.safe_load(block.text)
    assert shown and all(installed[key] == value for key, value in shown.items()), str(block)


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "sh"], ids=str)
def test_what_a_shell_block_types_exists(block: Block) -> None:
    launcher.need_build()
    assert [fault for words in shell_words.commands(block.text) for fault in shell_words.faults(words)] == []


@pytest.mark.parametrize("page", PAGES)
def test_what_a_sentence_tells_to_type_exists(page: str) -> None:
    """Commands of tierctl, tierd and tools/dev within a sentence."""
    launcher.need_build()
    prose = re.sub(r"^ *```.*?^ *```$", "", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)
    typed = [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose)]
    typed = [code for code in typed if re.match(r"(sudo )?(tierctl|tierd|tools/dev) ", code) and "…" not in code]
    assert [
        fault for code in typed for words in shell_words.commands(code) for fault in shell_words.faults(words)
    ] == []


RESTARTS_BEHIND_A_DRAIN = ("docs/**/*.md", "deploy/man/*", "deploy/deb/postinst")


def test_a_node_is_restarted_only_where_its_drain_succeeded() -> None:
    """A drain that fails leaves jobs running: the restart stands behind && and is no sentence of its own."""
    drains = re.compile(r"tierctl drain --wait\b(?P<between>.{0,60}?)systemctl restart tierd", re.DOTALL)
    found = [
        (path, match["between"])
        for glob in RESTARTS_BEHIND_A_DRAIN
        for path in sorted(ROOT.glob(glob))
        for match in drains.finditer(path.read_text().replace("\\-", "-"))
    ]
    assert len({path for path, _ in found}) >= 6
    assert [(path.name, between) for path, between in found if not re.fullmatch(r" && (sudo )?", between)] == []


def test_a_runbook_says_what_to_do_where_the_drain_of_a_node_with_a_failed_device_fails() -> None:
    """Where the device takes no writes it does fail, and the restart behind && never comes."""
    pages = [path.read_text() for path in sorted(ROOT.glob("docs/runbooks/TierdDevice*.md"))]
    restarts = [page for page in pages if "tierctl drain --wait && " in page]
    assert len(restarts) >= 4
    assert [page.split("\n")[0] for page in restarts if "ends with 1" not in page] == []
    ways = [page for page in pages if "`tierctl drain; systemctl restart tierd`" in page]
    assert ways and all("tierctl job remove UID/JOB" in page and "would lose" in page for page in ways)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("sudo tierctl job forget x", "tierctl has no verb job forget"),
        ("tierctl status | tierctl nonsense", "tierctl has no verb nonsense"),
        ("tierctl drain --forever", "tierctl drain has no option --forever"),
        ("tierd --nonsense=1 2>/dev/null", "tierd has no option --nonsense"),
        ("A=1 tools/dev nonsense", "tools/dev has no verb ['nonsense']"),
        ("tools/dev setup --half # not --full", "tools/dev setup has no option --half"),
        ("tools/dev bench -- --only train", None),
        ("tierctl job open train --named --guarantee 1GiB && tierctl --json status >out", None),
        ("cc x.c $(tierctl nonsense) -o x", "tierctl has no verb nonsense"),
        ("rm -rf /", "rm is no program that pages name (tests/e2e/shell_words.py)"),
        ("systemctl refresh tierd", "systemctl has no verb refresh"),
    ],
)  # fmt: skip
def test_a_word_that_does_not_exist_is_found(line: str, fault: str | None) -> None:
    launcher.need_build()
    if "systemctl" in line and shutil.which("systemctl") is None:
        pytest.skip("needs systemctl: Debian's systemd")
    found = [fault for words in shell_words.commands(line) for fault in shell_words.faults(words)]
    assert found == ([] if fault is None else [fault])
