"""A store of InfiniStore's on rank 0, to which rank 1 writes, and from which it reads; the data are compared.

The server READs what a client writes, and WRITEs what it reads. Rank 0 gets what was written by TCP, and
puts what is read there by TCP.
"""

import asyncio
import ctypes
import threading

import infinistore

from peer import LENGTH, Peer, arguments, pattern

PORT = 12345
# One piece of the memory for each key.
PIECE = LENGTH // 8

rank, own, other = arguments()
peer = Peer(rank, own, other)


def connection(kind, address):
    """Returns a connection to the store."""
    config = infinistore.ClientConfig(
        host_addr=address,
        service_port=PORT,
        connection_type=kind,
        dev_name="roce0",
        link_type=infinistore.LINK_ETHERNET,
    )
    client = infinistore.InfinityConnection(config)
    client.connect()
    return client


def keys(name):
    return [(f"{name} {offset}", offset) for offset in range(0, LENGTH, PIECE)]


def buffer_at(data):
    """Returns memory with these bytes, and its address."""
    memory = ctypes.create_string_buffer(data, LENGTH)
    return memory, ctypes.addressof(memory)


def serve():
    import uvloop

    loop = uvloop.new_event_loop()
    asyncio.set_event_loop(loop)
    config = infinistore.ServerConfig(
        service_port=PORT, dev_name="roce0", link_type=infinistore.LINK_ETHERNET, prealloc_size=1
    )
    infinistore.register_server(loop, config)
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    client = connection(infinistore.TYPE_TCP, own)
    memory, place = buffer_at(pattern(2))
    for key, offset in keys("read"):
        client.tcp_write_cache(key, place + offset, PIECE)
    peer.send("the store runs")
    peer.receive()
    written = b"".join(client.tcp_read_cache(key).tobytes() for key, _ in keys("written"))
    if written != pattern(1):
        raise SystemExit("what was written differs")
    print("WRITE: the data are right", flush=True)
    peer.send("done")
    peer.receive()
    client.close()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    # Entries that are left at exit would write to a log that is destroyed before them.
    infinistore.purge_kv_map()
    infinistore.evict_cache(0, 1e-9)


async def use(client):
    memory, place = buffer_at(pattern(1))
    client.register_mr(place, LENGTH)
    await client.rdma_write_cache_async(keys("written"), PIECE, place)
    memory, place = buffer_at(b"")
    client.register_mr(place, LENGTH)
    await client.rdma_read_cache_async(keys("read"), PIECE, place)
    if memory.raw != pattern(2):
        raise SystemExit("what was read differs")
    print("READ: the data are right", flush=True)


if rank == 0:
    serve()
else:
    peer.receive()
    client = connection(infinistore.TYPE_RDMA, other)
    asyncio.run(use(client))
    peer.send("done")
    peer.receive()
    client.close()
    peer.send("done")
