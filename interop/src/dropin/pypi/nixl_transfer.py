"""Transfers between two hosts by NIXL's UCX backend, whose data are compared.

Rank 1 writes to memory of rank 0, with a notification, and reads other memory of it.
"""

import time

import numpy as np
from nixl_cu12._api import nixl_agent, nixl_agent_config

from peer import LENGTH, Peer, arguments, pattern

rank, own, other = arguments()
peer = Peer(rank, own, other)
agent = nixl_agent(f"rank{rank}", nixl_agent_config(backends=["UCX"]))
written, read = (np.zeros(LENGTH, dtype=np.uint8) for _ in range(2))
if rank == 0:
    read[:] = np.frombuffer(pattern(2), dtype=np.uint8)
else:
    written[:] = np.frombuffer(pattern(1), dtype=np.uint8)
places = [(buffer.ctypes.data, LENGTH, 0) for buffer in (written, read)]
agent.register_memory(agent.get_reg_descs([place + ("",) for place in places], "DRAM"))
peer.send((agent.get_agent_metadata(), places))
metadata, remote = peer.receive()
name = agent.add_remote_agent(metadata)


def wait(is_done):
    end = time.monotonic() + 30
    while not is_done():
        if time.monotonic() > end:
            raise SystemExit("a transfer does not end")


def transfer(operation, index):
    local = agent.get_xfer_descs([places[index]], "DRAM")
    there = agent.get_xfer_descs([remote[index]], "DRAM")
    handle = agent.initialize_xfer(operation, local, there, name, b"done " + operation.encode())
    state = agent.transfer(handle)

    def is_done():
        state = agent.check_xfer_state(handle)
        if state == "ERR":
            raise SystemExit(f"{operation} failed")
        return state == "DONE"

    if state != "DONE":
        wait(is_done)
    agent.release_xfer_handle(handle)


if rank == 1:
    transfer("WRITE", 0)
    transfer("READ", 1)
    if read.tobytes() != pattern(2):
        raise SystemExit("what was read differs")
    print("READ: the data are right", flush=True)
    peer.receive()
else:
    said = []

    def is_told():
        for messages in agent.get_new_notifs().values():
            said.extend(messages)
        return len(said) == 2

    wait(is_told)
    if written.tobytes() != pattern(1):
        raise SystemExit("what was written differs")
    print("WRITE: the data are right", flush=True)
    peer.send("done")
