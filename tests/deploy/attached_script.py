"""What the other user runs during an upgrade: puts a tensor, waits until the package is upgraded, gets it back.

attached_script.py ATTACHED UPGRADED: two FIFOs, the first written, the second read.
"""

import pathlib
import sys

import tierd

CONTENT = bytes(range(256)) * 4096


def main(attached: str, upgraded: str) -> None:
    with tierd.connect(job="attached", autostart=False) as client:
        client.put("kept", CONTENT)
        pathlib.Path(attached).write_text("attached\n")
        pathlib.Path(upgraded).read_text()
        assert bytes(client.get("kept")) == CONTENT, "the tensor came back altered"


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
