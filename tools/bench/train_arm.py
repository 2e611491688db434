#!/usr/bin/env python3
"""One arm of the training bench: a process that trains the same model, data and dtype as the others, a step when told.

Prints JSON lines: ``idle`` with torch alone, ``ready`` with the model made, and one ``step`` for each line on stdin.
Without a model it stays idle until stdin ends.
Arms: plain torch; tierd with the update in ``step()``, deferred or in backward; tierd's optimizer alone; plain torch
with its activations in tierd; plain torch beside a program that moves bytes; DeepSpeed ZeRO-3 with parameters and
optimizer in the processor's memory, or on NVMe by its default configuration, tuned by hand, or tuned and pipelined.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import pathlib
import platform
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, TextIO

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bindings/python/demo"), str(ROOT / "bindings/python")]

from activation_survey import survey_of  # noqa: E402
from counters import device_bytes  # noqa: E402
from models import Model  # noqa: E402

LEARNING_RATE = 1e-4
RETURNED_BYTES = 128 << 10  # As offload() sets it: glibc's heap must not hide what activations take.


class Plain:
    """torch as it is."""

    def __init__(self, arguments: argparse.Namespace, make: Any) -> None:
        import torch

        self.model = make()
        self.optimizer: Any = torch.optim.AdamW(self.model.parameters(), lr=LEARNING_RATE, fused=True)
        self.config: dict[str, Any] = {"optimizer": "torch.optim.AdamW", "fused": True, "lr": LEARNING_RATE}
        self.versions: dict[str, str] = {}

    def forward(self, *inputs: Any) -> Any:
        return self.model(*inputs)

    def backward(self, loss: Any) -> None:
        loss.backward()

    def update(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()

    def activation_bytes(self) -> int:
        """Moved into tierd so far."""
        return 0

    def activations(self) -> Any:
        """What has them in tierd."""
        return None

    def begin(self, phases: list[tuple[int, int]]) -> None:
        """Before a step, which is told of bytes to read and write in each of its phases."""

    def close(self) -> None:
        pass


class Beside(Plain):
    """torch as it is, while a program moves as many bytes as each phase is told. A phase ends when both have ended.
    Backward and update are one: what is moved in them is moved from the beginning of backward on."""

    def __init__(self, arguments: argparse.Namespace, make: Any) -> None:
        import tierd.torch

        super().__init__(arguments, make)
        if arguments.returned:
            tierd.torch.return_freed_memory(RETURNED_BYTES)
            self.config |= {"return_freed_memory": RETURNED_BYTES}
        self._moves = subprocess.Popen(
            arguments.moves.split("\n"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._answered()
        self._told: list[tuple[int, int]] = []

    def begin(self, phases: list[tuple[int, int]]) -> None:
        self._told = phases

    def forward(self, *inputs: Any) -> Any:
        self._tell(self._told[:1])
        loss = super().forward(*inputs)
        self._answered()
        return loss

    def backward(self, loss: Any) -> None:
        self._tell(self._told[1:])
        super().backward(loss)

    def update(self) -> None:
        super().update()
        self._answered()

    def _tell(self, phases: list[tuple[int, int]]) -> None:
        assert self._moves.stdin is not None
        print(*(sum(phase[way] for phase in phases) for way in (0, 1)), file=self._moves.stdin, flush=True)

    def _answered(self) -> None:
        assert self._moves.stdout is not None
        if not self._moves.stdout.readline():
            raise SystemExit(f"the program that moves bytes ended with {self._moves.wait()}")

    def close(self) -> None:
        assert self._moves.stdin is not None
        self._moves.stdin.close()
        self._moves.wait()


class Stateless(Plain):
    """torch with an optimizer that has no state, and memory returned as soon as it is free."""

    def __init__(self, arguments: argparse.Namespace, make: Any) -> None:
        import torch

        import tierd.torch

        tierd.torch.return_freed_memory(RETURNED_BYTES)
        self.model = make()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=LEARNING_RATE)
        self.config = {"optimizer": "torch.optim.SGD", "lr": LEARNING_RATE, "return_freed_memory": RETURNED_BYTES}
        self.versions = {}


class Tierd(Plain):
    """The model in tierd, at defaults."""

    def __init__(self, arguments: argparse.Namespace, make: Any) -> None:
        import tierd
        import tierd.torch

        self._client = tierd.connect(job="train", socket=arguments.socket)
        self.versions = {"tierd": tierd.__version__}
        self._make(arguments, make)

    def _make(self, arguments: argparse.Namespace, make: Any) -> None:
        import tierd.torch

        # Of a version that cannot make models in tierd, the peak shows what making it here takes.
        creating = getattr(tierd.torch, "creating", None) if arguments.create else None
        self.config = {"optimizer": "tierd.torch.AdamW", "lr": LEARNING_RATE, "update": arguments.update}
        self.config |= {"made in tierd": creating is not None}
        with contextlib.nullcontext() if creating is None else creating(client=self._client):
            model = make()
        self.model, self.optimizer = tierd.torch.offload(
            model, tierd.torch.AdamW, client=self._client, lr=LEARNING_RATE, update=arguments.update
        )

    def activation_bytes(self) -> int:
        import tierd.torch

        return tierd.torch.activation_bytes(self.model)

    def activations(self) -> Any:
        return self.model.__dict__["_tierd_runtime"]._activations

    def close(self) -> None:
        del self.model, self.optimizer
        gc.collect()
        self._client.close()


class TierdOptimizer(Tierd):
    """Only the optimizer's state in tierd."""

    def _make(self, arguments: argparse.Namespace, make: Any) -> None:
        import tierd.torch

        self.model = make()
        self.optimizer = tierd.torch.AdamW(self.model.parameters(), client=self._client, lr=LEARNING_RATE)
        self.config = {"optimizer": "tierd.torch.AdamW", "lr": LEARNING_RATE}

    def activation_bytes(self) -> int:
        return 0

    def activations(self) -> Any:
        return None


