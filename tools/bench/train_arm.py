#!/usr/bin/env python3
"""One arm of the training bench: a process that trains the same model, data and dtype as the others, a step when told.

Prints JSON lines: ``idle`` with torch alone, ``ready`` with the model made, and one ``step`` for each line on stdin.
The model is the decoder of the demo. Arms: plain torch; tierd with the update in ``step()`` or in backward; DeepSpeed
ZeRO-3 with parameters and optimizer on NVMe, by its default configuration, tuned by hand, or tuned and pipelined.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import pathlib
import sys
import time
from typing import Any, TextIO

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bindings/python/demo"), str(ROOT / "bindings/python")]

CONTEXT = 256
LEARNING_RATE = 1e-4


class Plain:
    """torch as it is."""

    def __init__(self, arguments: argparse.Namespace, make: Any) -> None:
        import torch

        self.model = make()
        self.optimizer: Any = torch.optim.AdamW(self.model.parameters(), lr=LEARNING_RATE, fused=True)

    def forward(self, inputs: Any, targets: Any) -> Any:
        return self.model(inputs, targets)

    def backward(self, loss: Any) -> None:
        loss.backward()

    def update(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()

    def close(self) -> None:
        pass


class Tierd(Plain):
    """The model in tierd, at defaults."""

    def __init__(self, arguments: argparse.Namespace, make: Any) -> None:
        import tierd
        import tierd.torch

        self._client = tierd.connect(job="train", socket=arguments.socket)
        self.model, self.optimizer = tierd.torch.offload(
            make(), tierd.torch.AdamW, client=self._client, lr=LEARNING_RATE, update=arguments.update
        )

    def close(self) -> None:
        del self.model, self.optimizer
        gc.collect()
        self._client.close()


class DeepSpeed(Plain):
    """ZeRO-3 with parameters and optimizer on NVMe."""

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

        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
        config = configuration(arguments.config, arguments.folder, arguments.largest)
        with deepspeed.zero.Init(config_dict_or_path=config):
            model = make()
        optimizer = DeepSpeedCPUAdam(model.parameters(), lr=LEARNING_RATE, weight_decay=1e-2)
        self.model, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)

    def backward(self, loss: Any) -> None:
        self.model.backward(loss)

    def update(self) -> None:
        self.model.step()


def configuration(name: str, folder: str, largest: int) -> dict[str, Any]:
    """DeepSpeed's defaults, and what its users set by hand: buffers of the largest parameter, small groups."""
    nvme = {"device": "nvme", "nvme_path": folder, "pin_memory": False}
    zero: dict[str, Any] = {"stage": 3, "offload_param": dict(nvme), "offload_optimizer": dict(nvme)}
    aio = {}
    if name != "default":
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


def private_bytes() -> int:
    import footprint

    return footprint.private_bytes(os.getpid())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("arm", choices=("plain", "tierd", "deepspeed"))
    for option, default in (("--layers", 12), ("--width", 768), ("--threads", 2), ("--largest", 0)):
        parser.add_argument(option, type=int, default=default)
    for option in ("--socket", "--folder", "--config", "--update"):
        parser.add_argument(option, default="")
    arguments = parser.parse_args()
    out: TextIO = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # What libraries print must not look like answers.

    def say(**fields: Any) -> None:
        print(json.dumps(fields), file=out, flush=True)

    import corpus
    import gpt
    import torch

    torch.set_num_threads(arguments.threads)
    say(event="idle", bytes=private_bytes())
    shape = gpt.Shape(arguments.layers, arguments.width, arguments.width // 64, CONTEXT)

    def make() -> Any:
        torch.manual_seed(0)
        return gpt.Gpt(shape)

    arm = {"plain": Plain, "tierd": Tierd, "deepspeed": DeepSpeed}[arguments.arm](arguments, make)
    feed = corpus.batches(corpus.load(), 1, CONTEXT, 0)
    say(event="ready", parameters=gpt.parameter_count(shape), torch=torch.__version__)
    for _ in sys.stdin:
        inputs, targets = next(feed)
        times = [time.perf_counter()]
        loss = arm.forward(inputs, targets)
        times.append(time.perf_counter())
        arm.backward(loss)
        times.append(time.perf_counter())
        arm.update()
        times.append(time.perf_counter())
        value = loss.item()
        del loss
        phases = [after - before for before, after in zip(times, times[1:], strict=False)]
        say(event="step", seconds=sum(phases), phases=phases, loss=value, bits=value.hex())
    arm.close()


if __name__ == "__main__":
    main()
