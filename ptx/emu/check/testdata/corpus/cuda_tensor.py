"""Cases of tensor.cu: products in tensor memory."""

import numpy as np

from corpus import Tensor, cuda, floats, from_e4m3, ints, launch, want

case = cuda("tensor.cu")


def half_product_of(r, m, n, k, result=np.float32):
    a, b = floats(r, m, k, dtype=np.float16), floats(r, n, k, dtype=np.float16)
    exact = a.astype(np.float32) @ b.T.astype(np.float32)
    tol = 1e-5 if result is np.float32 else 2e-3
    return a, b, want(exact.astype(result), tol=tol)


@case
def half_product(r):
    return launch(1, 128, *half_product_of(r, 128, 32, 64))


@case
def half_shapes(r):
    return launch(1, 128, *half_product_of(r, 128, 32, 16))


@case
def half_from_tensor_memory(r):
    return launch(1, 128, *half_product_of(r, 128, 16, 16, np.float16))


@case
def int8_product(r):
    a, b = ints(r, -128, 128, 64, 32, dtype=np.int8), ints(r, 0, 256, 32, 32, dtype=np.uint8)
    return launch(1, 128, a, b, want(a.astype(np.int32) @ b.T.astype(np.int32)))


@case
def reused_product(r):
    return launch(1, 128, *half_product_of(r, 32, 64, 16))


@case
def scaled_product(r):
    def bits(*shape):
        return (ints(r, 0x20, 0x50, *shape) | ints(r, 0, 2, *shape) << 7).astype(np.uint8)

    def scaled(x, s):
        return from_e4m3(x) * np.repeat(2.0 ** (s.astype(np.float64) - 127), 32, 1)

    a, b, p, q = bits(128, 128), bits(64, 128), *(ints(r, 124, 131, n, 4, dtype=np.uint8) for n in (128, 64))
    return launch(1, 128, a, b, p, q, want(scaled(a, p) @ scaled(b, q).T, dtype=np.float32))


@case
def pair_256(r):
    return launch(2, 128, *half_product_of(r, 256, 64, 16), cluster=2)


@case
def pair_128(r):
    return launch(2, 128, *half_product_of(r, 128, 64, 16), cluster=2)


@case
def pipelined(r):
    a, b, c = half_product_of(r, 128, 32, 320)
    return launch(1, 256, Tensor(a, (128, 64), 128), Tensor(b, (32, 64), 128), c, 320)
