"""The documentation's site: built strictly, its links followed, its references as whole as headers and docstrings."""

from __future__ import annotations

import importlib
import inspect
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/docs"))

import c_header  # noqa: E402
import cpp_header  # noqa: E402
import site_links  # noqa: E402

SPHINX = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-q", "-c", str(ROOT / "tools/docs")]


def build(docs: pathlib.Path, folder: pathlib.Path) -> tuple[pathlib.Path, str]:
    """The site, and what Sphinx complains about; nothing if it is right."""
    pytest.importorskip("sphinx", reason="needs Sphinx: tools/dev setup installs it")
    site = folder / "html"
    found = subprocess.run(
        [*SPHINX, "-d", folder / "doctrees", docs, site], capture_output=True, text=True, check=False, timeout=300
    )
    return site, found.stderr if found.returncode != 0 else ""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    built, complaints = build(ROOT / "docs", tmp_path_factory.mktemp("site"))
    assert complaints == ""
    return built


def test_the_site_builds_and_every_link_and_anchor_in_it_is_there(site: pathlib.Path) -> None:
    assert site_links.faults(site) == []


def test_every_page_of_docs_is_in_the_site(site: pathlib.Path) -> None:
    sources = [path for path in (ROOT / "docs").rglob("*") if path.suffix in (".md", ".rst")]
    expected = {path.relative_to(ROOT / "docs").with_suffix(".html").as_posix() for path in sources}
    missing = expected - set(site_links.read(site))
    assert missing == {"README.html", "images/README.html"}  # Lists for people who read the repository.


def test_a_page_that_no_link_leads_to_and_links_that_lead_nowhere_are_found(tmp_path: pathlib.Path) -> None:
    (tmp_path / "index.html").write_text(
        '<h1 id="top"><a href="a/b.html#x">b</a><a href="https://e.org/no">out</a></h1>'
    )
    (tmp_path / "a").mkdir()
    (tmp_path / "a/b.html").write_text(
        '<a href="../index.html#top"/><a href="gone.html"/><a href="#y"/><img src="i.png">'
    )
    (tmp_path / "alone.html").write_text("")
    assert site_links.faults(tmp_path) == [
        "a/b.html: #y: no such anchor in a/b.html",
        "a/b.html: gone.html is not there",
        "a/b.html: i.png is not there",
        "index.html: a/b.html#x: no such anchor in a/b.html",
        "alone.html: no link leads there",
    ]


def test_each_reference_that_leads_nowhere_ends_the_build(tmp_path: pathlib.Path) -> None:
    """It is a warning of its page, and any warning does."""
    wrong = {
        "page": ("[a](nowhere.md)", "nowhere.md"),
        "anchor": ("[a](index.md#lost)", "lost"),
        "function": ("```{eval-rst}\n:c:func:`tier_gone`\n```", "tier_gone"),
    }
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text("# Start\n\n```{toctree}\n" + "\n".join(wrong) + "\n```\n")
    for name, (text, _) in wrong.items():
        (docs / f"{name}.md").write_text(f"# One\n\n{text}\n")
    warnings = [line for line in build(docs, tmp_path)[1].splitlines() if "WARNING: " in line]
    assert len(warnings) == len(wrong), warnings
    for name, (_, complaint) in wrong.items():
        assert any(f"/{name}.md:" in line and complaint in line for line in warnings), warnings


