"""Exceptions, by whose fault they are."""

from typing import Optional


class Error(Exception):
    """Any failure of this package."""

    #: The rank that failed, if the error names one.
    rank: Optional[int] = None


class UsageError(Error, ValueError):
    """The caller's: an argument or a setting does not fit. The group goes on."""


class HostError(Error, OSError):
    """This host's: an interface, a right or memory is missing."""


class PeerError(Error, ConnectionError):
    """Another rank's, or the network's. The group has ended."""


class GroupEndedError(Error, RuntimeError):
    """The group has ended before: it was left or aborted, or an earlier call failed."""


class InternalError(Error, RuntimeError):
    """A bug of this package; please report it."""
