"""Measures all-reduce of torch with the backends roce and gloo (over TCP), one after the other.

    roce run --local 3 --torchrun -- python3 allreduce.py

Prints for each size the median time of both over several rounds, in turn, and their ratio.
"""

import os
import statistics
import time

os.environ.setdefault("GLOO_SOCKET_IFNAME", "eth0")

import torch
import torch.distributed as dist

import roce.torch  # Registers the backend.

SIZES = {"4 B": (4, 500), "1 MiB": (1 << 20, 50), "64 MiB": (64 << 20, 3)}
ROUNDS = 5


def measure(tensor, group, count) -> float:
    dist.barrier(group=group)
    begin = time.perf_counter()
    for _ in range(count):
        dist.all_reduce(tensor, group=group)
    return (time.perf_counter() - begin) / count


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    groups = {"roce": dist.new_group(backend="roce"), "gloo": dist.group.WORLD}
    rank, size = dist.get_rank(), dist.get_world_size()
    for name, (length, count) in SIZES.items():
        tensor = torch.zeros(length // 4)
        times = {backend: [] for backend in groups}
        for round_number in range(ROUNDS + 1):
            for backend, group in groups.items():
                took = measure(tensor, group, count)
                if round_number > 0:  # The first warms up.
                    times[backend].append(took)
        ours, theirs = (statistics.median(times[backend]) for backend in groups)
        if rank == 0:
            print(
                f"{size} ranks, {name:>6}: roce {ours * 1e6:9.1f} us, gloo {theirs * 1e6:9.1f} us, "
                f"gloo / roce {theirs / ours:.2f}",
                flush=True,
            )
    dist.barrier()


if __name__ == "__main__":
    main()
