"""The backend "roce" of `torch.distributed`, for tensors in the memory of the CPU.

    import torch.distributed as dist
    import roce.torch

    dist.init_process_group("roce")

Operations run in order in a thread of the process group, on `roce.Group`; tensors are sent from and
received into their own memory. `send` and `recv` do not exist: a ring has no way from any rank to any
other.
"""

import os
import queue
import sys
import threading
import weakref
from collections import deque
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work

import roce

__all__ = ["ProcessGroup", "configure"]

_TYPES = {
    torch.int8: "int8",
    torch.uint8: "uint8",
    torch.int32: "int32",
    torch.int64: "int64",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float32",
    torch.float64: "float64",
}

#: Types that are reduced in another.
_WIDER = {torch.int16: torch.int32, torch.bool: torch.uint8}

_OPS = {
    dist.ReduceOp.SUM: "sum",
    dist.ReduceOp.AVG: "avg",
    dist.ReduceOp.PRODUCT: "prod",
    dist.ReduceOp.MIN: "min",
    dist.ReduceOp.MAX: "max",
}

#: Seconds that a process which ends waits for the other ranks to end.
_LEAVE_TIMEOUT = 10.0

_options = {}


def configure(**options) -> None:
    """Sets keyword arguments of the `roce.Group` of process groups that are made later.

    >>> configure(interfaces=["eth0", "eth1"])
    """
    _options.update(options)