class TierdActivations(Tierd):
    """Only the activations in tierd."""

    def _make(self, arguments: argparse.Namespace, make: Any) -> None:
        import tierd.torch

        plain = Stateless(arguments, make)
        self.model, self.optimizer = plain.model, plain.optimizer
        self.config = plain.config | {"activations": "tierd.torch.offload_activations"}
        self._activations = tierd.torch.offload_activations(self._client, model=self.model)

    def forward(self, *inputs: Any) -> Any:
        with self._activations:
            return self.model(*inputs)

    def activation_bytes(self) -> int:
        return self._activations.offloaded_bytes

    def activations(self) -> Any:
        return self._activations

    def close(self) -> None:
        del self._activations
        super().close()


class DeepSpeed(Plain):
    """ZeRO-3 with parameters and optimizer on NVMe, or in the processor's memory."""

    def __init__(self, arguments: argparse.Namespace, make: Any) -> None:
        os.environ |= {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "0",
            "RANK": "0",
            "WORLD_SIZE": "1",
            "LOCAL_RANK": "0",
        }
        import deepspeed  # type: ignore[import-not-found]
        import torch
        from deepspeed.ops.adam import DeepSpeedCPUAdam  # type: ignore[import-not-found]

        store = torch.distributed.HashStore()  # type: ignore[attr-defined]
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
        self.config = configuration(arguments.config, arguments.folder, Model.decoded(arguments.model).largest)
        self.versions = {"deepspeed": deepspeed.__version__}
        # Made whole: of a model that is made within zero.Init, what fills its parameters later finds them empty.
        model = make()
        deepspeed.zero.Init(module=model, config_dict_or_path=self.config)
        optimizer = DeepSpeedCPUAdam(model.parameters(), lr=LEARNING_RATE, weight_decay=1e-2)
        self.model, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=self.config)

    def backward(self, loss: Any) -> None:
        self.model.backward(loss)

    def update(self) -> None:
        self.model.step()


ARMS: dict[str, type[Plain]] = {
    "plain": Plain,
    "beside": Beside,
    "stateless": Stateless,
    "tierd": Tierd,
    "optimizer": TierdOptimizer,
    "activations": TierdActivations,
    "deepspeed": DeepSpeed,
}


def configuration(name: str, folder: str, largest: int) -> dict[str, Any]:
    """DeepSpeed's defaults for memory ("CPU") and for NVMe, and what its users set by hand for NVMe: buffers of the
    ``largest`` parameter, small groups."""
    place: dict[str, Any] = {"device": "cpu"} if name == "CPU" else {"device": "nvme", "nvme_path": folder}
    place["pin_memory"] = False
    zero: dict[str, Any] = {"stage": 3, "offload_param": dict(place), "offload_optimizer": dict(place)}
    aio = {}
    if name in ("tuned", "pipelined"):
        zero |= {
            "sub_group_size": 10_000_000, "reduce_bucket_size": 20_000_000, "stage3_prefetch_bucket_size": 20_000_000,
            "stage3_max_live_parameters": 20_000_000, "stage3_max_reuse_distance": 0,
        }  # fmt: skip
        zero["offload_param"] |= {"max_in_cpu": 0, "buffer_size": largest, "buffer_count": 16}
        aio = {"block_size": 1 << 20, "queue_depth": 32, "overlap_events": True, "single_submit": False}
    if name == "pipelined":
        zero["offload_optimizer"] |= {"pipeline_read": True, "pipeline_write": True, "buffer_count": 12}
    return {"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0.0, "zero_optimization": zero} | (
        {"aio": aio} if aio else {}
    )


