"""Compiles the kernels of the cases in Numba."""

import numpy as np
from numba import cuda, float32, int32, types
from numba.np.numpy_support import from_dtype

import corpus
from corpus import Scratch

builds = {"O3": {}, "G": {"debug": True, "opt": False}}


def contents(value):
    return value.array if isinstance(value, corpus.Want) else value


def signature(value):
    value = contents(value)
    if isinstance(value, np.ndarray):
        return types.Array(from_dtype(value.dtype), value.ndim, "C")
    if isinstance(value, Scratch):
        return types.Array(from_dtype(np.dtype(value.dtype)), 1, "C")
    return int32 if isinstance(value, int) else float32


def compile(launch, build, path):
    """Compiles the kernel of a launch to PTX and returns its entry."""
    text, _ = cuda.compile_ptx(launch.kernel, tuple(map(signature, launch.args)), cc=(9, 0), **builds[build])
    path.write_text(text)
    return {"kernel": text.split(".visible .entry ")[1].split("(")[0]}


def arguments(args):
    """Returns the arguments of the compiled kernel: arrays are passed with their shape and strides."""
    flat, none = [], np.uint64(0)
    for value in args:
        shaped = contents(value)
        if isinstance(shaped, np.ndarray):
            size = [np.uint64(n) for n in (shaped.size, shaped.itemsize)]
            flat += [none, none, *size, value, *map(np.uint64, shaped.shape), *map(np.uint64, np.ascontiguousarray(shaped).strides)]
        elif isinstance(shaped, Scratch):
            size = np.dtype(shaped.dtype).itemsize
            flat += [none, none, np.uint64(shaped.size), np.uint64(size), value, np.uint64(shaped.size), np.uint64(size)]
        else:
            flat.append(value)
    return flat


def case(grid, block, smem=0):
    """Returns a decorator of kernels, whose result takes the function with the arguments."""

    def add(kernel):
        def with_arguments(function):
            def launches(r):
                return corpus.launch(grid, block, *function(r), kernel=kernel, smem=smem)

            corpus.cases.append(corpus.Case("numba", kernel.__name__, launches, builds))
            return function

        return with_arguments

    return add