def test_a_header_that_is_not_there_ends_the_build(tmp_path: pathlib.Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text("# Start\n\n```{eval-rst}\n.. c-header:: tier/gone.h\n```\n")
    assert "gone.h" in build(docs, tmp_path)[1]


def test_links_between_files_of_the_repository_lead_to_files() -> None:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    broken = []
    for name in listed.split():
        prose = re.sub(r"^ *```.*?^ *```$|`[^`]*`", "", (ROOT / name).read_text(), flags=re.MULTILINE | re.DOTALL)
        links = re.findall(r"\]\(([^)\s]+)\)", prose)
        local = [link.split("#")[0] for link in links if not site_links.is_external(link)]
        broken += [(name, link) for link in local if link and not (ROOT / name).parent.joinpath(link).exists()]
    assert broken == []


def inventory(site: pathlib.Path) -> dict[str, set[str]]:
    """Kind and names of everything that the site describes."""
    from sphinx.util.inventory import InventoryFile

    entries = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="").data
    return {kind: set(names) for kind, names in entries.items()}


@pytest.mark.parametrize("header", ["tier.h", "control.h"])
def test_the_c_reference_has_each_name_of_the_header(site: pathlib.Path, header: str) -> None:
    text = (ROOT / "libclient/include/tier" / header).read_text()
    described = inventory(site)
    functions = set(re.findall(r"^TIER_API [^(]*?(\w+)\(", text, re.MULTILINE))
    structs = set(re.findall(r"^typedef struct (\w+)", text, re.MULTILINE))
    constants = set(re.findall(r"\b(TIER_\w+) = ", text))
    macros = set(re.findall(r"^#define (TIER_\w+(?:_INIT|VERSION_\w+))\b", text, re.MULTILINE))
    assert functions and functions <= described["c:function"]
    assert structs and structs <= described["c:struct"]
    assert constants <= described.get("c:enumerator", set()) and macros <= described["c:macro"]
    fields = set()
    for name, body in re.findall(r"^typedef struct (\w+) \{(.*?)^\}", text, re.MULTILINE | re.DOTALL):
        code = re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL)
        fields |= {f"{name}.{field}" for field in re.findall(r"(\w+)(?:\[\d+\])?;", code)}
    assert fields and fields <= described["c:member"]


@pytest.mark.parametrize("header", ["tier.h", "control.h"])
def test_every_function_in_c_says_what_it_does(header: str) -> None:
    items = c_header.parse((ROOT / "libclient/include/tier" / header).read_text())
    assert [item.names for item in items if item.kind in ("function", "macro", "enum") and not item.comment] == []


HEADER = """/* About the file. */
#ifndef TIER_TIER_H
#define TIER_TIER_H
#include <stddef.h>

/* Two of a kind. */
TIER_API int tier_one(int a,
                      int b);
TIER_API int tier_two(void);
TIER_API void tier_three(void); /* behind */

TIER_API void tier_four(void);

/* ---- Part ---------- */

typedef struct tier_view { /* what is seen */
  size_t size;
  /* Both of
   * them. */
  int left;
  int right;
  int last; /* of two
               lines */
} tier_view;
#define TIER_VIEW_INIT \\
  {sizeof(tier_view), 0, 0, 0}
enum { TIER_A = 0, TIER_B = 1u << 1 };
"""


def test_a_comment_belongs_to_what_follows_it_at_once() -> None:
    items = c_header.parse(HEADER)
    assert [(item.kind, item.names, item.comment) for item in items] == [
        ("prose", [], "About the file."),
        ("function", ["int tier_one(int a, int b)", "int tier_two(void)"], "Two of a kind."),
        ("function", ["void tier_three(void)"], "behind"),
        ("function", ["void tier_four(void)"], ""),
        ("heading", [], "Part"),
        ("struct", ["tier_view"], "what is seen"),
        ("macro", ["TIER_VIEW_INIT"], "The defaults of tier_view."),
        ("enum", [], ""),
    ]
    assert items[5].members == [
        (["size_t size"], ""), (["int left", "int right"], "Both of\nthem."), (["int last"], "of two\nlines"),
    ]  # fmt: skip
    assert items[7].members == [(["TIER_A = 0"], ""), (["TIER_B = 1u << 1"], "")]


def test_a_declaration_that_is_not_understood_is_named_by_its_line() -> None:
    with pytest.raises(ValueError, match=r"line 3: .*: int tier_plain\(void\);"):
        c_header.parse("/* x */\n\nint tier_plain(void);\n")


