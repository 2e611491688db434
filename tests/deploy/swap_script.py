"""What the other user runs in the drill: torch tensors of 64 MiB through an arena of 256 MiB, digests equal.

swap_script.py TENSORS
"""

import hashlib
import sys

import tierd
import torch

BYTES = 64 << 20
ARENA_BYTES = 256 << 20


def digest(tensor: torch.Tensor) -> str:
    return hashlib.blake2b(tensor.numpy().tobytes(), digest_size=16).hexdigest()


def main(tensors: int) -> None:
    generator = torch.Generator().manual_seed(1)
    digests = []
    with tierd.connect(job="drill", autostart=False) as client:
        for index in range(tensors):
            tensor = torch.randint(0, 256, (BYTES,), dtype=torch.uint8, generator=generator)
            digests.append(digest(tensor))
            client.put(f"tensor{index}", tensor)
        resident = [client.tensor(f"tensor{index}").ram_bytes for index in range(tensors)]
        assert sum(resident) <= ARENA_BYTES, f"{sum(resident)} bytes in RAM: more than the arena"
        for index, expected in enumerate(digests):
            assert digest(client.get(f"tensor{index}")) == expected, f"tensor{index} came back altered"
    print(f"{tensors * BYTES} bytes there and back")


if __name__ == "__main__":
    main(int(sys.argv[1]))
