"""Transfers between two hosts by endpoints of DLSlime, whose data are compared.

Rank 1 writes to memory of rank 0, the last piece with immediate data, and reads other memory of it.
"""

import ctypes

from dlslime import RDMAEndpoint

from peer import LENGTH, Peer, arguments, pattern

PIECE = LENGTH // 8

rank, own, other = arguments()
peer = Peer(rank, own, other)
endpoint = RDMAEndpoint(device_name="roce0", ib_port=1, link_type="RoCE")
contents = (pattern(1), b"") if rank == 1 else (b"", pattern(2))
written, read = (ctypes.create_string_buffer(data, LENGTH) for data in contents)
local = [
    endpoint.register_memory_region(name, ctypes.addressof(buffer), 0, LENGTH)
    for name, buffer in (("written", written), ("read", read))
]
peer.send(endpoint.endpoint_info())
theirs = peer.receive()
remote = [
    endpoint.register_remote_memory_region(name, theirs["mr_info"][name])
    for name in ("written", "read")
]
endpoint.connect(theirs)
# Both ends have connected once each has heard so from the other.
peer.send("connected")
peer.receive()


def pieces(index, offsets):
    return [(local[index], remote[index], offset, offset, PIECE) for offset in offsets]


if rank == 1:
    peer.receive()
    offsets = range(0, LENGTH, PIECE)
    endpoint.write(pieces(0, offsets[:-1]), None).wait()
    endpoint.write_with_imm(pieces(0, offsets[-1:]), 4711, None).wait()
    endpoint.read(pieces(1, offsets), None).wait()
    if read.raw != pattern(2):
        raise SystemExit("what was read differs")
    print("READ: the data are right", flush=True)
    peer.receive()
else:
    told = endpoint.imm_recv(None)
    peer.send("a receive is posted")
    told.wait()
    if told.imm_data() != 4711:
        raise SystemExit(f"the immediate data are {told.imm_data()}")
    if written.raw != pattern(1):
        raise SystemExit("what was written differs")
    print("WRITE: the data are right", flush=True)
    peer.send("done")
