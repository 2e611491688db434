"""A page of metrics, as numbers."""

from __future__ import annotations

import re
import urllib.request


def scrape(url: str) -> dict[str, float]:
    """tierd's metrics at this address, by name and labels."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        return {name: float(n) for name, n in re.findall(r"^(tierd_\S+) (\S+)$", answer.read().decode(), re.M)}