class ProcessGroup(dist.ProcessGroup):
    """A process group over `roce.Group`; `init_process_group("roce")` makes it."""

    def __init__(self, store, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        self._group = _join(store, rank, size, timeout)
        self._worker = _Worker(self._group)
        # Of older versions of torch, C++ does not keep the Python part of what is returned to it.
        self._recent = deque(maxlen=16)
        self._close = weakref.finalize(self, self._worker.close)

    def getBackendName(self) -> str:
        return "roce"

    name = getBackendName

    def shutdown(self) -> None:
        """Leaves the group; returns when all ranks do."""
        self._close()

    def abort(self) -> None:
        """Ends the operations that wait, and the group."""
        self._group.abort()

    def _submit(self, call, result) -> Work:
        work = self._worker.submit(call, result)
        self._recent.append(work)
        return work

    def allreduce(self, tensors, opts=None) -> Work:
        op = dist.ReduceOp.SUM if opts is None else opts.reduceOp
        # Arguments are judged here, so that the caller gets the exception.
        parts = [_Reduced(tensor, op) for tensor in tensors]

        def call():
            for part in parts:
                self._group.all_reduce(part.memory, op=part.op, dtype=part.dtype)
                part.finish()

        return self._submit(call, tensors)

    def allreduce_coalesced(self, tensors, opts=None) -> Work:
        return self.allreduce(tensors, opts)

    def reduce(self, tensors, opts) -> Work:
        parts = [_Reduced(tensor, opts.reduceOp) for tensor in tensors]
        root = opts.rootRank

        def call():
            for part in parts:
                self._group.reduce(part.memory, root=root, op=part.op, dtype=part.dtype)
                if root == self._group.rank:
                    part.finish()

        return self._submit(call, tensors)

    def broadcast(self, tensors, opts) -> Work:
        parts = [_Moved(tensor) for tensor in tensors]

        def call():
            for part in parts:
                self._group.broadcast(part.memory, root=opts.rootRank)
                part.finish()

        return self._submit(call, tensors)

    def allgather(self, output_lists, inputs, opts=None) -> Work:
        parts = [
            (outputs, _Moved(tensor), _like_rows(tensor, outputs, self._group.size))
            for outputs, tensor in zip(output_lists, inputs)
        ]

        def call():
            for outputs, part, rows in parts:
                self._group.all_gather(part.memory, _bytes(rows))
                for output, row in zip(outputs, rows):
                    output.copy_(row.view(output.shape))

        return self._submit(call, output_lists)

    def _allgather_base(self, output, input, opts=None) -> Work:
        source, target = _Moved(input), _Moved(output)

        def call():
            self._group.all_gather(source.memory, target.memory)
            target.finish()

        return self._submit(call, output)

    def gather(self, output_lists, inputs, opts) -> Work:
        (tensor,) = inputs
        part, is_root = _Moved(tensor), opts.rootRank == self._group.rank
        outputs = output_lists[0] if is_root else None
        rows = _like_rows(tensor, outputs, self._group.size)

        def call():
            self._group.all_gather(part.memory, _bytes(rows))
            for output, row in zip(outputs or (), rows):
                output.copy_(row.view(output.shape))

        return self._submit(call, output_lists)

    def scatter(self, outputs, input_lists, opts) -> Work:
        (output,) = outputs
        is_root = opts.rootRank == self._group.rank
        rows = _like_rows(output, input_lists[0] if is_root else None, self._group.size)
        if is_root:
            for row, tensor in zip(rows, input_lists[0]):
                row.copy_(tensor.reshape(-1))

        def call():
            self._group.broadcast(_bytes(rows), root=opts.rootRank)
            output.copy_(rows[self._group.rank].view(output.shape))

        return self._submit(call, outputs)

    def reduce_scatter(self, outputs, input_lists, opts) -> Work:
        calls = []
        for output, inputs in zip(outputs, input_lists):
            rows = torch.stack([tensor.reshape(-1) for tensor in inputs])
            calls.append(self._reduce_scatter(output, rows, opts))
        return self._submit(lambda: [call() for call in calls], outputs)

    def _reduce_scatter_base(self, output, input, opts) -> Work:
        return self._submit(self._reduce_scatter(output, input, opts), output)

    def _reduce_scatter(self, output, input, opts):
        source, target = _Reduced(input, opts.reduceOp), _Reduced(output, opts.reduceOp)

        def call():
            self._group.reduce_scatter(
                source.memory, target.memory, op=source.op, dtype=source.dtype
            )
            target.finish()

        return call

    def alltoall_base(self, output, input, output_sizes, input_sizes, opts=None) -> Work:
        if len(set(output_sizes)) > 1 or len(set(input_sizes)) > 1:
            raise ValueError("roce: parts of different lengths are not sent by all_to_all_single")
        source, target = _Moved(input), _Moved(output)

        def call():
            self._group.all_to_all(source.memory, target.memory)
            target.finish()

        return self._submit(call, output)

    def alltoall(self, outputs, inputs, opts=None) -> Work:
        rows = _like_rows(inputs[0], inputs, self._group.size)
        for row, tensor in zip(rows, inputs):
            row.copy_(tensor.reshape(-1))
        got = torch.empty_like(rows)

        def call():
            self._group.all_to_all(_bytes(rows), _bytes(got))
            for output, row in zip(outputs, got):
                output.copy_(row.view(output.shape))

        return self._submit(call, outputs)

    def barrier(self, opts=None) -> Work:
        return self._submit(self._group.barrier, [])

    def send(self, *_arguments) -> Work:
        raise RuntimeError("roce: a ring has no send; use broadcast, or a group of backend gloo")

    def recv(self, *_arguments) -> Work:
        raise RuntimeError("roce: a ring has no recv; use broadcast, or a group of backend gloo")


class _Work(Work):
    """An operation that runs, or waits for its turn."""

    def __init__(self, result) -> None:
        super().__init__()
        self._done = threading.Event()
        self._error = None
        self._result = result
        # The callback hands an exception to waiters in C++ as an error instead of as a value.
        self._end = torch.futures.Future()
        self._future = self._end.then(self._value)

    def _value(self, _end):
        if self._error is not None:
            raise self._error
        return self._result

    def _finish(self, error=None) -> None:
        self._error = error
        self._done.set()
        self._end.set_result(None)

    def wait(self, timeout=None) -> bool:
        seconds = timeout.total_seconds() if timeout else 0
        if not self._done.wait(seconds if seconds > 0 else None):
            raise RuntimeError(f"roce: the operation was not done within {seconds} s")
        if self._error is not None:
            raise self._error
        return True

    def is_completed(self) -> bool:
        return self._done.is_set()

    def is_success(self) -> bool:
        return self._done.is_set() and self._error is None

    def exception(self):
        return self._error

    def result(self):
        return self._result

    def get_future(self):
        return self._future


class _Worker:
    """The thread that runs the operations of a group one after the other."""

    def __init__(self, group) -> None:
        self._group = group
        self._queue = queue.SimpleQueue()
        # The interpreter joins other threads before `close` could end this one.
        self._thread = threading.Thread(target=self._run, name="roce", daemon=True)
        self._thread.start()

    def submit(self, call, result) -> _Work:
        work = _Work(result)
        self._queue.put((call, work))
        return work

    def _run(self) -> None:
        while True:
            item = self._queue.get()
            if item is None:
                return
            call, work = item
            try:
                call()
            except BaseException as error:  # The waiter raises it.
                work._finish(error)
            else:
                work._finish()
            # Until the next operation, nothing keeps the tensors of this one.
            del item, call, work

    def close(self) -> None:
        """Leaves the group after the operations that were submitted."""
        if getattr(sys, "last_value", None) is not None:
            # The program failed: the other ranks must not wait for it.
            self._group.abort()
            return
        self._queue.put(None)
        leaver = threading.Thread(target=self._leave, daemon=True)
        leaver.start()
        leaver.join(_LEAVE_TIMEOUT)
        if leaver.is_alive():
            self._group.abort()

    def _leave(self) -> None:
        self._thread.join()
        try:
            self._group.leave()
        except roce.Error:
            pass  # Another rank failed after the last operation.


class _Moved:
    """A tensor whose bytes are sent or received."""

    def __init__(self, tensor) -> None:
        _check(tensor)
        self._tensor = tensor
        self._flat = tensor.detach().contiguous()
        self.memory = _bytes(self._flat)

    def finish(self) -> None:
        """Brings what was received to a tensor whose elements are not one behind the other."""
        if self._flat.data_ptr() != self._tensor.data_ptr():
            self._tensor.detach().copy_(self._flat)


class _Reduced:
    """A tensor whose elements are reduced."""

    def __init__(self, tensor, op) -> None:
        _check(tensor)
        name = next((name for known, name in _OPS.items() if op == known), None)
        if name is None:
            raise ValueError(f"roce: {op} is not supported; use SUM, AVG, PRODUCT, MIN or MAX")
        flat = tensor.detach()
        if flat.is_complex():
            if name not in ("sum", "avg"):
                raise ValueError(f"roce: complex numbers have no {name}")
            flat = torch.view_as_real(flat)
        if flat.dtype is torch.bool:
            # As torch: or, and.
            name = {"sum": "max", "avg": "max", "prod": "min"}.get(name, name)
        self._tensor = tensor
        self._flat = flat.to(_WIDER.get(flat.dtype, flat.dtype)).contiguous()
        if self._flat.dtype not in _TYPES:
            raise ValueError(f"roce: elements of {self._flat.dtype} cannot be reduced")
        self.op, self.dtype = name, _TYPES[self._flat.dtype]
        self.memory = _bytes(self._flat)

    def finish(self) -> None:
        """Brings the result to a tensor that was not reduced where it is."""
        if self._flat.data_ptr() != self._tensor.data_ptr():
            target = self._tensor.detach()
            target = torch.view_as_real(target) if target.is_complex() else target
            target.copy_(self._flat)


def _check(tensor) -> None:
    if tensor.device.type != "cpu" or tensor.is_sparse:
        raise ValueError(f"roce: needs dense tensors of the CPU, not of {tensor.device}")


def _bytes(tensor):
    """Returns the memory of a contiguous tensor as a NumPy array of bytes."""
    return tensor.reshape(-1).view(torch.uint8).numpy()


def _like_rows(tensor, others, count):
    """Returns a tensor with a row for each rank, and checks that `others` fit the rows."""
    _check(tensor)
    for other in others or ():
        if other.numel() != tensor.numel() or other.dtype != tensor.dtype:
            raise ValueError("roce: all tensors of the list need the same shape and type")
    if others is not None and len(others) != count:
        raise ValueError(f"roce: {len(others)} tensors for {count} ranks")
    return torch.empty((count, tensor.numel()), dtype=tensor.dtype)


def _join(store, rank, size, timeout):
    seconds = timeout.total_seconds()
    # As with other backends, the timeout is that of each operation, too.
    options = {"timeout": seconds, "operation_timeout": seconds, **_options}
    if size == 1:
        return roce.Group(0, 1, **options)
    if rank > 0:
        root = store.get("roce.root").decode()
        return roce.Group(rank, size, root, **options)
    host = _master(store)
    is_v6 = ":" in host

    def tell(address):
        port = address.rsplit(":", 1)[1]
        store.set("roce.root", f"[{host}]:{port}" if is_v6 else f"{host}:{port}")

    return roce.Group(0, size, "[::]:0" if is_v6 else "0.0.0.0:0", on_listen=tell, **options)


def _master(store) -> str:
    """Returns the address of rank 0's host: that of the store, or of the launcher."""
    while store is not None:
        host = getattr(store, "host", None)
        if host:
            return host
        store = getattr(store, "underlying_store", None)
    host = os.environ.get("MASTER_ADDR")
    if not host:
        raise ValueError("roce: set MASTER_ADDR to an address of rank 0's host")
    return host


def _create(store, rank, size, timeout):
    return ProcessGroup(store, rank, size, timeout)


def _register() -> None:
    if hasattr(dist.Backend, "ROCE"):
        return
    try:
        dist.Backend.register_backend("roce", _create, devices=["cpu"])
    except TypeError:  # Before torch 2.0.
        dist.Backend.register_backend("roce", _create)


_register()
