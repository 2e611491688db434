"""``python -m tierd.run train.py …``: the script in an environment in which a model in tierd trains fastest.

All words go to Python as they are: ``-m``, ``-c`` and options work. What the environment says already is left alone.
The processes that the script starts inherit it: the ranks of a launcher too. See ``allocator``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from . import allocator

_MODULE = "tierd.run"
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
    command = [sys.executable, *_options(sys.orig_argv, words), *words]
    os.execve(sys.executable, command, allocator.prepared(os.environ, library))


def _options(command: Sequence[str], words: Sequence[str]) -> list[str]:
    """Python's own options in the ``command`` by which this runs, ``words`` being what follows the module's name."""
    options = list(command[1 : len(command) - len(words)])
    module = options.pop() if options else ""
    if module == _MODULE and options:  # As in -m tierd.run and -um tierd.run.
        module = options.pop() + _MODULE
    left = module.removesuffix(f"m{_MODULE}")
    return options if left in ("", "-") else [*options, left]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
