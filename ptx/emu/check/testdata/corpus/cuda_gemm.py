import numpy as np

from corpus import cuda, floats, from_bf16, from_e4m3, from_e5m2, ints, launch, to_bf16, want

case = cuda("gemm.cu")


def product(r, grid, block, m, n, k, dtype=np.float32, tol=1e-5, sizes=3):
    a, b = floats(r, m, k, dtype=dtype), floats(r, k, n, dtype=dtype)
    if np.dtype(dtype).kind == "i":
        a, b = ints(r, -99, 99, m, k), ints(r, -99, 99, k, n)
    return launch(grid, block, a, b, want(a @ b, tol=tol), *(m, n, k)[3 - sizes :])


@case
def naive(r):
    return product(r, (3, 2), (16, 16), 30, 41, 23)


@case
def tiled(r):
    return product(r, (3, 2), (16, 16), 30, 41, 23)


@case
def tiled_double(r):
    return product(r, (2, 2), (16, 16), 20, 31, 35, dtype=np.float64, tol=1e-13)


@case
def tiled_int(r):
    return product(r, (2, 2), (16, 16), 20, 31, 35, dtype=np.int32)


@case
def blocked(r):
    return product(r, (2, 1), 256, 64, 128, 24, sizes=2)


@case
def pipelined(r):
    return product(r, (2, 3), (16, 16), 48, 32, 64, sizes=2)


@case
def wmma_half(r):
    a, b = floats(r, 32, 48, dtype=np.float16), floats(r, 48, 16, dtype=np.float16)
    return launch((1, 2), 32, a, b, want(a.astype(np.float32) @ b.astype(np.float32)), 16, 48)


@case
def wmma_half_sum(r):
    a, b = ints(r, -4, 5, 32, 48).astype(np.float16), ints(r, -4, 5, 48, 16).astype(np.float16)
    return launch((1, 2), 32, a, b, want(a @ b), 16, 48)


@case
def wmma_bf16(r):
    a, b = to_bf16(floats(r, 32, 48)), to_bf16(floats(r, 48, 16))
    return launch((2, 1), 32, a, b, want(from_bf16(a) @ from_bf16(b)), 16, 48)


@case
def wmma_int8(r):
    a, b = ints(r, -128, 128, 16, 48, dtype=np.int8), ints(r, -128, 128, 48, 32, dtype=np.int8)
    return launch((1, 2), 32, a, b, want(a.astype(np.int32) @ b), 32, 48)


def tf32(x):
    """Returns x with the 11 significant bits that TF32 has."""
    return (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


@case
def wmma_tf32(r):
    a, b = tf32(floats(r, 32, 24)), tf32(floats(r, 24, 16))
    return launch((1, 2), 32, a, b, want(a @ b), 16, 24)


@case
def wmma_double(r):
    return product(r, (2, 1), 32, 8, 16, 20, dtype=np.float64, tol=1e-13, sizes=2)


@case
def mma_half(r):
    a, b = floats(r, 32, 48, dtype=np.float16), floats(r, 48, 16, dtype=np.float16)
    return launch((2, 2), 32, a, b, want(a.astype(np.float32) @ b.astype(np.float32)), 16, 48)


def fragments(r, a, b, exact_a, exact_b, dtype=np.float32, tol=1e-5):
    """Multiplies A of 32 rows with the transpose of B of 16 rows."""
    c = want(exact_a.astype(float) @ exact_b.astype(float).T, dtype=dtype, tol=tol)
    return launch((2, 2), 32, a, b, c, 16, a.nbytes // 32)


@case
def mma_bf16(r):
    a, b = to_bf16(floats(r, 32, 48)), to_bf16(floats(r, 16, 48))
    return fragments(r, a, b, from_bf16(a), from_bf16(b))


@case
def mma_tf32(r):
    a, b = tf32(floats(r, 32, 24)), tf32(floats(r, 16, 24))
    return fragments(r, a, b, a, b)


@case
def mma_int8(r):
    a, b = ints(r, -128, 128, 32, 96, dtype=np.int8), ints(r, -128, 128, 16, 96, dtype=np.int8)
    return fragments(r, a, b, a, b, np.int32)


@case
def mma_uint8(r):
    a, b = ints(r, 0, 256, 32, 96, dtype=np.uint8), ints(r, -128, 128, 16, 96, dtype=np.int8)
    return fragments(r, a, b, a, b, np.int32)


@case
def mma_int4(r):
    a, b = ints(r, -8, 8, 32, 128), ints(r, -8, 8, 16, 128)

    def pack(x):
        return ((x[:, ::2] & 15) | (x[:, 1::2] & 15) << 4).astype(np.uint8)

    return fragments(r, pack(a), pack(b), a, b, np.int32)


def finite_fp8(r, mantissa, *shape):
    """Returns bits of 8-bit floats of moderate size."""
    low, high = (0x20, 0x58) if mantissa == 3 else (0x28, 0x50)
    return (ints(r, low, high, *shape) | ints(r, 0, 2, *shape) << 7).astype(np.uint8)


@case
def mma_e4m3(r):
    a, b = finite_fp8(r, 3, 32, 64), finite_fp8(r, 3, 16, 64)
    return fragments(r, a, b, from_e4m3(a), from_e4m3(b), tol=1e-3)


@case
def mma_e5m2(r):
    a, b = finite_fp8(r, 2, 32, 64), finite_fp8(r, 3, 16, 64)
    return fragments(r, a, b, from_e5m2(a), from_e4m3(b), tol=1e-3)


@case
def dot_products(r):
    a, b = ints(r, -128, 128, 5, 40, dtype=np.int8), ints(r, -128, 128, 32, 40, dtype=np.int8)
    return launch(5, 32, a, b, want(a.astype(np.int32) @ b.T.astype(np.int32)), 32, 10)


@case
def half_products(r):
    a, b = ints(r, -4, 5, 6, 30).astype(np.float16), ints(r, -4, 5, 30, 64).astype(np.float16)
    return launch(6, 32, a, b, want(a @ b), 32, 30)


@case
def split_k(r):
    a, b = floats(r, 6, 70), floats(r, 70, 32)
    return launch((6, 3), 32, a, b, want(a @ b, start=np.zeros((6, 32), np.float32)), 32, 70, 25)