def maker(model: Model) -> Any:
    """A function that builds the model, with the same numbers each time."""
    import gpt  # type: ignore[import-not-found]
    import torch

    def built() -> torch.nn.Module:
        if model.kind == "qwen":
            import qwen

            return qwen.Qwen(model)
        shape = gpt.Shape(model.layers, model.width, model.heads, model.context)
        return Stack(gpt.Block(shape) for _ in range(model.layers)) if model.kind == "stack" else gpt.Gpt(shape)

    class Stack(torch.nn.Sequential):
        """Blocks, and a loss that looks at all of what they return."""

        def __init__(self, blocks: Iterator[torch.nn.Module]) -> None:
            super().__init__(*blocks)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = super().forward(x)  # type: ignore[no-untyped-call]
            return out.square().mean()

    def make() -> torch.nn.Module:
        torch.manual_seed(0)
        before = torch.get_default_dtype()
        torch.set_default_dtype(getattr(torch, model.dtype))
        try:
            return built()
        finally:
            torch.set_default_dtype(before)

    return make


def batches(model: Model) -> Iterator[tuple[Any, ...]]:
    """What the model is trained with, the same in each process."""
    import corpus  # type: ignore[import-not-found]
    import torch

    if model.kind == "gpt":
        yield from corpus.batches(corpus.load(), model.batch, model.context, 0)
    generator = torch.Generator().manual_seed(0)
    while True:
        if model.kind == "stack":
            yield (torch.randn(model.batch, model.context, model.width, generator=generator),)
            continue
        tokens = torch.randint(0, model.vocabulary, (model.batch, model.context + 1), generator=generator)
        yield tokens[:, :-1], tokens[:, 1:]


def one_step(
    arm: Plain, batch: tuple[Any, ...], counted: int, before: tuple[int, int], surveyed: bool
) -> dict[str, Any]:
    """Its seconds and bytes of each phase, and its loss. ``counted``: the process with the arm's I/O, which had moved
    ``before`` when the last step ended: what it has written since then counts as this forward's. ``surveyed``: where
    the activations lie is looked up, which takes time."""
    times, moved, stored = [time.perf_counter()], [before], arm.activation_bytes()

    def mark() -> None:
        times.append(time.perf_counter())
        moved.append(device_bytes(counted))

    loss = arm.forward(*batch)
    mark()
    survey: Any = contextlib.nullcontext()
    if surveyed and arm.activations() is not None:
        survey = survey_of(arm.activations())
    with survey as found:
        arm.backward(loss)
    mark()
    arm.update()
    mark()
    value = loss.item()
    return {
        "began": times[0],
        "seconds": times[-1] - times[0],
        "phases": [end - begin for begin, end in zip(times, times[1:], strict=False)],
        "bytes": [
            [end - begin for begin, end in zip(earlier, later, strict=True)]
            for earlier, later in zip(moved, moved[1:], strict=False)
        ],
        "moved": moved[-1],
        "surveyed": (found.read, found.written) if found else (0, 0),
        "activations": arm.activation_bytes() - stored,
        "loss": value,
        "bits": value.hex(),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("arm", choices=list(ARMS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--create", action="store_true", help="the model is made in tierd")
    parser.add_argument("--counted", type=int, default=0, help="the process whose bytes are counted (0: this one)")
    parser.add_argument("--returned", action="store_true", help="freed memory is returned at once, as offload() has it")
    for option in ("--model", "--socket", "--folder", "--config", "--update", "--moves"):
        parser.add_argument(option, default="")
    arguments = parser.parse_args()
    out: TextIO = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # What libraries print must not look like answers.

    def say(**fields: Any) -> None:
        print(json.dumps(fields), file=out, flush=True)

    import torch

    torch.set_num_threads(arguments.threads)
    random.seed(0)
    say(event="idle")
    if not arguments.model:
        sys.stdin.read()
        return
    model = Model.decoded(arguments.model)
    arm = ARMS[arguments.arm](arguments, maker(model))
    feed = batches(model)
    versions = {"python": platform.python_version(), "torch": torch.__version__} | arm.versions
    names = ("OMP_WAIT_POLICY", "LD_PRELOAD", "MALLOC_CONF")
    config = arm.config | {"threads": arguments.threads} | {name: os.environ.get(name, "") for name in names}
    say(event="ready", versions=versions, config=config)
    counted = arguments.counted or os.getpid()
    moved = device_bytes(counted)
    for line in sys.stdin:
        verb, *phases = line.split()
        arm.begin([(int(read), int(written)) for read, written in (phase.split("+") for phase in phases)])
        answer = one_step(arm, next(feed), counted, moved, surveyed=verb == "survey")
        moved = answer["moved"]
        say(event="step", **answer)
    arm.close()


if __name__ == "__main__":
    main()
