"""The operator guide's command that gives each alert a link to hosted pages, run on the rules that are shipped."""

from __future__ import annotations

import pathlib
import subprocess
from typing import Any

import yaml  # type: ignore[import-untyped]
from page_blocks import texts
from promtool import RULES
from surroundings import ROOT, find_tool

INSTALLED = "/usr/share/tierd/prometheus/rules.yml"
SITE = "https://DOCS/"  # Of the guide.


def linked_rules(folder: pathlib.Path) -> pathlib.Path:
    """The copy of the rules that the guide's command writes."""
    (command,) = [text for text in texts("docs/operator-guide.md", "sh") if "runbook_url" in text]
    assert command.count(INSTALLED) == 1, "the file that the package installs"
    subprocess.run(["bash", "-euc", command.replace(INSTALLED, str(RULES))], cwd=folder, check=True)
    return folder / "rules.yml"


def alerts(path: pathlib.Path) -> dict[str, dict[str, Any]]:
    groups = yaml.safe_load(path.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"] if "alert" in rule}


def test_each_alert_gets_a_link_to_its_page_and_nothing_else_changes(tmp_path: pathlib.Path) -> None:
    linked = alerts(linked_rules(tmp_path))
    links = {name: rule["annotations"].pop("runbook_url") for name, rule in linked.items()}
    assert linked == alerts(RULES) and links
    for name, link in links.items():
        assert link.startswith(SITE) and link.endswith(".html"), link
        page = ROOT / "docs" / link.removeprefix(SITE).replace(".html", ".md")
        assert page.read_text().startswith(f"# {name}\n"), link


def test_promtool_accepts_the_rules_with_links(tmp_path: pathlib.Path) -> None:
    check = [find_tool("promtool"), "check", "rules", str(linked_rules(tmp_path))]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
