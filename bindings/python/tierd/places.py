"""Where the sockets of daemons lie when none was named: the rule of proto/socket_places.h, which libtier has as well.

A client looks into ``$XDG_RUNTIME_DIR/tierd``, then the user's own directory, then ``/run/tierd``. What lies in the own
directory is believed only if no other user can have put it there.
"""

from __future__ import annotations

import os
import pathlib
import stat

SYSTEM = pathlib.Path("/run/tierd")


def runtime_directory() -> pathlib.Path | None:
    """Of a user whose login made one."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return pathlib.Path(runtime) / "tierd" if runtime else None


def user_directory() -> pathlib.Path:
    """For a user without a runtime directory; root's is for private daemons only."""
    uid = os.geteuid()
    return pathlib.Path("/run/tierd-private" if uid == 0 else f"/tmp/tierd-{uid}")


def directories() -> list[pathlib.Path]:
    """Those that clients look into when no daemon was named, in this order."""
    runtime = runtime_directory()
    return [*([runtime] if runtime else []), user_directory(), SYSTEM]


def refusal(directory: pathlib.Path) -> str | None:
    """Why sockets in ``directory`` are not believed, with what to do; ``None``: they are. Only the user's own directory
    is asked about. ``FileNotFoundError`` where that is not there."""
    if directory != user_directory():
        return None
    elsewhere = ", or set XDG_RUNTIME_DIR to a directory that only this user may write"
    about = directory.stat(follow_symlinks=False)
    is_directory = stat.S_ISDIR(about.st_mode)
    if not is_directory or about.st_uid != os.geteuid():
        what = "belongs" if is_directory else "is no directory and belongs"
        return (
            f"{directory} {what} to uid {about.st_uid}, and uid {os.geteuid()} does not use it: have it removed "
            f"(sudo rm -r {directory}){elsewhere}"
        )
    if about.st_mode & 0o077:
        mode = stat.S_IMODE(about.st_mode)
        return f"{directory} is open to other users (mode {mode:o}): chmod 700 {directory}{elsewhere}"
    return None


def data_socket(named: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """What a caller named: a data socket, or the directory of the sockets, as ``tierctl --socket`` takes both."""
    return os.path.join(named, "tierd.sock") if os.path.isdir(named) else named


def named_socket() -> str | os.PathLike[str] | None:
    """The data socket that ``$TIERD_SOCKET`` names; ``None``: it names none."""
    named = os.environ.get("TIERD_SOCKET")
    return data_socket(named) if named else None
