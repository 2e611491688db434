"""Three torch jobs of two users in a small arena: one takes its guarantee back while all train, with the same bits."""

from __future__ import annotations

import pathlib
import sys

import launcher

sys.path.insert(0, str(launcher.ROOT / "tools/bench"))

import three_jobs  # noqa: E402


def handed_over(daemon: launcher.Running) -> float:
    """Windows that went from one job to another, however they had become empty."""
    return sum(n for name, n in launcher.metrics(daemon).items() if name.startswith("tierd_hand_over_windows_total"))


def test_three_jobs_train_with_the_same_bits_while_one_takes_its_guarantee_back(socket_folder: pathlib.Path) -> None:
    launcher.need_user(three_jobs.OWNER)
    launcher.need_user(three_jobs.BORROWER)
    size = three_jobs.SMALL
    assert 3 * size.state_bytes > size.arena, "each has to make room for the others"
    lines: list[str] = []
    with launcher.start(socket_folder, arena=f"{size.arena >> 20}MiB", tier="1GiB") as daemon:
        node = three_jobs.Node(daemon.socket)
        outcome = three_jobs.take_back(node, size, lines.append)
        assert outcome.borrowed >= size.guarantee // 2, lines
        assert outcome.held >= size.guarantee - three_jobs.SLACK, lines
        assert handed_over(daemon) >= size.guarantee // 2 // (2 << 20), lines
        assert outcome.left_over == {}
    steps = {name: len(losses) for name, losses in outcome.losses.items()}
    assert outcome.losses == three_jobs.solos(size, steps)
