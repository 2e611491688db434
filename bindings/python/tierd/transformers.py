"""tierd for Hugging Face's Trainer, by one line::

    trainer = tierd.transformers.offload(Trainer(model=model, args=args, train_dataset=data))
    trainer.train()

Everything else stays as it is, and comes from the ``TrainingArguments``: learning rate, betas, decay and its groups,
clipping, accumulation, schedulers, evaluation, checkpoints. Losses, gradient norms and parameters have the bits of the
same Trainer with ``optim="adamw_torch_fused"``. Checkpoints are those of the plain Trainer: either resumes the other's.
They are written and read tensor by tensor.
"""

from __future__ import annotations

import os
import pathlib
from typing import Any

from .errors import Invalid

try:
    import transformers as _transformers
except ModuleNotFoundError as missing:
    if missing.name != "transformers":
        raise
    raise ModuleNotFoundError(
        "tierd.transformers needs transformers and accelerate: pip install transformers accelerate", name="transformers"
    ) from None

import torch

from .torch.accelerated_ranks import (
    follow_handler,
    group_options,
    require_plain_steps,
    require_supported,
    take_ranks_over,
)
from .torch.checkpoint_file import load_optimizer, load_weights, save_optimizer
from .torch.persisting import resumed
from .torch.offload import OFFLOADED_ALREADY
from .torch.offloaded_optimizer import OffloadableOptimizer
from .torch.persisted_run import PersistedRun
from .torch.plain_optimizer import follow, offload_as
from .torch.runtime import runtime_of
from .torch.stand_ins import StandIns
from .torch.weights import INDEX, SINGLE

__all__ = ["offload", "save_pretrained"]

_OPTIMIZER, _SCHEDULER = "optimizer.pt", "scheduler.pt"
_STATE = "trainer_state.json"


def offload(trainer: Any, *, persist_steps: int = 0, resume: bool = False, **options: Any) -> Any:
    """Moves what ``trainer`` trains into tierd, and returns the same trainer, whose class is now a subclass of the one
    that it had. With ``model_init=``, each model goes into tierd when its training begins.

    ``options`` are those of :func:`tierd.torch.offload` that say where things lie: ``client``, ``ram``, ``ssd``,
    ``parameters``, ``gradients``, ``activations``, ``min_bytes``, ``update``. ``exact_norm`` is on, since the Trainer
    computes a norm in each step. ``update="backward"`` is for ``max_grad_norm=0`` without accumulation; the log has no
    ``grad_norm`` then.

    With ``persist_steps``, the whole run is persisted after every so many steps, as by :func:`tierd.torch.persist`: in
    one atomic step, without a file. It needs a ``client`` of a named job, and a ``name``. With ``resume`` and a client
    that was connected with ``mode="resume"``, ``train()`` goes on from there, bit for bit, also after ``kill -9``.
    Checkpoints are written beside that, if the arguments say so. For logged losses with the same bits, make
    ``persist_steps`` a multiple of ``logging_steps``.

    The trainer may be of any subclass. Of several ranks (torchrun, on the CPU), each calls this; gradients are averaged
    as by :func:`tierd.torch.offload` with a ``process_group``. Checkpoints are written by the rank that writes them in
    plain training, alone.

    A second trainer of the model gets the first one's optimizer: ``Trainer(optimizers=(first.optimizer, None), …)``.

    ``Invalid``: it uses several devices in one process, DeepSpeed, FSDP, an optimizer that tierd does not have, or it
    compiles the whole model. Not thread-safe, like the Trainer.
    """
    if not isinstance(trainer, _transformers.Trainer):
        raise TypeError(f"trainer is a {type(trainer).__name__}: pass a transformers.Trainer")
    if isinstance(trainer, _Offloaded):
        raise Invalid("this trainer is offloaded already")
    for option in ("groups", "process_group"):
        if option in options:
            raise Invalid(f"leave out {option}: the Trainer has it")
    if (persist_steps or resume) and (None in (options.get("client"), options.get("name")) or trainer.model_init):
        raise Invalid(
            "persist_steps and resume need client=, of a named job, and name=, by which the run is found again; and a "
            "model that exists, not model_init"
        )
    _check(trainer, options)
    run, plain = PersistedRun(persist_steps), type(trainer)
    trainer.__class__ = type(plain.__name__, (_Offloaded, plain), {"__module__": plain.__module__})
    take_ranks_over(trainer.accelerator)
    trainer._tierd_options = {"exact_norm": options.get("update") != "backward", "resume": resume, **options}
    trainer._tierd_run = run
    if trainer.model_init is None:
        made, fresh = trainer.optimizer, runtime_of(trainer.model) is None
        try:
            trainer.create_optimizer()
            if resume:
                trainer._tierd_run.take(trainer)
        except BaseException:
            trainer.__class__, trainer.optimizer = plain, made
            runtime = runtime_of(trainer.model)
            if fresh and runtime is not None:  # The values are the model's own again.
                runtime.detach(resumed=resume)
            raise
    return trainer