def test_the_cpp_reference_has_each_class_and_method_of_the_header(site: pathlib.Path) -> None:
    text = (ROOT / "libclient/include/tier/tier.hpp").read_text()
    described = set().union(*(names for kind, names in inventory(site).items() if kind.startswith("cpp:")))
    classes = re.findall(r"^(?:class|struct) (\w+)(?: : [\w: ]+)? \{\n(.*?)^\};", text, re.MULTILINE | re.DOTALL)
    assert len(classes) > 5 and "tier::Check" in described
    for name, body in classes:
        public = body.split(" private:\n")[0]
        methods = set(re.findall(r"^  (?!explicit operator)(?:[\w:<>*]+ )+(\w+)\([^;]*\{", public, re.MULTILINE))
        methods.discard(name)  # Its constructor.
        assert {f"tier::{name}"} | {f"tier::{name}::{method}" for method in methods} <= described, name
    assert {"tier::Client::Acquire", "tier::Lease::as", "tier::Range::length"} <= described


CPP_HEADER = """// About the file.
#include <tier/tier.h>

namespace tier {

// One of
// two lines.
class Thing : public std::runtime_error {
 public:
  Thing(int code) : std::runtime_error("x"), code_(code) {}
  Thing(Thing&& other) noexcept : code_(std::exchange(other.code_, 0)) {}
  ~Thing() { Drop(); }
  explicit operator bool() const noexcept { return true; }

  // Turns.
  template <typename T>
  T Turn(Range range = {}, int times = 0) const {
    if (times) { return {}; }
    return T();
  }

 private:
  void Drop() {}
  int code_;
};

// Figures.
struct Figures {
  int count = 0;  // Of all.
  int rest = 1;
};

// Frees it.
inline void Free(int code) {
  if (code) throw code;
}

}  // namespace tier
"""


def test_a_class_has_its_public_members_with_their_comments() -> None:
    top, thing, figures, free = cpp_header.parse(CPP_HEADER)
    assert (top.kind, top.comment) == ("prose", "About the file.")
    assert (thing.kind, thing.signature, thing.comment) == ("cpp:class", "Thing", "One of\ntwo lines.")
    assert [(member.kind, member.signature, member.comment) for member in thing.members] == [
        ("cpp:function", "template <typename T> T Turn(Range range = {}, int times = 0) const", "Turns.")
    ]
    assert [(member.signature, member.comment) for member in figures.members] == [
        ("int count = 0", "Of all."), ("int rest = 1", ""),
    ]  # fmt: skip
    assert (free.kind, free.signature, free.comment) == ("cpp:function", "void Free(int code)", "Frees it.")


def test_a_method_without_a_comment_is_named_by_its_line() -> None:
    with pytest.raises(ValueError, match=r"line 16: .*Turn.* has no comment"):
        cpp_header.parse(CPP_HEADER.replace("  // Turns.\n", "\n"))


def found_by(name: str) -> object:
    """What a dotted name stands for: in a module, or in a class of one."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            found = getattr(found, part)
        return found
    raise AssertionError(name)


def test_everything_of_the_python_reference_says_what_it_is(site: pathlib.Path) -> None:
    described = inventory(site)
    names = set().union(*(described[f"py:{kind}"] for kind in ("function", "class", "method", "property", "exception")))
    assert {"tierd.connect", "tierd.Client.stats", "tierd.torch.offload", "tierd.control.Control.set_job"} <= names
    assert sorted(name for name in names if not inspect.getdoc(found_by(name))) == []
    for module in ("tierd", "tierd.torch"):
        public = {f"{module}.{name}" for name in found_by(module).__all__}  # type: ignore[attr-defined]
        assert public - names <= {"tierd.Key"} and "tierd.states.Key" in described["py:data"], module
