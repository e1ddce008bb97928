"""Trains a small model with DistributedDataParallel, and prints the loss.

    roce run --local 3 --torchrun -- python3 train.py roce

The loss is the same with gloo to six digits: sums of floats in another order differ behind them.
"""

import os
import sys

os.environ.setdefault("GLOO_SOCKET_IFNAME", "eth0")

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import roce.torch  # Registers the backend.

STEPS = 60
BATCH = 32


def main() -> None:
    backend = sys.argv[1]
    torch.set_num_threads(1)
    dist.init_process_group(backend)
    rank, size = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(7 + rank)  # DistributedDataParallel gives all ranks the model of rank 0.
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 256),
        torch.nn.Tanh(),
        torch.nn.BatchNorm1d(256),
        torch.nn.Linear(256, 256),
        torch.nn.Tanh(),
        torch.nn.Linear(256, 1),
    )
    # Small buckets, so that several reductions overlap the backward pass.
    model = DistributedDataParallel(model, bucket_cap_mb=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)

    data = torch.Generator().manual_seed(11)
    inputs = torch.randn(STEPS, size, BATCH, 64, generator=data)
    targets = torch.sin(inputs.sum(dim=-1, keepdim=True))
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs[step, rank]), targets[step, rank])
        loss.backward()
        optimizer.step()

    mean = loss.detach().double()
    dist.all_reduce(mean)
    mean /= size
    # All ranks have the same parameters, to the last bit.
    checksum = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    every = [torch.empty_like(checksum) for _ in range(size)]
    dist.all_gather(every, checksum)
    assert all(torch.equal(one, checksum) for one in every), "the ranks' models differ"
    if rank == 0:
        print(f"torch {torch.__version__}, {backend}, {size} ranks: loss {mean.item():.9f}")
    dist.barrier()


if __name__ == "__main__":
    main()