def save_pretrained(model: Any, folder: str | os.PathLike[str], **options: Any) -> None:
    """``model.save_pretrained(folder)`` of a model in tierd, or an adapter (PEFT), that does not hold the model: the
    same files, with the configuration, for ``from_pretrained``, written tensor by tensor. The weights are one file,
    whatever their size. ``options`` are those of the model's method, except those that say how weights are written.

    Call it between steps, from the thread that trains. ``Invalid``: such an option, or a model whose checkpoints have
    other tensors than itself (mixtures of experts), which its own method saves.
    """
    for name in ("state_dict", "max_shard_size", "safe_serialization", "save_function", "push_to_hub"):
        if name in options:
            raise Invalid(f"leave out {name}, or use model.save_pretrained(), which holds the model")
    if _is_converted(model):
        raise Invalid(
            f"checkpoints of a {type(model).__name__} have tensors that are computed from several of its own: use "
            "model.save_pretrained(), which holds the model"
        )
    stand_ins = StandIns(model)
    model.save_pretrained(folder, state_dict=stand_ins.state_dict.copy(), **options)
    stand_ins.fill(folder)


def _check(trainer: Any, options: dict[str, Any]) -> None:
    """``Invalid`` where the Trainer would do what a model in tierd cannot."""
    args = trainer.args
    if args.n_gpu > 1:
        raise Invalid(
            f"the Trainer uses {args.n_gpu} devices in one process and would wrap the model in DataParallel, which "
            "copies parameters: start a process for each by torchrun"
        )
    for name, used in (("DeepSpeed", trainer.is_deepspeed_enabled), ("FSDP", trainer.is_fsdp_enabled)):
        if used:
            raise Invalid(f"the Trainer uses {name}, which moves parameters itself: leave it out of the arguments")
    require_supported(trainer.accelerator)
    if args.torch_compile:
        raise Invalid(
            "torch_compile=True compiles the whole model: compile its blocks before, as docs/training.md says"
        )
    if args.bf16_full_eval or args.fp16_full_eval:
        raise Invalid(
            "bf16_full_eval and fp16_full_eval convert the model for an evaluation, and a model in tierd stays in its "
            "dtype: leave them out, or use bf16=True, by which evaluations are of mixed precision too"
        )
    require_plain_steps(trainer.accelerator, options)
    if options.get("update") == "backward" and (args.max_grad_norm or args.gradient_accumulation_steps > 1):
        raise Invalid(
            f"update='backward' with max_grad_norm={args.max_grad_norm} and gradient_accumulation_steps="
            f"{args.gradient_accumulation_steps}: set max_grad_norm=0 and accumulate nothing, or leave update out"
        )


