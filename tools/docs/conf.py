"""The documentation's site, by Sphinx: pages of docs/ in Markdown, references from headers and docstrings."""

from __future__ import annotations

import pathlib
import sys
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools/docs"), str(ROOT / "bindings/python")]

import tierd  # noqa: E402

project = "tierd"
author = "the authors of tierd"
copyright = "the authors of tierd, Apache License 2.0"
release = version = tierd.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "c_reference"]
# Lists of what lies in a folder, for people who read the repository.
exclude_patterns = ["README.md", "images/README.md"]
html_theme = "furo"
html_title = f"tierd {release}"
html_copy_source = False
html_show_sourcelink = False
smartquotes = False

# A reference that leads nowhere is a warning, and a warning ends the build.
nitpicky = True
nitpick_ignore = [("c:identifier", name) for name in ("size_t", "uint32_t", "uint64_t", "int64_t")]
nitpick_ignore_regex = [(r"py:.*", r"(?!tierd\b).*")]  # The names of other packages, whose pages are elsewhere.
# Of C++: its own library, and what tier.h declares, which is in the C domain.
nitpick_ignore_regex += [(r"cpp:identifier", r"std|uint\d+_t|tier_\w+|UINT64_MAX|TIER_\w+")]
myst_heading_anchors = 4
myst_links_external_new_tab = False

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "undoc-members": True}
autodoc_preserve_defaults = True

# Classes whose objects a function makes: nothing is said about the arguments of their constructors.
_MADE_BY_FUNCTIONS = {
    "tierd.Client",
    "tierd.Lease",
    "tierd.pending_put.PendingPut",
    "tierd.torch.offloaded_optimizer.OffloadableOptimizer",
    "tierd.control.Control",
    "tierd.control.Watch",
}


def _without_constructor(app: Any, what: str, name: str, *more: Any) -> tuple[str, str] | None:
    return ("", "") if what == "class" and name in _MADE_BY_FUNCTIONS else None


def setup(app: Any) -> None:
    app.connect("autodoc-process-signature", _without_constructor)


# tools/dev docs --external; continuous integration has no network.
linkcheck_timeout = 20
linkcheck_retries = 2
