from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Literal, Optional, TypeVar

from typing_extensions import Buffer

_Op = Literal["sum", "prod", "max", "min", "avg"]
_B = TypeVar("_B", bound=Buffer)

class Group:
    def __init__(
        self,
        rank: Optional[int] = None,
        size: Optional[int] = None,
        root: Optional[str] = None,
        *,
        interfaces: Optional[Sequence[str]] = None,
        gid_index: Optional[int] = None,
        timeout: float = 60.0,
        operation_timeout: Optional[float] = None,
        on_listen: Optional[Callable[[str], object]] = None,
    ) -> None: ...
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def interfaces(self) -> list[str]: ...
    def all_reduce(
        self,
        input: _B,
        output: Optional[_B] = None,
        *,
        op: _Op = "sum",
        dtype: Optional[str] = None,
    ) -> _B: ...
    def reduce(
        self,
        input: _B,
        output: Optional[_B] = None,
        *,
        root: int = 0,
        op: _Op = "sum",
        dtype: Optional[str] = None,
    ) -> _B: ...
    def reduce_scatter(
        self, input: Buffer, output: _B, *, op: _Op = "sum", dtype: Optional[str] = None
    ) -> _B: ...
    def all_gather(self, input: Buffer, output: _B) -> _B: ...
    def broadcast(self, array: _B, *, root: int = 0) -> _B: ...
    def all_to_all(self, input: Buffer, output: _B) -> _B: ...
    def barrier(self) -> None: ...
    def leave(self) -> None: ...
    def abort(self) -> None: ...
    def __enter__(self) -> Group: ...
    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None: ...
