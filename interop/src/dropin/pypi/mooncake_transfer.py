"""Transfers between two hosts by Mooncake's transfer engine over RDMA, whose data are compared.

Rank 1 writes to memory of rank 0 and reads other memory of it.
"""

import ctypes

from peer import LENGTH, Peer, arguments, pattern

rank, own, other = arguments()
from mooncake.engine import TransferEngine

peer = Peer(rank, own, other)
engine = TransferEngine()
if engine.initialize(own, "P2PHANDSHAKE", "rdma", "roce0") != 0:
    raise SystemExit("the engine does not start")
written, read = ((ctypes.c_char * LENGTH)() for _ in range(2))
if rank == 0:
    read.raw = pattern(2)
else:
    written.raw = pattern(1)
places = [ctypes.addressof(buffer) for buffer in (written, read)]
for place in places:
    if engine.register_memory(place, LENGTH) != 0:
        raise SystemExit("memory cannot be registered")
peer.send((f"{own}:{engine.get_rpc_port()}", places))
session, remote = peer.receive()
if rank == 1:
    if engine.transfer_sync_write(session, places[0], remote[0], LENGTH) != 0:
        raise SystemExit("WRITE failed")
    if engine.transfer_sync_read(session, places[1], remote[1], LENGTH) != 0:
        raise SystemExit("READ failed")
    if read.raw != pattern(2):
        raise SystemExit("what was read differs")
    print("READ: the data are right", flush=True)
    peer.send("done")
    peer.receive()
else:
    peer.receive()
    if written.raw != pattern(1):
        raise SystemExit("what was written differs")
    print("WRITE: the data are right", flush=True)
    peer.send("done")
