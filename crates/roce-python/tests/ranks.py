"""Properties of `roce.Group`: one rank of several, in private hosts.

    roce run --local 2 -- python3 ranks.py PROPERTY FOLDER {rank} {size}

The folder is empty and shared by the ranks. Rank r's element i is (i % 97) + r + 1, so that every sum
is exact in every type.
"""

import array
import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import roce

ROOT = "10.0.0.1:29500"
#: Below the length from which an argument is used where it is, and far above.
SHORT, LONG = (1, 1000), 50_001
TYPES = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64")
CASES = [(dtype, count) for dtype in TYPES for count in SHORT] + [("int8", LONG), ("float32", LONG)]


def data(rank, count, dtype):
    return ((np.arange(count) % 11) + rank + 1).astype(dtype)


def total(size, count, dtype):
    return sum(data(rank, count, "int64") for rank in range(size)).astype(dtype)


def check(found, expected):
    assert np.array_equal(found, expected), (found, expected)


def collectives(group, _folder):
    """Every collective computes what it says, on short and long arrays, in place and apart."""
    rank, size = group.rank, group.size
    for dtype, count in CASES:
        mine, everything = data(rank, count, dtype), total(size, count, dtype)
        apart, inside = np.zeros_like(mine), mine.copy()
        assert group.all_reduce(mine, apart) is apart
        check(apart, everything)
        check(mine, data(rank, count, dtype))
        assert group.all_reduce(inside) is inside
        check(inside, everything)
        check(group.all_reduce(mine, apart, op="max"), data(size - 1, count, dtype))

        root = size - 1
        target = np.zeros_like(mine)
        group.reduce(mine, target, root=root)
        check(target, everything if rank == root else np.zeros_like(mine))

        spread = data(rank, count, dtype)
        group.broadcast(spread, root=root)
        check(spread, data(root, count, dtype))

        gathered = np.zeros(size * count, dtype)
        group.all_gather(mine, gathered)
        check(gathered, np.concatenate([data(r, count, dtype) for r in range(size)]))
        part = slice(rank * count, (rank + 1) * count)
        within = np.zeros(size * count, dtype)
        within[part] = mine
        group.all_gather(within[part], within)
        check(within, gathered)

        whole, scattered = data(rank, size * count, dtype), np.zeros(count, dtype)
        group.reduce_scatter(whole, scattered)
        check(scattered, total(size, size * count, dtype)[part])
        group.reduce_scatter(whole, whole[part])
        check(whole[part], scattered)

        sent = np.concatenate([data(rank * size + to, count, dtype) for to in range(size)])
        got = np.zeros_like(sent)
        group.all_to_all(sent, got)
        check(got, np.concatenate([data(r * size + rank, count, dtype) for r in range(size)]))
    group.barrier()


def buffers(group, _folder):
    """Arguments are any objects with a buffer; what does not fit is the caller's fault, and the group goes on."""
    rank, size = group.rank, group.size
    floats = array.array("f", [rank + 1.0] * 5)
    assert group.all_reduce(floats) is floats
    assert floats.tolist() == [size * (size + 1) / 2] * 5
    brains = bytearray(bytes.fromhex("803f0040") if rank == 0 else bytes.fromhex("00400040"))
    group.all_reduce(memoryview(brains), dtype="bfloat16", op="max")
    assert brains.hex() == "00400040", brains.hex()
    text = b"from the root" if rank == 0 else bytearray(13)
    group.broadcast(text)
    assert text == b"from the root"
    for refused in (
        lambda: group.all_reduce(b"read-only, float"[:16], dtype="float32"),
        lambda: group.all_reduce(np.zeros(8, "int16")),
        lambda: group.all_reduce(np.zeros((8, 8))[:, 3]),
        lambda: group.all_reduce(np.zeros(8), np.zeros(9)),
        lambda: group.all_reduce(np.zeros(8), np.zeros(8, "int64")),
        lambda: group.all_reduce(np.zeros(8), op="xor"),
        lambda: group.all_reduce(bytearray(7), dtype="float32"),
        lambda: group.all_gather(np.zeros(8), np.zeros(8)),
        lambda: group.broadcast(np.zeros(8), root=size),
        lambda: group.reduce_scatter(np.zeros(7), np.zeros(7)),
    ):
        try:
            refused()
        except roce.UsageError as error:
            assert isinstance(error, ValueError) and str(error), error
        else:
            raise AssertionError("not refused")
    for count in (10, 100_000):
        crossing = np.zeros(2 * count, "int32")
        try:
            group.all_reduce(crossing[1 : count + 1], crossing[:count])
        except roce.UsageError as error:
            assert "overlap" in str(error), error
        else:
            raise AssertionError("not refused")
    try:
        group.all_reduce("text")
    except TypeError:
        pass
    group.barrier()


def waits(group, folder):
    """While a call waits, other threads run, and an argument can neither be freed nor resized."""
    long = bytearray(1 << 20)
    if group.rank == 0:
        refusals = []

        def other_thread():
            # The call exports the array before it waits; rank 1 comes when it was seen.
            while not refusals:
                try:
                    long.append(0)
                    del long[-1:]
                    time.sleep(0.001)
                except BufferError as error:
                    refusals.append(error)
            (folder / "seen").touch()

        thread = threading.Thread(target=other_thread)
        thread.start()
        while True:
            try:
                group.all_reduce(long, dtype="uint8")
                break
            except roce.UsageError:
                # It was one byte longer at that moment, which rank 1 does not know.
                continue
        thread.join()
        assert refusals
    else:
        while not (folder / "seen").exists():
            time.sleep(0.001)
        group.all_reduce(long, dtype="uint8")
    long.append(1)


