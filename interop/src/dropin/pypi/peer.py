"""What the scripts of both libraries share: a socket between two ranks, and bytes to compare."""

import pickle
import random
import socket
import struct
import sys
import time

LENGTH = 8 << 20
PORT = 18515


def arguments():
    """Returns the rank, its own address and that of the other."""
    return int(sys.argv[1]), sys.argv[2], sys.argv[3]


def pattern(seed):
    """Returns LENGTH bytes that follow from a seed."""
    return random.Random(seed).randbytes(LENGTH)


class Peer:
    """A connection to the other rank, over which objects are sent."""

    def __init__(self, rank, own, other):
        if rank == 0:
            with socket.create_server((own, PORT)) as server:
                self.socket, _ = server.accept()
            return
        for _ in range(200):
            try:
                self.socket = socket.create_connection((other, PORT))
                return
            except OSError:
                time.sleep(0.05)
        raise SystemExit("rank 0 does not listen")

    def send(self, value):
        data = pickle.dumps(value)
        self.socket.sendall(struct.pack("!Q", len(data)) + data)

    def receive(self):
        (length,) = struct.unpack("!Q", self.read(8))
        return pickle.loads(self.read(length))

    def read(self, length):
        data = b""
        while len(data) < length:
            part = self.socket.recv(length - len(data))
            if not part:
                raise SystemExit("the other rank has ended")
            data += part
        return data
