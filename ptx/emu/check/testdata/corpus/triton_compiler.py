"""Compiles the kernels of the cases in Triton."""

import numpy as np
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import corpus

builds = {"sm_80": 80, "sm_90": 90, "sm_100": 100, "sm_120": 120}
scratch = 1 << 16  # bytes of memory of the launcher, for tensor descriptors
types = {"f2": "fp16", "f4": "fp32", "f8": "fp64", "i1": "i8", "i2": "i16", "i4": "i32", "i8": "i64", "u1": "u8",
         "u2": "bf16", "u4": "u32", "u8": "u64"}  # of elements; bits of bfloat16 are u2 here


class E4m3(np.ndarray):
    """Bits of e4m3."""


class E5m2(np.ndarray):
    """Bits of e5m2."""


def signature(value):
    if isinstance(value, E4m3):
        return "*fp8e4nv"
    if isinstance(value, E5m2):
        return "*fp8e5"
    if isinstance(value, (np.ndarray, corpus.Want, corpus.Scratch)):
        dtype = np.dtype(value.array.dtype if isinstance(value, corpus.Want) else value.dtype)
        return "*" + types[dtype.str[1:]]
    return "i32" if isinstance(value, int) else "fp32"


def compile(launch, build, path):
    """Compiles the kernel of a launch to PTX and returns its entry, block and shared memory."""
    function, constants, warps = launch.kernel
    names = function.arg_names
    kinds = dict(zip(names, map(signature, launch.args)))
    attrs = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(names) if kinds.get(name, "").startswith("*")}
    kinds.update({name: "constexpr" for name in constants})
    source = ASTSource(function, kinds, constants, attrs)
    kernel = triton.compile(source, target=GPUTarget("cuda", builds[build], 32), options={"num_warps": warps})
    path.write_text(kernel.asm["ptx"])
    if kernel.metadata.global_scratch_size * np.prod(launch.grid) > scratch:
        raise ValueError("the kernel needs more memory of the launcher")
    return {"kernel": kernel.metadata.name, "block": 32 * kernel.metadata.num_warps, "smem": kernel.metadata.shared}


def arguments(args):
    """Returns the arguments of the compiled kernel: Triton adds two pointers to memory of the launcher."""
    return args + [corpus.Scratch(np.uint8, scratch), np.uint64(0)]


def case(function, builds=builds):
    corpus.cases.append(corpus.Case("triton", function.__name__, function, builds))
    return function


def case_for(*names):
    """Returns a decorator for the cases of some builds."""
    return lambda function: case(function, {name: builds[name] for name in names})


def launch(kernel, grid, *args, warps=4, **constants):
    return corpus.launch(grid, None, *args, kernel=(kernel, constants, warps))