def interrupted(group, folder):
    """Ctrl-C ends a call that waits, and the other ranks learn which rank gave up."""
    if group.rank == 0:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            group.barrier()
            raise AssertionError("rank 1 did not call it")
        except KeyboardInterrupt:
            (folder / "interrupted").touch()
        for _ in range(2):
            try:
                group.barrier()
                raise AssertionError("the group has ended")
            except roce.GroupEndedError:
                pass
    else:
        while not (folder / "interrupted").exists():
            time.sleep(0.001)
        try:
            group.all_reduce(np.zeros(100_000))
            raise AssertionError("rank 0 gave up")
        except roce.PeerError as error:
            assert error.rank == 0 and isinstance(error, ConnectionError), error


def aborted(group, folder):
    """`abort` ends the call of another thread, and a call that waits for that one, and the group."""
    ends = []

    def call():
        try:
            group.barrier()
        except (roce.GroupEndedError, roce.PeerError) as error:
            ends.append(error)

    if group.rank == 0:
        threads = [threading.Thread(target=call) for _ in range(2)]
        for thread in threads:
            thread.start()
        group.abort()
        (folder / "aborted").touch()
        for thread in threads:
            thread.join()
        # One call may be done before it sees that it is to end.
        assert ends, "both calls were done"
        try:
            group.barrier()
            raise AssertionError("the group has ended")
        except roce.GroupEndedError:
            group.leave()
    else:
        while not (folder / "aborted").exists():
            time.sleep(0.001)
        while not ends:
            call()
        assert ends[0].rank == 0, ends


def forked(group, _folder):
    """Whatever a child of fork does with the group, that of its parent goes on."""

    def leave():
        try:
            group.leave()
            raise AssertionError("the group is the parent's")
        except roce.GroupEndedError:
            pass

    def operate():
        try:
            group.barrier()
            raise AssertionError("the group is the parent's")
        except roce.Error:
            pass

    # The interpreter of the last one ends, and with it all objects.
    for use in (leave, operate, group.abort, sys.exit):
        child = os.fork()
        if child == 0:
            try:
                use()
            except SystemExit:
                raise
            except BaseException:
                os._exit(1)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0, use
        check(group.all_reduce(np.ones(100_000)), np.full(100_000, group.size))


def differing(group, _folder):
    """Ranks that call different operations get an error of a peer, instead of a wrong result."""
    try:
        if group.rank == 0:
            group.all_reduce(np.zeros(100_000))
        else:
            group.all_reduce(np.zeros(99_999), op="max")
        raise AssertionError("a result of two operations")
    except roce.PeerError as error:
        assert error.rank is not None, error
        for part in ("allreduce of 100000 ", " with sum", "allreduce of 99999 ", " with max"):
            assert part in str(error), error


def left_early(group, _folder):
    """A rank that leaves while the others call an operation is named to them at once, and is told, too."""
    group.barrier()
    begin = time.monotonic()
    try:
        if group.rank == 0:
            group.leave()
        else:
            group.all_reduce(np.zeros(100_000))
        raise AssertionError("rank 0 left before the others")
    except roce.PeerError as error:
        assert error.rank == 0, error
        assert "left" in str(error) and "1 operations" in str(error), error
    # A busy machine is slow, but a rank that is told nothing waits for ever.
    assert time.monotonic() - begin < 10


def late(group, folder):
    """An operation ends after its timeout with an error that names the rank that did not call it."""
    begin = time.monotonic()
    if group.rank == 1:
        while not (folder / "late").exists():
            time.sleep(0.001)
        try:
            # What the others sent before they gave up may complete one.
            for _ in range(3):
                group.barrier()
            raise AssertionError("the others gave up")
        except (roce.PeerError, roce.GroupEndedError):
            return
    try:
        group.barrier()
        raise AssertionError("rank 1 did not call it")
    except roce.PeerError as error:
        assert error.rank == 1, error
        assert "rank 1 failed: it did not call operation 0" in str(error), error
    took = time.monotonic() - begin
    (folder / "late").touch()
    assert TIMEOUT - 0.5 <= took < 30, took


def not_left(group, folder):
    """Leaving ends after the timeout of operations with an error that names the rank that stays."""
    if group.rank == 1:
        while not (folder / "not_left").exists():
            time.sleep(0.001)
        group.abort()
        return
    try:
        group.leave()
        raise AssertionError("rank 1 did not leave")
    except roce.PeerError as error:
        assert error.rank == 1 and "rank 1 failed: it did not leave" in str(error), error
    finally:
        (folder / "not_left").touch()


ENDED = (interrupted, aborted, differing, left_early, late, not_left)
#: Of operations, in seconds, where a property is about it.
TIMEOUT = 2.0


def main():
    name, folder, rank, size = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    run = globals()[name]
    timeout = TIMEOUT if run in (late, not_left) else None
    group = roce.Group(rank, size, ROOT, operation_timeout=timeout)
    assert (group.rank, group.size, group.interfaces) == (rank, size, ["eth0"])
    if run in ENDED:
        run(group, folder)
    else:
        with group:
            run(group, folder)
    print(f"{name}: right")


if __name__ == "__main__":
    main()