class _Offloaded:
    """What a Trainer does differently once it is offloaded."""

    model: Any
    args: Any
    accelerator: Any
    optimizer: Any
    lr_scheduler: Any
    callback_handler: Any
    _tierd_options: dict[str, Any]
    _tierd_run: PersistedRun
    _issue_warnings_after_load: Any

    def create_optimizer(self, *given: Any, **more: Any) -> Any:
        plain: Any = super()
        made = plain.create_optimizer(*given, **more)  # From the TrainingArguments; it has no state yet.
        if runtime_of(self.model) is None:
            # Of model_init=: only the callbacks still have the model before this one, which goes before this one moves.
            self.callback_handler.model, self.callback_handler.optimizer = self.model, None
            self.callback_handler.lr_scheduler = None
            self.optimizer = offload_as(self.model, made, **group_options(self.accelerator), **self._tierd_options)
            follow_handler(self.model, self.accelerator)
            follow(self.lr_scheduler, made, self.optimizer)
        elif not isinstance(_unwrapped(made), OffloadableOptimizer):
            raise Invalid(f"{OFFLOADED_ALREADY}. A Trainer takes it as optimizers=(that_optimizer, None)")
        return self.optimizer

    def create_accelerator_and_postprocess(self) -> None:
        plain: Any = super()
        plain.create_accelerator_and_postprocess()
        take_ranks_over(self.accelerator)

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        plain: Any = super()
        if self._tierd_options.get("update") == "backward":  # The gradients are gone: there is no norm to log.
            return grad_norm
        return plain._get_grad_norm(model, grad_norm=grad_norm)

    # ---- Persisted runs ----

    def train(self, resume_from_checkpoint: Any = None, *given: Any, **more: Any) -> Any:
        plain: Any = super()
        self._tierd_run.begin()
        if resume_from_checkpoint:
            self._tierd_run.leave_out()
            return plain.train(resume_from_checkpoint, *given, **more)
        with self._tierd_run.as_checkpoint() as folder:
            return plain.train(folder, *given, **more)

    def _maybe_log_save_evaluate(self, *given: Any, **more: Any) -> None:
        plain: Any = super()
        plain._maybe_log_save_evaluate(*given, **more)
        if self._tierd_run.is_due(self):
            with self._tierd_run.persisting(self):
                self._collect()

    def _collect(self) -> None:
        """Has the Trainer write all that a resume needs into the folder of the persisted run, whatever its own
        checkpoints have. That folder is none of them, and so never the one of the best model."""
        plain: Any = super()
        state: Any = self.state  # type: ignore[attr-defined]
        best, weights_alone, self.args.save_only_model = (
            state.best_model_checkpoint, self.args.save_only_model, False,
        )  # fmt: skip
        try:
            plain._save_checkpoint(self.model, None)
        finally:
            state.best_model_checkpoint, self.args.save_only_model = best, weights_alone
        for written in pathlib.Path(self._tierd_run.collecting).glob(f"*/{_STATE}"):
            state.save_to_json(str(written))

    def _get_output_dir(self, trial: Any) -> Any:
        plain: Any = super()
        return self._tierd_run.collecting or plain._get_output_dir(trial)

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        plain: Any = super()
        if not self._tierd_run.collecting:
            plain._push_from_checkpoint(checkpoint_folder)

    def save_model(self, *given: Any, **more: Any) -> None:
        plain: Any = super()
        if not self._tierd_run.collecting:
            plain.save_model(*given, **more)

    # ---- Checkpoints ----

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        plain: Any = super()
        if state_dict is not None or runtime_of(self.model) is None or _is_converted(self.model):
            plain._save(output_dir, state_dict=state_dict)
            return
        stand_ins = StandIns(self.model)
        plain._save(output_dir, state_dict=stand_ins.state_dict.copy())
        if self.args.should_save:
            stand_ins.fill(self.args.output_dir if output_dir is None else output_dir)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        if self.args.should_save and not self._tierd_run.collecting:
            save_optimizer(_unwrapped(self.optimizer), os.path.join(output_dir, _OPTIMIZER))
            torch.save(self.lr_scheduler.state_dict(), os.path.join(output_dir, _SCHEDULER))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        plain: Any = super()
        if self._tierd_run.is_loaded(checkpoint):
            resumed(self.model, self.lr_scheduler)
            return
        files = [] if checkpoint is None else [os.path.join(checkpoint, name) for name in (_OPTIMIZER, _SCHEDULER)]
        if not files or not all(os.path.isfile(file) for file in files):
            plain._load_optimizer_and_scheduler(checkpoint)
            return
        load_optimizer(_unwrapped(self.optimizer), files[0])
        self.lr_scheduler.load_state_dict(torch.load(files[1], weights_only=True))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        plain: Any = super()
        if model is not None or not self._loads(resume_from_checkpoint):
            plain._load_from_checkpoint(resume_from_checkpoint, model)

    def _load_best_model(self) -> None:
        plain: Any = super()
        state: Any = self.state  # type: ignore[attr-defined]
        if not self._loads(state.best_model_checkpoint):
            plain._load_best_model()

    def _loads(self, folder: str) -> bool:
        """Loads a checkpoint of the whole model, if ``folder`` has one and the model is in tierd; true too where tierd
        has brought it back."""
        if self._tierd_run.is_loaded(folder):
            return True
        found = any(os.path.isfile(os.path.join(folder, name)) for name in (SINGLE, INDEX))
        if runtime_of(self.model) is None or not found:
            return False
        self._issue_warnings_after_load(load_weights(self.model, folder))
        return True


def _unwrapped(optimizer: Any) -> OffloadableOptimizer:
    """Accelerate's wrapper has it inside."""
    inner: OffloadableOptimizer = getattr(optimizer, "optimizer", optimizer)
    return inner


def _is_converted(model: Any) -> bool:
    """Whether the tensors of the model's checkpoints are computed from several of its own (as of the experts of a
    mixture): such a model is saved whole."""
    from transformers import conversion_mapping
    from transformers.core_model_loading import WeightConverter

    known = getattr(model, "_weight_conversions", None)
    if known is None and isinstance(model, _transformers.PreTrainedModel):
        known = conversion_mapping.get_model_conversion_mapping(model, add_legacy=False)
    return any(isinstance(each, WeightConverter) for each in known or ())
