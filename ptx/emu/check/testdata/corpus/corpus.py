"""The vocabulary of the corpus: kernels, the memory that they get, and the results they must give.

A case is a function that takes a random generator and returns a launch or a list of launches.
"""

import dataclasses

import numpy as np

cases = []  # the cases of all modules that are loaded


@dataclasses.dataclass(eq=False)
class Want:
    """Memory that must hold the array at the end. It holds start before, or nothing."""

    array: np.ndarray
    start: np.ndarray | None = None
    tol: float = 1e-5  # for floats: the error, relative to the largest element
    check: object = None  # instead of the comparison: a function that accepts the result


@dataclasses.dataclass(eq=False)
class Scratch:
    """Memory that is not written before the first launch."""

    dtype: type
    size: int


@dataclasses.dataclass
class Tensor:
    """A tensor map of a matrix or a Want."""

    of: object
    box: tuple
    swizzle: int = 0


@dataclasses.dataclass
class Struct:
    """A structure by value."""

    fields: list


@dataclasses.dataclass
class Launch:
    kernel: object  # the name in a .cu file, or what the compiler of the module takes
    grid: object
    block: object
    args: list
    smem: int = 0
    cluster: object = None


@dataclasses.dataclass
class Case:
    source: str  # a .cu file, "triton" or "numba"
    name: str
    launches: object  # a function of a random generator
    builds: object = None  # the builds of Triton and Numba


def cuda(source):
    """Returns a decorator for the cases of a .cu file."""

    def add(function):
        cases.append(Case(source, function.__name__, function))
        return function

    return add


def launch(grid, block, *args, kernel=None, smem=0, cluster=None):
    return Launch(kernel, grid, block, list(args), smem, cluster)


def want(array, start=None, tol=1e-5, dtype=None, check=None):
    array = np.atleast_1d(np.asarray(array, dtype=dtype))
    return Want(array, start, tol, check)


def floats(r, *shape, dtype=np.float32):
    return r.standard_normal(shape).astype(dtype)


def ints(r, low, high, *shape, dtype=np.int32):
    return r.integers(low, high, shape).astype(dtype)


def to_bf16(x):
    """Rounds float32 to the bits of bfloat16, to nearest even."""
    b = np.asarray(x, np.float32).view(np.uint32)
    return ((b + 0x7FFF + ((b >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(b):
    return (np.asarray(b).astype(np.uint32) << 16).view(np.float32)


def from_fp8(bits, exponent, mantissa):
    """Returns the values of e4m3 or e5m2, without NaN and Inf."""
    b = np.asarray(bits, np.uint8).astype(np.int32)
    e, m = (b >> mantissa) & ((1 << exponent) - 1), b & ((1 << mantissa) - 1)
    bias = (1 << (exponent - 1)) - 1
    value = np.where(
        e == 0,
        m * 2.0 ** (1 - bias - mantissa),
        (1 + m * 2.0**-mantissa) * 2.0 ** (e - bias),
    )
    return np.where(b & 0x80, -value, value).astype(np.float32)


def from_e4m3(b):
    return from_fp8(b, 4, 3)


def from_e5m2(b):
    return from_fp8(b, 5, 2)


def nearest(values, x):
    """Returns the indices of the values nearest to |x|. Ties go to even indices."""
    low = np.clip(np.searchsorted(values, abs(x), side="right") - 1, 0, len(values) - 2)
    a, b = abs(x) - values[low], values[low + 1] - abs(x)
    return low + ((b < a) | (b == a) & (low % 2 == 1))


def from_e2m1(b):
    """Returns the values of pairs of e2m1, the first in the lower half of a byte."""
    magnitudes = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
    values = np.concatenate([magnitudes, -magnitudes])
    return np.stack([values[b & 15], values[b >> 4]], -1).reshape(len(b), -1)
