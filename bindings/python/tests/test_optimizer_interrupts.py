"""A step that is interrupted at any point, and continued."""

from __future__ import annotations

import torch
from fake_library import FakeLibrary
from test_interrupts import Interrupter
from test_optimizer import assert_same_bits, give_gradients, parameters_of, run

import tierd
import tierd.torch
from tierd.session import Session


def test_a_step_interrupted_at_any_point_is_continued_with_the_same_bits() -> None:
    theirs = parameters_of([(10,), (5,)])
    plain = torch.optim.AdamW(theirs, fused=True)
    run(plain, theirs, 2)
    for first in (True, False):
        at = 0
        while True:
            fake = FakeLibrary()
            client = tierd.Client(Session(fake, 1))  # type: ignore[arg-type]
            parameters = parameters_of([(10,), (5,)])
            tiered = tierd.torch.AdamW(parameters, client=client)
            if not first:
                run(tiered, parameters, 1)
            give_gradients(parameters, 0 if first else 1)
            caught: list[BaseException] = []
            with Interrupter(at) as interrupter:
                try:
                    tiered.step()
                except KeyboardInterrupt as error:
                    caught.append(error)  # With its frames, as code that reports it does.
            if not interrupter.raised:
                break
            assert fake.leases == {} and all(tensor.sealed for tensor in fake.tensors.values()), at
            steps = {tiered.state[parameter].get("step", torch.zeros(())).item() for parameter in parameters}
            whole = steps == {1.0 if first else 2.0} and not any(s.finished for s in tiered._tiered.values())
            if not whole:  # Else the interrupt came when all was done.
                tiered.step()
            if first:
                give_gradients(parameters, 1)
                tiered.step()
            assert_same_bits(parameters, theirs)
            at += 1
    assert at >= 100
