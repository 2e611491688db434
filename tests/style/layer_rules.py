"""Layers: an include points only down, every third-party header has one home, tiering sees no clock and no file."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator

from source_tree import Finding, SourceTree

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)

# What each folder may include besides itself (docs/architecture.md). Longest prefix wins.
_BASE = ("proto/", "daemon/base/")
MAY_INCLUDE: dict[str, tuple[str, ...]] = {
    "proto/": (),
    "daemon/base/": ("proto/",),
    "daemon/memory/": _BASE,
    "daemon/storage/": _BASE,
    "daemon/tiering/": (*_BASE, "daemon/memory/", "daemon/storage/"),
    "daemon/session/": (*_BASE, "daemon/memory/", "daemon/storage/", "daemon/tiering/"),
    "daemon/control/": (*_BASE, "daemon/memory/", "daemon/storage/", "daemon/tiering/", "daemon/session/"),
    "daemon/metrics/": (*_BASE, "daemon/memory/", "daemon/storage/", "daemon/tiering/", "daemon/session/"),
    "daemon/config/": (
        *_BASE,
        "daemon/memory/",
        "daemon/storage/",
        "daemon/tiering/",
        "daemon/session/",
        "daemon/control/",
        "daemon/metrics/",
    ),
    "daemon/": ("proto/",),  # main.cc and what composes the daemon, beside it.
    "libclient/": ("proto/",),
    # Tools stand beside both: a client of libtier and libtier-control that may read on-disk formats.
    "tools/": ("proto/", "libclient/", "daemon/base/", "daemon/storage/"),
    # It completes the names of the daemon's options.
    "tools/tierctl/": ("proto/", "libclient/", "daemon/base/", "daemon/storage/", "daemon/config/"),
    # Its paths are those of the daemon's configuration.
    "tools/smart/": ("proto/", "daemon/base/", "daemon/storage/", "daemon/config/"),
    "bindings/": ("libclient/",),
    # What a user would write: public headers only.
    "examples/": ("libclient/include/",),
    "tests/": ("proto/", "daemon/", "libclient/", "tools/"),
}

# The order of the folders inside a layer, lowest first. A file may include its own folder and lower ones. A file that
# lies beside the folders is above all of them.
FOLDER_ORDER: dict[str, tuple[str, ...]] = {
    "daemon/tiering/": (
        "api",
        "tables",
        "pieces",
        "transfers",
        "memory",
        "leases",
        "durability",
        "requests",
        "jobs",
        "inspection",
    ),
    "libclient/": ("include", "copy", "optimizer", "cuda", "link", "client", "swap", "abi", "control"),
}

# Third-party headers: pattern of the header -> patterns of the files that may include it. Tests may include any. What
# is beside main.cc counts as main.cc: it is one composition in several files.
HOMES: dict[str, tuple[str, ...]] = {
    r"liburing(/|\.h)": (r"daemon/storage/uring",),
    r"boost/asio": (r"daemon/session/", r"daemon/metrics/http_endpoint\.", r"daemon/[a-z_]+\.(cc|h)$"),
    r"boost/beast": (r"daemon/metrics/http_endpoint\.",),
    r"boost/interprocess": (r"proto/mapping\.",),
    r"cuda": (r"libclient/cuda/",),
    r"(grpc|grpcpp)/": (r"daemon/control/", r"libclient/control/"),
    r"google/protobuf/": (r"daemon/control/", r"libclient/control/", r"tools/tierctl/message_json\."),
    r".*\.pb\.h": (r"daemon/control/", r"libclient/control/"),
    r"prometheus/": (r"daemon/metrics/",),
    r"toml(\+\+|plusplus|\.hpp)": (r"daemon/config/",),
    r"lmdb\.h": (r"daemon/storage/index",),
    r"hwy/": (r"libclient/copy/", r"libclient/optimizer/"),
    r"spdlog/": (r"daemon/[a-z_]+\.(cc|h)$",),  # Libraries return, the edge logs.
    # The user database may wait for a server of the network: no thread that others wait for asks it.
    r"pwd\.h": (r"daemon/session/user_directory\.", r"tools/tierctl/"),
    r"grp\.h": (r"daemon/session/user_directory\.", r"daemon/control/grpc_server\.cc", r"tools/tierctl/"),
    r"CLI/": (r"daemon/main\.cc", r"tools/"),
    r"nlohmann/": (r"tools/", r"libclient/control/"),
}

# daemon/tiering is a pure function of its inputs: it reaches time, devices and randomness through interfaces only.
TIERING_BANNED = re.compile(
    r"^(thread|mutex|shared_mutex|condition_variable|future|stop_token|atomic|random|fstream|filesystem|iostream|ctime"
    r"|cstdio|stdio\.h|time\.h|unistd\.h|fcntl\.h|poll\.h|pthread\.h|sys/.*|linux/.*|netinet/.*|boost/.*"
    r"|daemon/base/(clock|worker|mailbox|fault|file).*)$"
)


def includes(tree: SourceTree, path: str) -> Iterator[tuple[int, str, str]]:
    """(line, "<" or '"', name) of each include of a file."""
    text = tree.text(path)
    for match in INCLUDE.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, match.group(1), match.group(2)


def _layer(path: str) -> str | None:
    found = [prefix for prefix in MAY_INCLUDE if path.startswith(prefix)]
    return max(found, key=len) if found else None


def resolve(tree: SourceTree, path: str, name: str) -> str | None:
    """The file of ours that an include names: project-relative, public (libclient/include) or beside the includer."""
    beside = str(pathlib.PurePosixPath(path).parent / name)
    for candidate in (name, f"libclient/include/{name}", beside):
        if candidate in tree:
            return candidate
    return None


def check_layers(tree: SourceTree) -> list[Finding]:
    findings = []
    for path in tree.cxx():
        layer = _layer(path)
        for line, quote, name in includes(tree, path):
            target = resolve(tree, path, name)
            if target is None:
                generated = name.endswith((".pb.h", ".inc"))
                if quote == '"' and not generated and path.startswith(("proto/", "daemon/", "libclient/")):
                    findings.append(Finding("layers", path, line, f'"{name}" is no file of this project'))
                continue
            if layer is None:
                findings.append(Finding("layers", path, line, "this folder has no layer in layer_rules.py"))
                break
            if not target.startswith((layer, *MAY_INCLUDE[layer])):
                findings.append(Finding("layers", path, line, f"{layer} must not include {target}"))
    return findings


def check_folder_order(tree: SourceTree, orders: dict[str, tuple[str, ...]] = FOLDER_ORDER) -> list[Finding]:
    findings = []
    for layer, order in orders.items():
        for path in tree.cxx(layer):
            folder = _inner_folder(path, layer)
            if folder and folder not in order:
                text = f"folder '{folder}' has no place in FOLDER_ORDER of layer_rules.py"
                findings.append(Finding("folder-order", path, 0, text))
                continue
            for line, _, name in includes(tree, path):
                target = resolve(tree, path, name) or ""
                if target.startswith(layer) and _rank(target, layer, order) > _rank(path, layer, order):
                    findings.append(Finding("folder-order", path, line, f"{target} is above it in FOLDER_ORDER"))
    return findings


def _inner_folder(path: str, layer: str) -> str:
    """daemon/tiering/pieces/piece.h -> pieces; "" for a file beside the folders."""
    first, separator, _ = path.removeprefix(layer).partition("/")
    return first if separator else ""


def _rank(path: str, layer: str, order: tuple[str, ...]) -> int:
    folder = _inner_folder(path, layer)
    return order.index(folder) if folder in order else len(order)


def check_homes(tree: SourceTree) -> list[Finding]:
    findings = []
    for path in tree.cxx():
        if path.startswith(("tests/", "tools/bench/")):
            continue
        for line, _, name in includes(tree, path):
            for header, homes in HOMES.items():
                if re.match(header, name) and not any(re.match(home, path) for home in homes):
                    findings.append(Finding("homes", path, line, f"<{name}> belongs to {' or '.join(homes)} only"))
    return findings


def check_tiering_is_pure(tree: SourceTree) -> list[Finding]:
    return [
        Finding("tiering-pure", path, line, f"daemon/tiering must not include {name}")
        for path in tree.cxx("daemon/tiering/")
        for line, _, name in includes(tree, path)
        if TIERING_BANNED.match(name)
    ]
