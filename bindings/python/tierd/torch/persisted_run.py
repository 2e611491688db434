"""PersistedRun: a Trainer's run as ``persist`` keeps it, for a Trainer that resumes it as one of its checkpoints.

The idea: parameters and optimizer state are in tierd, and become durable there. What a checkpoint of the Trainer has
beside them (its state, the generators of random numbers) is small: the Trainer writes it into a temporary folder, whose
files go into the same atomic step. To resume, they are written out again, and the Trainer finds a checkpoint whose
model and optimizer are loaded already.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import tempfile
from collections.abc import Iterator
from typing import Any

import torch

from ..errors import Invalid
from .persisting import persist, resumed
from .runtime import runtime_of

_FILES = "trainer_files"


class PersistedRun:
    """One for each Trainer; ``steps`` says how often it is persisted, 0 never."""

    def __init__(self, steps: int) -> None:
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 0:
            raise Invalid(f"persist_steps is {steps!r}: a number of steps, or 0")
        self.collecting = ""  # The folder into which the Trainer writes what is to be persisted.
        self._steps = steps
        self._last = 0  # The step that was persisted last.
        self._files: dict[str, bytes] = {}  # Of the run that is resumed, until it is.
        self._loaded = ""  # The folder where they are.
        self._stepped = False  # The training that resumes them has made a step.

    def take(self, trainer: Any) -> None:
        """Takes what the run that the model resumes has left. ``Invalid``: it was not a Trainer's."""
        files = resumed(trainer.model).get(_FILES)
        if files is None:
            raise Invalid("the run was not persisted by tierd.transformers: resume it with tierd.torch.offload()")
        self._files = {name: content.numpy().tobytes() for name, content in files.items()}

    # ---- Going on ----

    @contextlib.contextmanager
    def as_checkpoint(self) -> Iterator[str | None]:
        """The folder from which the Trainer is to resume; none where no run is resumed, or it has been."""
        files, self._files = self._files, {}
        if not files:
            yield None
            return
        with tempfile.TemporaryDirectory(prefix="tierd-") as folder:
            for name, content in files.items():
                pathlib.Path(folder, name).write_bytes(content)
            self._loaded, self._stepped = folder, False
            try:
                yield folder
            except BaseException:
                if not self._stepped:  # The next try begins where this one was to.
                    self._files = files
                raise
            finally:
                self._loaded = ""

    def is_loaded(self, folder: str | None) -> bool:
        """Whether tierd has what a checkpoint in ``folder`` would bring."""
        return bool(self._loaded) and folder == self._loaded

    # ---- Persisting ----

    def begin(self) -> None:
        """Another training begins, whose steps are counted again."""
        self._last = 0

    def leave_out(self) -> None:
        """The training begins elsewhere than at what the run has left."""
        self._files = {}

    def is_due(self, trainer: Any) -> bool:
        """Asked behind each step."""
        self._stepped = True
        step: int = trainer.state.global_step
        return self._steps > 0 and step != self._last and step % self._steps == 0

    @contextlib.contextmanager
    def persisting(self, trainer: Any) -> Iterator[None]:
        """Persists the run, with the files that the Trainer writes inside of the context. Every rank does so, and those
        that one writes are for all."""
        step: int = trainer.state.global_step
        with tempfile.TemporaryDirectory(prefix="tierd-") as folder:
            written = pathlib.Path(folder, f"checkpoint-{step}")
            os.mkdir(written)
            self.collecting = folder
            try:
                yield
            finally:
                self.collecting = ""
            files = {path.name: path.read_bytes() for path in written.iterdir()}
        runtime = runtime_of(trainer.model)
        if runtime is not None and runtime.reduction is not None:
            files = {**runtime.reduction.ranks.chosen_by_first(files, "persist()"), **files}
        kept = {name: torch.frombuffer(bytearray(content), dtype=torch.uint8) for name, content in files.items()}
        optimizer = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
        persist(trainer.model, optimizer, trainer.lr_scheduler, **{_FILES: kept})
        self._last = step
