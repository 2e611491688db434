"""What the other user runs in the drill: 1 GiB of torch tensors through an arena of a quarter of that, digests equal."""

import hashlib

import tierd
import torch

TENSORS = 16
BYTES = 64 << 20


def digest(tensor: torch.Tensor) -> str:
    return hashlib.blake2b(tensor.numpy().tobytes(), digest_size=16).hexdigest()


def main() -> None:
    generator = torch.Generator().manual_seed(1)
    digests = []
    with tierd.connect(job="drill", autostart=False) as client:
        for index in range(TENSORS):
            tensor = torch.randint(0, 256, (BYTES,), dtype=torch.uint8, generator=generator)
            digests.append(digest(tensor))
            client.put(f"tensor{index}", tensor)
        resident = [client.tensor(f"tensor{index}").ram_bytes for index in range(TENSORS)]
        assert sum(resident) <= 512 << 20, f"{sum(resident)} bytes in RAM: nothing went to SSD"
        for index, expected in enumerate(digests):
            assert digest(client.get(f"tensor{index}")) == expected, f"tensor{index} came back altered"
    print(f"{TENSORS * BYTES} bytes there and back")


if __name__ == "__main__":
    main()
