"""Compares every operation of the backend "roce" with gloo's, or with what it must give.

    roce run --local 3 --torchrun -- python3 operations.py
"""

import os

os.environ.setdefault("GLOO_SOCKET_IFNAME", "eth0")

import torch
import torch.distributed as dist

import roce
import roce.torch  # Registers the backend.

TYPES = (torch.int8, torch.uint8, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64)


def ours_and_theirs(make, call):
    """Returns the tensors that a call has filled, of both backends."""
    results = []
    for group in (ROCE, GLOO):
        tensors = make()
        call(tensors, group)
        results.append(tensors)
    return results


def same(make, call):
    ours, theirs = ours_and_theirs(make, call)
    for one, other in zip(ours, theirs):
        assert torch.equal(one, other), (one, other)


def main() -> None:
    global ROCE, GLOO
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    GLOO, ROCE = dist.group.WORLD, dist.new_group(backend="roce")
    assert ROCE.name() == "roce" and (ROCE.rank(), ROCE.size()) == (rank, size)

    for dtype in TYPES:
        for count in (1, 5, 100_003):
            def row(r=rank, length=count):
                return ((torch.arange(length) % 5) + r + 1).to(dtype)

            for op in (dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX):
                same(lambda: [row()], lambda t, g: dist.all_reduce(t[0], op, group=g))
            root = size - 1
            ours, theirs = ours_and_theirs(lambda: [row()], lambda t, g: dist.reduce(t[0], root, group=g))
            assert rank != root or torch.equal(ours[0], theirs[0])
            same(lambda: [row()], lambda t, g: dist.broadcast(t[0], root, group=g))
            same(
                lambda: [torch.zeros_like(row()) for _ in range(size)],
                lambda t, g: dist.all_gather(t, row(), group=g),
            )
            # Gloo of older versions has no reduce_scatter.
            output = torch.zeros_like(row())
            dist.reduce_scatter(output, [row(rank + i) for i in range(size)], group=ROCE)
            assert torch.equal(output, sum(row(r + rank).long() for r in range(size)).to(dtype))
            gathered = [torch.zeros_like(row()) for _ in range(size)] if rank == 1 else None
            dist.gather(row(), gathered, dst=1, group=ROCE)
            assert gathered is None or all(torch.equal(g, row(r)) for r, g in enumerate(gathered))
            spread = [row(r) for r in range(size)] if rank == 1 else None
            dist.scatter(output, spread, src=1, group=ROCE)
            assert torch.equal(output, row())
            got = torch.zeros(size, count, dtype=dtype)
            dist.all_to_all_single(got, torch.stack([row(rank + i) for i in range(size)]), group=ROCE)
            assert torch.equal(got, torch.stack([row(r + rank) for r in range(size)]))

    # Several at once, in order; then types and shapes that are not reduced where they are.
    tensors = [torch.full((1000,), float(i + rank)) for i in range(20)]
    works = [dist.all_reduce(tensor, group=ROCE, async_op=True) for tensor in tensors]
    for i, (work, tensor) in enumerate(zip(works, tensors)):
        work.wait()
        assert work.is_completed() and tensor[0] == size * i + size * (size - 1) / 2
    square = torch.arange(12.0).reshape(3, 4).t() + rank
    expected = sum(torch.arange(12.0).reshape(3, 4).t() + r for r in range(size))
    dist.all_reduce(square, group=ROCE)
    assert torch.equal(square, expected)
    for tensor, expected in (
        (torch.tensor([1, 2], dtype=torch.int16), torch.tensor([size, 2 * size], dtype=torch.int16)),
        (torch.tensor([rank == 0, False]), torch.tensor([True, False])),
        (torch.ones(3, dtype=torch.bfloat16), torch.full((3,), float(size)).bfloat16()),
        (torch.ones(3, dtype=torch.complex64), torch.full((3,), size, dtype=torch.complex64)),
        (torch.tensor(2.5), torch.tensor(2.5 * size)),
    ):
        dist.all_reduce(tensor, group=ROCE)
        assert torch.equal(tensor, expected), (tensor, expected)
    average = torch.full((4,), float(rank))
    dist.all_reduce(average, dist.ReduceOp.AVG, group=ROCE)
    assert torch.equal(average, torch.full((4,), (size - 1) / 2))
    for refused in (
        lambda: dist.all_reduce(average, dist.ReduceOp.BXOR, group=ROCE),
        lambda: ROCE.allreduce([torch.ones(2).to_sparse()]),
    ):
        try:
            refused()
            raise AssertionError("not refused")
        except ValueError:
            pass
    dist.barrier(group=ROCE)

    # A rank that gives up is named to the others.
    if rank == 0:
        ROCE.abort()
    try:
        dist.all_reduce(average, group=ROCE)
        raise AssertionError("rank 0 gave up")
    except (roce.GroupEndedError, roce.PeerError) as error:
        assert rank == 0 or error.rank == 0, error
    print(f"rank {rank} of {size}: right")
    dist.barrier()


if __name__ == "__main__":
    main()
