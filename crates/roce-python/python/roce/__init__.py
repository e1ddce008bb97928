"""RoCEv2 in user space: collectives over RDMA, and the libraries of the command `roce`.

>>> import roce
>>> with roce.Group(0, 1) as group:  # A group of one; others name the address of rank 0.
...     group.all_reduce(bytearray(8), dtype="float32")
bytearray(b'\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00')
"""

from ._errors import (
    Error,
    GroupEndedError,
    HostError,
    InternalError,
    PeerError,
    UsageError,
)
from ._paths import library_path, program_path
from ._roce import Group

__all__ = [
    "Error",
    "Group",
    "GroupEndedError",
    "HostError",
    "InternalError",
    "PeerError",
    "UsageError",
    "library_path",
    "program_path",
]
