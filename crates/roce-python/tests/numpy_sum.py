"""The sum of a NumPy array over all ranks: the example of docs/python.md."""

import numpy
import roce

with roce.Group() as group:  # Rank, size and root are those of the launcher.
    array = numpy.arange(1_000_000, dtype="float32") + group.rank
    group.all_reduce(array)
    size = group.size
    expected = numpy.arange(1_000_000, dtype="float32") * size + size * (size - 1) / 2
    assert numpy.array_equal(array, expected)
    print(f"rank {group.rank} of {size}: right")
