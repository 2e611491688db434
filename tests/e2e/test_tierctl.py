"""`tierctl` beside a real daemon: tables on a terminal, names that tenants chose, help and completion."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import launcher
import pytest
import terminal

import tierd

PROGRAM = launcher.BUILD / "tools/tierctl/tierctl"
# Keys as a tenant may choose them, and how each is shown.
HOSTILE = {
    "\x1b]0;owned\x07": r"\x1b]0;owned\x07",
    "\x1b[2J\x1b[H": r"\x1b[2J\x1b[H",
    "weight\n0x7  shared  9.99 GiB": r"weight\x0a0x7  shared  9.99 GiB",
    "back\b\b\b\x7f\r": r"back\x08\x08\x08\x7f\x0d",
    "c1\x9b31m\x85": r"c1\xc2\x9b31m\xc2\x85",
    "\u202egnirts\u2066": r"\u{202e}gnirts\u{2066}",
    "weiß-重み": "weiß-重み",
}
VERBS = (
    ["status"], ["job", "list"], ["job", "names"], ["job", "show", "hostile"], ["tensor", "list", "hostile"],
    ["device", "list"], ["pool", "map"], ["top", "--once", "--interval", "0.1"], ["events"], ["doctor"],
    ["config", "get"], ["config", "diff"], ["job", "stalls", "hostile"],
)  # fmt: skip


@pytest.fixture(scope="module")
def hostile() -> Iterator[launcher.Running]:
    """A daemon with a job whose tensors have such keys, and one whose name is as long as may be."""
    with (
        tempfile.TemporaryDirectory(prefix="tier-") as folder,
        launcher.start(pathlib.Path(folder), arena="64MiB", tier="128MiB") as running,
        tierd.connect(job="hostile", socket=running.socket) as client,
        tierd.connect(job="n" * 127, socket=running.socket) as other,
    ):
        for key in HOSTILE:
            client.put(key, b"x")
        other.put("k" * 1024, bytes(3 << 20))
        yield running


def run(daemon: launcher.Running, *words: object, **options: object) -> subprocess.CompletedProcess[str]:
    return launcher.run_tierctl(daemon, *words, **options)


def is_visible(text: str) -> bool:
    return all(c == "\n" or (c.isprintable() and c not in "\u202e\u2066") for c in text)


def test_keys_are_listed_by_what_they_are_and_do_nothing(hostile: launcher.Running) -> None:
    listed = run(hostile, "tensor", "list", "hostile")
    assert listed.returncode == 0, listed.stderr
    lines = listed.stdout.splitlines()
    assert len(lines) == 1 + len(HOSTILE), "no key makes a row"
    for shown in HOSTILE.values():
        assert any(line.startswith(shown + " ") for line in lines), shown
    assert is_visible(listed.stdout)
    keys = {
        tensor["key"] for tensor in json.loads(run(hostile, "--json", "tensor", "list", "hostile").stdout)["tensors"]
    }
    assert keys == set(HOSTILE)
    one = run(hostile, "tensor", "show", "hostile", "\x1b[2J\x1b[H")
    assert one.returncode == 0 and r"\x1b[2J\x1b[H" in one.stdout and is_visible(one.stdout)
    absent = run(hostile, "tensor", "show", "hostile", "\x1b[3J")
    assert absent.returncode == 3 and r"no tensor \x1b[3J in job hostile" in absent.stderr


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_no_verb_says_more_than_it_shows(hostile: launcher.Running, words: list[str]) -> None:
    for arguments in (words, ["--json", *words]):
        done = run(hostile, *arguments)
        assert done.returncode in (0, 6), done.stderr
        assert is_visible(done.stdout), ascii(done.stdout)


@pytest.mark.parametrize("columns", [80, 60, 132])
@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_nothing_is_wider_than_the_terminal(hostile: launcher.Running, words: list[str], columns: int) -> None:
    status, text = terminal.shown([PROGRAM, *words, "--socket", hostile.directory], columns)
    assert status in (0, 6), text
    for line in terminal.plain(text).splitlines():
        if words == ["doctor"] and re.match(r" *[→>] ", line):
            continue  # To be pasted: whole.
        assert len(line) <= columns or " " not in line.strip(), line


@pytest.mark.parametrize("words", [["top", "--once"], ["status"], ["job", "list"], ["events"]], ids=" ".join)
def test_what_is_looked_at_most_can_be_read_on_forty_columns(hostile: launcher.Running, words: list[str]) -> None:
    status, text = terminal.shown([PROGRAM, *words, "--socket", hostile.directory], 40)
    assert status in (0, 6), text
    lines = terminal.plain(text).splitlines()
    assert all(len(line) <= 40 or " " not in line.strip() for line in lines), text
    if words[0] in ("top", "job"):
        assert [row for row in lines if re.fullmatch(r"\+\d columns?: wider terminal or --json", row)], text
        assert any(row.startswith("JOB ") and "RAM" in row for row in lines), text


def test_a_table_for_a_pipe_is_whole(hostile: launcher.Running) -> None:
    listed = run(hostile, "job", "list", env={**os.environ, "COLUMNS": "40"})
    assert "n" * 127 in listed.stdout
    assert "k" * 1024 in run(hostile, "tensor", "list", "n" * 127).stdout


def test_a_terminal_cuts_names_and_never_numbers(hostile: launcher.Running) -> None:
    _, narrow = terminal.shown([PROGRAM, "job", "list", "--socket", hostile.directory], 80)
    assert re.search(r"^n+…n+ ", narrow, re.M), narrow
    wide = run(hostile, "job", "list").stdout
    for line in wide.splitlines()[1:]:
        assert line.split()[-2:] == next(row for row in narrow.splitlines() if row[0] == line[0]).split()[-2:]


def test_a_terminal_without_utf8_gets_ascii(hostile: launcher.Running) -> None:
    _, text = terminal.shown(
        [PROGRAM, "tensor", "list", "hostile", "--socket", hostile.directory], 120, {"LC_ALL": "C"}
    )
    assert text.isascii() and r"wei\u{df}-\u{91cd}\u{307f}" in text


def test_a_token_is_shown_only_to_who_asks_for_it(hostile: launcher.Running) -> None:
    token = next(iter(tierd_tokens(hostile)))
    for words in (["job", "show", "hostile"], ["job", "list"], ["job", "set", "hostile", "--limit", "0"]):
        for arguments in (words, ["--json", *words]):
            assert token not in run(hostile, *arguments).stdout, arguments
    assert '"token"' not in run(hostile, "--json", "job", "list").stdout
    assert f"TIERD_JOB_TOKEN={token}" in run(hostile, "job", "show", "hostile", "--show-token").stdout
    assert json.loads(run(hostile, "--json", "job", "show", "hostile", "--show-token").stdout)["token"] == token
    opened = run(hostile, "job", "open", "fresh")
    assert re.search(r"^TIERD_JOB_TOKEN=[0-9a-f]{64}$", opened.stdout, re.M), "who opens it hands it on"
    assert run(hostile, "job", "remove", "fresh").returncode == 0


def tierd_tokens(daemon: launcher.Running) -> Iterator[str]:
    control = pytest.importorskip("tierd.control")
    with control.connect(daemon.directory) as channel:
        yield from (job.token for job in channel.list_jobs(tokens=True) if job.name == "hostile")


def test_a_job_is_shown_with_what_it_is_promised_and_has(hostile: launcher.Running) -> None:
    run(hostile, "job", "set", "hostile", "--guarantee", "8MiB", "--limit", "32MiB")
    text = " ".join(run(hostile, "job", "show", "hostile").stdout.split())
    shown = json.loads(run(hostile, "--json", "job", "show", "hostile").stdout)
    assert shown["guarantee_bytes"] == shown["promised_bytes"] == 8 << 20
    assert "8.00 MiB promised, guarantee 8.00 MiB, 0 B borrowed beyond it, 0 B owed" in text
    assert "limit 32.0 MiB" in text and "held in" in text and "0 B of windows that were taken from it" in text
    run(hostile, "job", "set", "hostile", "--guarantee", "0", "--limit", "0")
    shown = json.loads(run(hostile, "--json", "job", "show", "hostile").stdout)
    assert shown["guarantee_bytes"] == 0 < shown["promised_bytes"]


def test_a_name_of_two_owners_is_refused_and_each_is_found(own_daemon: launcher.Running) -> None:
    launcher.need_user(12345)
    os.chmod(own_daemon.directory, 0o755)
    other = subprocess.Popen(
        [sys.executable, "-c", f"import sys, tierd; c = tierd.connect(job='train', socket={own_daemon.socket!r}); "
         "c.put(1, b'x'); print('there', flush=True); sys.stdin.read()"],
        env=launcher.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/",
        user=12345, group=12345, extra_groups=[],
    )  # fmt: skip
    assert other.stdin and other.stdout and other.stdout.readline() == "there\n"
    with other, tierd.connect(job="train", socket=own_daemon.socket):
        refused = run(own_daemon, "job", "show", "train")
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "2 owners have a job 'train': write uid/train" in refused.stderr
        shown = json.loads(run(own_daemon, "--json", "job", "show", "12345/train").stdout)
        assert (shown["uid"], shown["tensor_count"]) == (12345, 1)
        assert run(own_daemon, "job", "names").stdout.split() == ["0/train", "12345/train"]
        other.stdin.close()


@pytest.mark.parametrize("words", [["status", "--json"], ["status"], ["job", "open", "train"], ["completion", "bash"]],
                         ids=" ".join)  # fmt: skip
def test_an_output_that_is_not_written_is_a_failure(own_daemon: launcher.Running, words: list[str]) -> None:
    command = [str(launcher.need_tierctl()), "--socket", str(own_daemon.directory), *words]
    with pathlib.Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (1, "tierctl: cannot write the output: No space left on device\n")
    if words[0] == "job":
        launcher.tierctl(own_daemon, "job", "remove", "train")


def test_a_burst_of_calls_is_served(own_daemon: launcher.Running) -> None:
    socket = own_daemon.directory / "admin.sock"
    command = [launcher.need_tierctl(), "--socket", socket, "job", "open", "--named"]
    burst = [
        subprocess.Popen([*command, f"burst-{i}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for i in range(48)
    ]
    failures = [error for one in burst if (error := one.communicate(timeout=60)[1]) or one.returncode]
    assert not failures
    names = run(own_daemon, "job", "names").stdout.split()
    assert sorted(names) == sorted(f"burst-{i}" for i in range(48))


def test_a_device_that_the_user_may_not_read_is_refused() -> None:
    launcher.need_user(12345)
    with launcher.disk_folder() as disk:
        disk.chmod(0o755)
        file = disk / "tier.ssd"
        file.touch(mode=0o600)
        os.truncate(file, 64 << 20)
        for words in (["show"], ["format", "--force"]):
            command = [launcher.need_tierctl(), "device", *words, file]
            refused = subprocess.run(command, capture_output=True, text=True, user=12345, group=12345, extra_groups=[])
            assert refused.returncode == 5 and "DENIED" in refused.stderr, refused.stderr


def asked_without_option(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name != "TIERD_SOCKET"}
    command = [launcher.need_tierctl(), *words]
    return subprocess.run(command, capture_output=True, text=True, env={**inherited, **environment}, timeout=60)


def test_the_environment_names_a_directory_as_the_option_does(hostile: launcher.Running) -> None:
    for named in (hostile.directory, hostile.socket, hostile.directory / "control.sock"):
        assert run(named, "job", "names").returncode == 0
        asked = asked_without_option({"TIERD_SOCKET": str(named)}, "job", "names")
        assert asked.returncode == 0 and "hostile" in asked.stdout, asked
    absent = hostile.directory / "absent"
    for asked in (run(absent, "status"), asked_without_option({"TIERD_SOCKET": str(absent)}, "status")):
        assert asked.returncode == 4 and f"{absent}: No such file" in asked.stderr, asked


def test_an_empty_path_of_a_socket_is_refused() -> None:
    refused = asked_without_option({}, "--socket", "", "status")
    assert refused.returncode == 2 and "--socket: the path is empty" in refused.stderr, refused


def test_a_socket_that_a_daemon_left_behind_is_told_as_that(socket_folder: pathlib.Path) -> None:
    path = socket_folder / "control.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left_behind:
        left_behind.bind(str(path))
    refused = run(path, "status")
    assert refused.returncode == 4, refused
    assert f"{path}: nothing listens on it, as its daemon has ended" in refused.stderr, refused
    assert f"start the daemon of {socket_folder} (tierd --set" in refused.stderr and "ipv4" not in refused.stderr, (
        refused
    )


def test_doctor_checks_the_places_of_the_daemon_that_answers(hostile: launcher.Running) -> None:
    status = json.loads(run(hostile, "--json", "status").stdout)
    found: dict[str, list[str]] = {}
    for finding in json.loads(run(hostile, "--json", "doctor").stdout)["findings"]:
        found.setdefault(finding["check"], []).append(finding["found"])
    assert [text.split(":")[0] for text in found["disk"]] == [device["path"] for device in status["devices"]], found
    assert found["sockets"] == [f"{hostile.directory} is the daemon's"], found
    assert found.get("data directory", []) == [
        f"{place} is the daemon's" for place in [status["data_directory"]] if place
    ]
    assert "the arena has" in found["memory"][0], found


def test_version_says_why_a_daemon_is_not_asked(hostile: launcher.Running, socket_folder: pathlib.Path) -> None:
    assert re.fullmatch(r"tierctl (\S+)\ntierd   \1\n", run(hostile, "version").stdout)
    absent = run(socket_folder / "absent.sock", "version")
    assert absent.returncode == 4 and "absent.sock: No such file" in absent.stderr, absent
    assert absent.stdout.endswith("\ntierd   unknown\n"), absent
    launcher.need_user(12345)
    socket_folder.chmod(0o700)
    other = {"user": 12345, "group": 12345, "extra_groups": []}
    denied = run(socket_folder / "control.sock", "--json", "version", cwd="/", **other)
    assert denied.returncode == 5 and "Permission denied" in denied.stderr, denied
    document = json.loads(denied.stdout)
    assert document["tierd"] is None and "Permission denied" in document["reason"], document
    usual = asked_without_option({"XDG_RUNTIME_DIR": str(socket_folder)}, "version")
    if "not running" in usual.stdout:  # No daemon of the machine answers at the other usual places.
        assert usual.returncode == 0 and f"{socket_folder}/tierd/control.sock: No such file" in usual.stdout, usual


def test_a_job_that_is_not_there_is_not_found(hostile: launcher.Running) -> None:
    refused = run(hostile, "job", "show", "absent\x1b[2J")
    assert refused.returncode == 3 and "no job 'absent" in refused.stderr and "\x1b" not in refused.stderr


def test_every_verb_says_the_same_of_a_job_that_is_not_there(hostile: launcher.Running) -> None:
    for words in (["job", "show"], ["job", "stalls"], ["job", "remove"], ["job", "set", "--limit", "1GiB"],
                  ["tensor", "list"], ["drain"]):  # fmt: skip
        refused = run(hostile, *words, "absent")
        assert refused.returncode == 3, refused.stderr
        assert "no job 'absent' among the 2 that you may see (tierctl job list)" in refused.stderr, refused.stderr
        for owner in ("root", "no-such-user"):
            named = run(hostile, *words, f"{owner}/absent")
            assert named.returncode == 3 and f"no job '{owner}/absent'" in named.stderr, named.stderr


def all_verbs() -> list[str]:
    if not PROGRAM.exists():
        return []
    script = subprocess.run([PROGRAM, "completion", "bash"], capture_output=True, text=True, check=True).stdout
    return re.findall(r'^    "([^"]+)"\) offered=', script, re.M)


@pytest.mark.parametrize("verb", all_verbs())
def test_the_help_of_each_verb_has_examples_that_are_right(verb: str) -> None:
    text = subprocess.run([PROGRAM, "help", *verb.split()], capture_output=True, text=True, check=True).stdout
    if verb in ("job", "tensor", "device", "pool", "quota", "config", "socket"):
        assert "Subcommands" in text
        return
    examples = re.findall(r"^  tierctl (.*)$", text[text.index("Example") :], re.M)
    assert 1 <= len(examples) <= 3, text
    options = set(re.findall(r"(--[a-z-]+)", text))
    for example in examples:
        words = re.split(r" [|>] ", example)[0].split()
        assert [word for word in words if not word.startswith("--")][
            : len(verb.split())
        ] == verb.split() or verb == "help"
        assert {word for word in words if word.startswith("--")} <= options, example


def test_the_number_that_since_takes_stands_below_the_events(hostile: launcher.Running) -> None:
    *_, last = run(hostile, "events").stdout.splitlines()
    number = re.fullmatch(r"what comes behind these: tierctl events --since (\d+)", last)
    assert number, last
    assert run(hostile, "events", "--since", number[1]).stdout == ""
    assert "2 with 2 sessions," in run(hostile, "status").stdout


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize("verb", all_verbs())
def test_no_help_is_wider_than_the_terminal(verb: str, columns: int) -> None:
    status, text = terminal.shown([PROGRAM, *verb.split(), "--help"], columns)
    assert status == 0, text
    for line in terminal.plain(text).splitlines():
        assert len(line) <= columns or line.startswith(("  tierctl ", "Usage:")), line


def test_a_default_is_shown_where_an_option_has_one() -> None:
    if not PROGRAM.exists():
        pytest.skip("needs a build")
    for verb, default in (("drain", "such as 90 or 5min (60 s unless said, 1h at most)"),
                          ("drain", "with --wait how long all of it may take (no limit unless said)"),
                          ("tensor list", "--max COUNT=1000"), ("top", "--interval SECONDS=1")):  # fmt: skip
        text = subprocess.run([PROGRAM, *verb.split(), "--help"], capture_output=True, text=True, check=True).stdout
        assert default in " ".join(text.split()), text


def test_a_mistyped_verb_is_answered_with_the_one_that_was_meant() -> None:
    if not PROGRAM.exists():
        pytest.skip("needs a build")
    for words, meant in ((["statsu"], "status"), (["job", "lsit"], "list"), (["evnets"], "events")):
        done = subprocess.run([PROGRAM, *words], capture_output=True, text=True)
        assert done.returncode == 2 and f"did you mean '{meant}'?" in done.stderr


def test_a_mistyped_option_is_answered_with_the_one_that_was_meant() -> None:
    if not PROGRAM.exists():
        pytest.skip("needs a build")
    for words, said in (
        (["job", "set", "train", "--guarante", "4GiB"], "of job set; did you mean '--guarantee'?"),
        (["job", "show", "--shwo-token"], "of job show; did you mean '--show-token'?"),
        (["status", "--jsn"], "of status; did you mean '--json'?"),
        (
            ["config", "set", "engine.write_behind=30%"],
            "write OPTION VALUE: tierctl config set engine.write_behind 30%",
        ),
        (["config", "set", "engine.write_behind"], "an argument is missing: value"),
        (["completion", "tcsh"], 'shell: no script for "tcsh"; one of bash, zsh, fish'),
        (["device", "drain", "abc"], "device: \"abc\" is no number of a device; 'tierctl device list' has them"),
        (["device", "retry", "4294967296"], "is no number of a device"),
        (["job", "set", "train", "--limit", "1PiB"], "--limit: '1PiB' has the unit 'PiB'; known are B, KiB, MiB,"),
        (["top", "--interval", "nan"], '"nan" is no time from 0.1 s to 1 h; write 0.5, 5, 500ms or 1min'),
        (["events", "--since", "-1"], '"-1" is no number of an event, and no time of a second to a year'),
        (["events", "--since", "12345678901234567890123"], "is no number of an event"),
    ):
        done = subprocess.run([PROGRAM, *words], capture_output=True, text=True)
        assert done.returncode == 2 and said in done.stderr, done.stderr


def test_bash_completes_the_jobs_that_there_are(hostile: launcher.Running) -> None:
    typed = "COMP_WORDS=(tierctl job show ho); COMP_CWORD=3"
    script = f"source <({PROGRAM} completion bash); {typed}; _tierctl; echo $COMPREPLY"
    environment = {**os.environ, "TIERD_SOCKET": hostile.socket, "PATH": f"{PROGRAM.parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment, timeout=60)
    assert (done.stdout, done.stderr) == ("hostile\n", "")


def test_each_shell_offers_in_each_place_what_belongs_there(hostile: launcher.Running, tmp_path: pathlib.Path) -> None:
    environment = {**os.environ, "TIERD_SOCKET": hostile.socket, "PATH": f"{PROGRAM.parent}:{os.environ['PATH']}"}
    catch = "compdef() { :; }; compadd() { shift; print -l -- $@; }; _files() { :; }; "
    scripts = {
        "bash": "source {file}; COMP_WORDS=(tierctl {words} ''); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _tierctl; "
        "printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        "zsh": catch.replace("{", "{{").replace("}", "}}")
        + "source {file}; words=(tierctl {words} ''); CURRENT=${{#words}}; _tierctl",
        "fish": "source {file}; complete -C 'tierctl {words} ' | cut -f1",
    }
    for shell, script in scripts.items():
        if shutil.which(shell) is None:
            continue
        file = tmp_path / shell
        file.write_bytes(subprocess.run([PROGRAM, "completion", shell], capture_output=True, check=True).stdout)

        def offered(words: str, shell: str = shell, script: str = script, file: pathlib.Path = file) -> set[str]:
            command = [shell, "-c", script.format(file=file, words=words)]
            done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=60)
            assert done.stderr == "", (shell, words)
            return {word for word in done.stdout.splitlines() if word and word[0] != "-"} - {"bash", "zsh", "fish"}

        assert "hostile" in offered("tensor show"), shell
        assert "hostile" not in offered("tensor show hostile"), f"{shell}: a tensor belongs there"
        assert offered("device drain") == {"0"}, shell
        assert offered("device purge") == set(), f"{shell}: none is missing"
        assert offered("quota set") == {"default", "user", "group"}, shell
        assert "user" not in offered("quota set user"), shell
        assert "hostile" in offered("job set --limit 4GiB"), shell


def test_bash_completes_the_options_of_the_configuration() -> None:
    if not PROGRAM.exists():
        pytest.skip("needs a build")

    def offered(verb: str, typed: str) -> list[str]:
        words = f"COMP_WORDS=(tierctl config {verb} {typed}); COMP_CWORD=3"
        script = f"source <({PROGRAM} completion bash); {words}; _tierctl; echo ${{COMPREPLY[@]}}"
        return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout.split()

    assert offered("set", "log.l") == offered("get", "log.l") == ["log.level"]
    assert offered("get", "ssd.queue_d") == ["ssd.queue_depth"]
    assert offered("set", "ssd.queue_d") == [], "it changes only at a restart"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_can_read_its_completion(shell: str, tmp_path: pathlib.Path) -> None:
    if not PROGRAM.exists() or shutil.which(shell) is None:
        pytest.skip(f"needs {shell}")
    file = tmp_path / "completion"
    file.write_bytes(subprocess.run([PROGRAM, "completion", shell], capture_output=True, check=True).stdout)
    read = subprocess.run([shell, "-n", str(file)], capture_output=True, text=True)
    assert (read.returncode, read.stderr) == (0, "")


def test_fish_offers_verbs_options_and_jobs(hostile: launcher.Running) -> None:
    if shutil.which("fish") is None:
        pytest.skip("needs fish")
    environment = {**os.environ, "TIERD_SOCKET": hostile.socket, "PATH": f"{PROGRAM.parent}:{os.environ['PATH']}"}

    def offered(line: str) -> list[str]:
        script = f"{PROGRAM} completion fish | source; complete -C '{line}'"
        done = subprocess.run(["fish", "-c", script], capture_output=True, text=True, env=environment, timeout=60)
        return [row.split("\t")[0] for row in done.stdout.splitlines()]

    assert offered("tierctl stat") == ["status"]
    assert {"list", "show", "set"} <= set(offered("tierctl job "))
    assert "--limit" in offered("tierctl job set hostile --l")
    assert "hostile" in offered("tierctl job show ")
    assert offered("tierctl config set log.l") == ["log.level"]
    assert "ssd.queue_depth" in offered("tierctl config get ssd.")
    assert "ssd.queue_depth" not in offered("tierctl config set ssd."), "it changes only at a restart"


def test_zsh_offers_verbs_and_jobs(hostile: launcher.Running, tmp_path: pathlib.Path) -> None:
    """The function is called as the completion system calls it, with what it would offer caught."""
    if shutil.which("zsh") is None:
        pytest.skip("needs zsh")
    (tmp_path / "_tierctl").write_bytes(
        subprocess.run([PROGRAM, "completion", "zsh"], capture_output=True, check=True).stdout
    )
    environment = {**os.environ, "TIERD_SOCKET": hostile.socket, "PATH": f"{PROGRAM.parent}:{os.environ['PATH']}"}

    def offered(*words: str) -> list[str]:
        typed = " ".join(f"'{word}'" for word in words)
        script = (
            "compdef() { :; }; compadd() { shift; print -l -- $@; }; _files() { :; }; "
            f"fpath=({tmp_path} $fpath); autoload -Uz _tierctl; words=(tierctl {typed}); CURRENT={len(words) + 1}; "
            "_tierctl"
        )
        done = subprocess.run(["zsh", "-fc", script], capture_output=True, text=True, env=environment, timeout=60)
        assert done.stderr == ""
        return done.stdout.split()

    assert {"status", "job", "events", "--json"} <= set(offered(""))
    assert {"list", "show", "--socket"} <= set(offered("job", ""))
    assert {"hostile", "--show-token"} <= set(offered("job", "show", ""))
    assert {"log.level", "ssd.queue_depth"} <= set(offered("config", "get", ""))
    assert "log.level" in offered("config", "set", "") and "ssd.queue_depth" not in offered("config", "set", "")
