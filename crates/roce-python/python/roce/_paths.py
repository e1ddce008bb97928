"""Where the files of the package are."""

import importlib.metadata
import os
from pathlib import Path

# Not `libibverbs.so.1`: no program is to load it because a folder happens to be searched.
_LIBRARY = "libroce_ibverbs.so"


def library_path() -> str:
    """Returns the path of this package's libibverbs.

    It is for libraries that take the path of a libibverbs, such as NCCL (`NCCL_IBVERBS_LIB`). Programs
    that are linked with libibverbs are started with `roce run`.

    Raises `FileNotFoundError` if the package was not installed by pip.
    """
    return _find(lambda path: path.name == _LIBRARY)


def program_path() -> str:
    """Returns the path of the command `roce`.

    Raises `FileNotFoundError` if the package was not installed by pip.
    """
    return _find(lambda path: path.name == "roce" and path.parent.name in ("bin", "Scripts"))


def _find(is_sought) -> str:
    try:
        files = importlib.metadata.files("roce") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if is_sought(file):
            # Without links of folders, `..` names the parent of the path.
            path = Path(os.path.normpath(file.locate()))
            if path.is_file():
                return str(path)
    raise FileNotFoundError("the package roce has no such file here; install its wheel with pip")
