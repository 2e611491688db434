"""``python -m tierd.run train.py …``: the script in an environment in which a model in tierd trains fastest.

All words go to Python as they are: ``-m``, ``-c`` and options work. What the environment says already is left alone.
The processes that the script starts inherit it: the ranks of a launcher too. See ``allocator``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from . import allocator

_USAGE = """usage: python -m tierd.run SCRIPT [ARGUMENT ...]
       python -m tierd.run -m MODULE [ARGUMENT ...]

Runs Python with jemalloc in place of the C library's allocator and without OpenMP threads that spin
(LD_PRELOAD, MALLOC_CONF, OMP_WAIT_POLICY; what is set already stays). Several ranks:
python -m tierd.run -m torch.distributed.run --nproc-per-node 2 train.py"""
_MISSING = """tierd.run: jemalloc is missing, with which a model in tierd trains faster: apt install libjemalloc2
(or conda install jemalloc). Without it, start the script by Python itself."""


def main(words: Sequence[str]) -> int:
    if not words or words[0] in ("-h", "--help"):
        print(_USAGE, file=sys.stdout if words else sys.stderr)
        return 0 if words else 2
    library = allocator.library()
    if library is None and not allocator.is_chosen(os.environ):
        print(_MISSING, file=sys.stderr)
        return 1
    os.execve(sys.executable, [sys.executable, *words], allocator.prepared(os.environ, library))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
