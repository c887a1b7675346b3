"""Kernels in Triton."""

import math

import numpy as np
import triton
import triton.language as tl

from corpus import floats, from_bf16, from_e2m1, from_e4m3, from_e5m2, ints, to_bf16, want
from triton_compiler import E4m3, E5m2, case, case_for, launch


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@triton.jit
def add_kernel(x, y, z, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(z + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@case
def add(r):
    x, y = floats(r, 700), floats(r, 700)
    return launch(add_kernel, 3, x, y, want(x + y), 700, B=256)


@case
def add_half(r):
    x, y = floats(r, 700, dtype=np.float16), floats(r, 700, dtype=np.float16)
    return launch(add_kernel, 2, x, y, want(x + y), 700, B=512)


@case
def add_long(r):
    x, y = ints(r, -99, 99, 300, dtype=np.int64), ints(r, -99, 99, 300, dtype=np.int64)
    return launch(add_kernel, 3, x, y, want(x + y), 300, B=128)


@triton.jit
def softmax_kernel(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    row = tl.program_id(0) * n
    v = tl.load(x + row + i, mask=i < n, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(y + row + i, e / tl.sum(e, 0), mask=i < n)


@case
def softmax_rows(r):
    x = floats(r, 4, 200)
    return launch(softmax_kernel, 4, x, want(softmax(x)), 200, B=256)


@case
def softmax_one_warp(r):
    x = floats(r, 3, 50)
    return launch(softmax_kernel, 3, x, want(softmax(x)), 50, B=64, warps=1)


@triton.jit
def layer_norm_kernel(x, gain, bias, y, mean, n, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + row * n + i, mask=i < n, other=0.0).to(tl.float32)
    m = tl.sum(v, 0) / n
    d = tl.where(i < n, v - m, 0.0)
    scale = 1 / tl.sqrt(tl.sum(d * d, 0) / n + 1e-5)
    g, b = tl.load(gain + i, mask=i < n), tl.load(bias + i, mask=i < n)
    tl.store(y + row * n + i, d * scale * g + b, mask=i < n)
    tl.store(mean + row, m)


@case
def layer_norm(r):
    x, gain, bias = floats(r, 3, 300), floats(r, 300), floats(r, 300)
    m = x.mean(1)
    y = (x - m[:, None]) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * gain + bias
    return launch(layer_norm_kernel, 3, x, gain, bias, want(y), want(m), 300, B=512)


@triton.jit
def rms_norm_kernel(x, gain, y, n, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + row * n + i, mask=i < n, other=0.0).to(tl.float32)
    v *= tl.rsqrt(tl.sum(v * v, 0) / n + 1e-6)
    tl.store(y + row * n + i, (v * tl.load(gain + i, mask=i < n)).to(y.dtype.element_ty), mask=i < n)


@case
def rms_norm(r):
    x, gain = to_bf16(floats(r, 3, 100)), floats(r, 100)
    v = from_bf16(x)
    y = v / np.sqrt(np.square(v).mean(1, keepdims=True) + 1e-6) * gain

    def check(bits):
        if not np.allclose(from_bf16(bits), y, rtol=0.01):
            return "other elements"

    return launch(rms_norm_kernel, 3, x, gain, want(to_bf16(y), check=check), 100, B=128)


@triton.jit
def matmul_kernel(
    a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SUM: tl.constexpr, PRECISION: tl.constexpr
):
    i, j, p = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    sum = tl.zeros((BM, BN), SUM)
    for q in range(0, k, BK):
        x = tl.load(a + i[:, None] * k + (q + p)[None, :], mask=(i[:, None] < m) & ((q + p)[None, :] < k), other=0.0)
        y = tl.load(b + (q + p)[:, None] * n + j[None, :], mask=((q + p)[:, None] < k) & (j[None, :] < n), other=0.0)
        sum = tl.dot(x, y, sum, out_dtype=SUM, input_precision=PRECISION)
    tl.store(c + i[:, None] * n + j[None, :], sum, mask=(i[:, None] < m) & (j[None, :] < n))


def product(a, b, exact, sum=tl.float32, precision="ieee", tile=(32, 32, 32), tol=1e-5, warps=4):
    (m, k), n = a.shape, b.shape[1]
    grid = math.ceil(m / tile[0]), math.ceil(n / tile[1])
    constants = dict(zip(("BM", "BN", "BK"), tile), SUM=sum, PRECISION=precision)
    return launch(matmul_kernel, grid, a, b, want(exact, tol=tol), m, n, k, warps=warps, **constants)


@case
def matmul_half(r):
    a, b = floats(r, 50, 70, dtype=np.float16), floats(r, 70, 40, dtype=np.float16)
    return product(a, b, a.astype(np.float32) @ b.astype(np.float32))


@case
def matmul_half_large_tile(r):
    a, b = floats(r, 64, 128, dtype=np.float16), floats(r, 128, 64, dtype=np.float16)
    return product(a, b, a.astype(np.float32) @ b.astype(np.float32), tile=(64, 64, 64))


@case
def matmul_bf16(r):
    a, b = to_bf16(floats(r, 64, 64)), to_bf16(floats(r, 64, 32))
    return product(a, b, from_bf16(a) @ from_bf16(b), tile=(64, 32, 32))


@case
def matmul_float(r):
    a, b = floats(r, 20, 33), floats(r, 33, 18)
    return product(a, b, a @ b, tile=(16, 16, 16), warps=1)


@case
def matmul_tf32(r):
    a, b = floats(r, 64, 64), floats(r, 64, 32)
    return product(a, b, a @ b, precision="tf32", tile=(64, 32, 32), tol=3e-3)


@case
def matmul_tf32x3(r):
    a, b = floats(r, 32, 32), floats(r, 32, 32)
    return product(a, b, a @ b, precision="tf32x3", tol=1e-5)


@case
def matmul_double(r):
    a, b = floats(r, 20, 40, dtype=np.float64), floats(r, 40, 20, dtype=np.float64)
    return product(a, b, a @ b, sum=tl.float64, tile=(16, 16, 16), tol=1e-13)


@case
def matmul_int8(r):
    a, b = ints(r, -128, 128, 40, 70, dtype=np.int8), ints(r, -128, 128, 70, 40, dtype=np.int8)
    return product(a, b, a.astype(np.int32) @ b.astype(np.int32), sum=tl.int32)


@case_for("sm_90")
def matmul_e4m3(r):
    a, b = fp8(r, 64, 64).view(E4m3), fp8(r, 64, 32).view(E4m3)
    exact = from_e4m3(np.asarray(a)) @ from_e4m3(np.asarray(b))
    return product(a, b, exact, tile=(64, 32, 64), tol=2e-3)


def fp8(r, *shape):
    return (ints(r, 0x20, 0x50, *shape) | ints(r, 0, 2, *shape) << 7).astype(np.uint8)


@case_for("sm_90", "sm_100")
def matmul_half_tensor_memory(r):
    a, b = floats(r, 128, 192, dtype=np.float16), floats(r, 192, 256, dtype=np.float16)
    return product(a, b, a.astype(np.float32) @ b.astype(np.float32), tile=(128, 128, 64))


@case_for("sm_90", "sm_100")
def matmul_bf16_tensor_memory(r):
    a, b = to_bf16(floats(r, 128, 64)), to_bf16(floats(r, 64, 256))
    return product(a, b, from_bf16(a) @ from_bf16(b), tile=(128, 256, 32), warps=8)


@case_for("sm_90", "sm_100")
def matmul_tf32_tensor_memory(r):
    a, b = floats(r, 128, 64), floats(r, 64, 128)
    return product(a, b, a @ b, precision="tf32", tile=(128, 128, 32), tol=3e-3)


@case_for("sm_100")
def matmul_e4m3_tensor_memory(r):
    a, b = fp8(r, 128, 128).view(E4m3), fp8(r, 128, 64).view(E4m3)
    exact = from_e4m3(np.asarray(a)) @ from_e4m3(np.asarray(b))
    return product(a, b, exact, tile=(128, 64, 64))


@triton.jit
def scaled_kernel(
    a, scale_a, b, scale_b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, A: tl.constexpr, B: tl.constexpr,
    EACH_A: tl.constexpr, EACH_B: tl.constexpr, BLOCK: tl.constexpr,
):
    i, j, s = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K // BLOCK)
    p, q = tl.arange(0, K // EACH_A), tl.arange(0, K // EACH_B)
    x = tl.load(a + i[:, None] * (K // EACH_A) + p[None, :])
    y = tl.load(b + q[:, None] + (K // EACH_B) * j[None, :])
    of_x = tl.load(scale_a + i[:, None] * (K // BLOCK) + s[None, :])
    of_y = tl.load(scale_b + j[:, None] * (K // BLOCK) + s[None, :])
    sum = tl.dot_scaled(x, of_x, A, y, of_y, B)
    tl.store(c + i[:, None] * N + j[None, :], sum)


def scaled_product(r, a, b, scales, block, m=128, n=128, k=128):
    """The product of A and the transpose of B. a and b are the type and the elements, scales a function."""
    decode = {"e4m3": from_e4m3, "e5m2": from_e5m2, "e2m1": from_e2m1}
    exact, args, constants = [], [], {}
    for name, rows, kind in ("A", m, a), ("B", n, b):
        each = 2 if kind == "e2m1" else 1
        bits = fp8(r, rows, k) if each == 1 else r.integers(0, 256, (rows, k // 2)).astype(np.uint8)
        scale, values = scales(r, rows, k // block)
        exact.append(decode[kind](bits) * np.repeat(values, block, 1))
        view = {"e4m3": E4m3, "e5m2": E5m2}.get(kind)
        args += [bits.view(view) if view else bits, scale]
        constants |= {name: kind, f"EACH_{name}": each}
    c = want(exact[0] @ exact[1].T, dtype=np.float32)
    return launch(scaled_kernel, 1, *args, c, M=m, N=n, K=k, BLOCK=block, **constants)


def powers_of_two(r, *shape):
    bits = r.integers(124, 131, shape).astype(np.uint8)
    return bits, 2.0 ** (bits.astype(np.float64) - 127)


def fractions(r, *shape):
    bits = r.integers(0x30, 0x50, shape).astype(np.uint8)
    return bits.view(E4m3), from_e4m3(bits).astype(np.float64)


@case_for("sm_100", "sm_120")
def scaled_mxfp8(r):
    return scaled_product(r, "e4m3", "e5m2", powers_of_two, 32)


@case_for("sm_100", "sm_120")
def scaled_mxfp4(r):
    return scaled_product(r, "e2m1", "e2m1", powers_of_two, 32)


@case_for("sm_100", "sm_120")
def scaled_nvfp4(r):
    return scaled_product(r, "e2m1", "e2m1", fractions, 16)


@case_for("sm_100")
def scaled_mixed(r):
    return scaled_product(r, "e4m3", "e2m1", powers_of_two, 32, n=64)


@triton.jit
def attention_kernel(q, k, v, y, n, D: tl.constexpr, B: tl.constexpr):
    i, d = tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, D)
    x = tl.load(q + i[:, None] * D + d[None, :], mask=i[:, None] < n, other=0.0)
    most, total, sum = tl.full((B,), -1e30, tl.float32), tl.zeros((B,), tl.float32), tl.zeros((B, D), tl.float32)
    for start in range(0, tl.minimum(n, (tl.program_id(0) + 1) * B), B):
        j = start + tl.arange(0, B)
        keys = tl.load(k + j[None, :] * D + d[:, None], mask=j[None, :] < n, other=0.0)
        s = tl.dot(x, keys) * (D**-0.5)
        s = tl.where((j[None, :] < n) & (j[None, :] <= i[:, None]), s, -1e30)
        high = tl.maximum(most, tl.max(s, 1))
        weight, shrink = tl.exp(s - high[:, None]), tl.exp(most - high)
        total = total * shrink + tl.sum(weight, 1)
        values = tl.load(v + j[:, None] * D + d[None, :], mask=j[:, None] < n, other=0.0)
        sum = tl.dot(weight.to(values.dtype), values, sum * shrink[:, None])
        most = high
    tl.store(y + i[:, None] * D + d[None, :], sum / total[:, None], mask=i[:, None] < n)


@case
def attention(r):
    q, k, v = (floats(r, 50, 32, dtype=np.float16) for _ in range(3))
    s = q.astype(np.float32) @ k.T.astype(np.float32) / 32**0.5
    y = softmax(np.where(np.tri(50), s, -np.inf)) @ v.astype(np.float32)
    return launch(attention_kernel, 2, q, k, v, want(y, dtype=np.float32, tol=2e-3), 50, D=32, B=32)


@triton.jit
def reductions_kernel(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=0.0)
    tl.store(y, tl.sum(v, 0))
    tl.store(y + 1, tl.max(v, 0))
    tl.store(y + 2, tl.min(v, 0))
    tl.store(y + 3, tl.argmax(v, 0).to(tl.float32))
    tl.store(y + 4, tl.argmin(v, 0).to(tl.float32))


@case
def reductions(r):
    x = floats(r, 400)
    y = [x.sum(), x.max(), x.min(), x.argmax(), x.argmin()]
    return launch(reductions_kernel, 1, x, want(y, dtype=np.float32), 400, B=512)


@triton.jit
def columns_kernel(x, y, n, B: tl.constexpr, C: tl.constexpr):
    i, j = tl.arange(0, B), tl.arange(0, C)
    v = tl.load(x + i[:, None] * C + j[None, :], mask=i[:, None] < n, other=0)
    tl.store(y + j, tl.sum(v, 0))
    tl.store(y + C + j, tl.xor_sum(v, 0))


@case
def column_sums(r):
    x = ints(r, -99, 99, 50, 32)
    y = [x.sum(0), np.bitwise_xor.reduce(x)]
    return launch(columns_kernel, 1, x, want(y, dtype=np.int32), 50, B=64, C=32)


@triton.jit
def scan_kernel(x, y, z, B: tl.constexpr, C: tl.constexpr):
    at = tl.arange(0, B)[:, None] * C + tl.arange(0, C)[None, :]
    v = tl.load(x + at)
    tl.store(y + at, tl.cumsum(v, 1))
    tl.store(z + at, tl.cumsum(v, 0, reverse=True))


@case
def scans(r):
    x = ints(r, -99, 99, 32, 64)
    z = x[::-1].cumsum(0)[::-1]
    return launch(scan_kernel, 1, x, want(x.cumsum(1), dtype=np.int32), want(z, dtype=np.int32), B=32, C=64)


@triton.jit
def combine(a, b, c, d):
    return a * c, b * c + d


@triton.jit
def recurrence_kernel(a, b, y, B: tl.constexpr):
    i = tl.arange(0, B)
    _, v = tl.associative_scan((tl.load(a + i), tl.load(b + i)), 0, combine)
    tl.store(y + i, v)


@case
def linear_recurrence(r):
    a, b, y, v = r.random(256).astype(np.float32), floats(r, 256), [], 0
    for p, q in zip(a, b):
        v = p * v + q
        y.append(v)
    return launch(recurrence_kernel, 1, a, b, want(y, dtype=np.float32), B=256)


@triton.jit
def sort_kernel(x, y, z, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    tl.store(y + i, tl.sort(v))
    tl.store(z + i, tl.flip(v))


@case
def sort(r):
    x = floats(r, 256)
    return launch(sort_kernel, 1, x, want(np.sort(x)), want(x[::-1]), B=256)


@triton.jit
def histogram_kernel(x, y, n, B: tl.constexpr, BINS: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    bins = tl.histogram(tl.load(x + i, mask=i < n, other=0), BINS, mask=i < n)
    tl.atomic_add(y + tl.arange(0, BINS), bins)


@case
def histogram(r):
    x = ints(r, 0, 64, 700)
    y = want(np.bincount(x, minlength=64), dtype=np.int32, start=np.zeros(64, np.int32))
    return launch(histogram_kernel, 3, x, y, 700, B=256, BINS=64)


@triton.jit
def dropout_kernel(x, y, seed, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    keep = tl.rand(seed, i) > 0.25
    tl.store(y + i, tl.where(keep, tl.load(x + i, mask=i < n) / 0.75, 0.0), mask=i < n)


@case
def dropout(r):
    x = floats(r, 1000)

    def check(y):
        kept = y != 0
        if not np.allclose(y[kept], x[kept] / 0.75, rtol=1e-6) or not 0.65 < kept.mean() < 0.85:
            return f"{kept.mean()} of the elements are kept"

    return launch(dropout_kernel, 4, x, want(x, check=check), int(r.integers(1 << 30)), 1000, B=256)


@triton.jit
def transpose_kernel(x, y, m, n, B: tl.constexpr):
    i, j = tl.program_id(0) * B + tl.arange(0, B), tl.program_id(1) * B + tl.arange(0, B)
    v = tl.load(x + i[:, None] * n + j[None, :], mask=(i[:, None] < m) & (j[None, :] < n))
    tl.store(y + j[:, None] * m + i[None, :], tl.trans(v), mask=(j[:, None] < n) & (i[None, :] < m))


@case
def transpose(r):
    x = floats(r, 50, 70)
    return launch(transpose_kernel, (2, 3), x, want(x.T), 50, 70, B=32)


@case
def transpose_bytes(r):
    x = ints(r, 0, 255, 40, 70, dtype=np.uint8)
    return launch(transpose_kernel, (1, 2), x, want(x.T), 40, 70, B=64)


@triton.jit
def gather_kernel(x, at, y, B: tl.constexpr, C: tl.constexpr):
    i, j = tl.arange(0, B), tl.arange(0, C)
    v = tl.load(x + i[:, None] * C + j[None, :])
    w = tl.load(at + i[:, None] * C + j[None, :])
    tl.store(y + i[:, None] * C + j[None, :], tl.gather(v, w, 1))


@case
def gather(r):
    x, at = floats(r, 8, 64), ints(r, 0, 64, 8, 64)
    return launch(gather_kernel, 1, x, at, want(np.take_along_axis(x, at, 1)), B=8, C=64)


@triton.jit
def atomics_kernel(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=0)
    tl.atomic_add(y + v % 4, 1, mask=i < n)
    tl.atomic_max(y + 4 + 0 * i, v, mask=i < n)
    tl.atomic_min(y + 5 + 0 * i, v, mask=i < n)
    tl.atomic_or(y + 6 + 0 * i, v, mask=i < n)
    tl.atomic_xor(y + 7 + 0 * i, v, mask=i < n)


@case
def atomics(r):
    x = ints(r, 0, 1000, 300)
    y = [*np.bincount(x % 4, minlength=4), x.max(), 0, np.bitwise_or.reduce(x), np.bitwise_xor.reduce(x)]
    return launch(atomics_kernel, 3, x, want(y, dtype=np.int32, start=np.zeros(8, np.int32)), 300, B=128)


@triton.jit
def lock_kernel(x, lock, y, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + tl.program_id(0) * B + i)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(y + i, tl.load(y + i) + v)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@case
def locked_sum(r):
    x = floats(r, 4, 128)
    return launch(lock_kernel, 4, x, np.zeros(1, np.int32), want(x.sum(0), start=np.zeros(128, np.float32)), B=128)


@triton.jit
def functions_kernel(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=1.0)
    tl.store(y + i, tl.exp(v), mask=i < n)
    tl.store(y + n + i, tl.log(tl.abs(v)), mask=i < n)
    tl.store(y + 2 * n + i, tl.sin(v) + tl.cos(v), mask=i < n)
    tl.store(y + 3 * n + i, tl.sigmoid(v), mask=i < n)
    tl.store(y + 4 * n + i, tl.erf(v), mask=i < n)
    tl.store(y + 5 * n + i, tl.floor(v) + tl.ceil(v), mask=i < n)
    tl.store(y + 6 * n + i, tl.sqrt_rn(tl.abs(v)), mask=i < n)
    tl.store(y + 7 * n + i, tl.div_rn(v, v + 3.0), mask=i < n)
    tl.store(y + 8 * n + i, tl.fma(v, v, v), mask=i < n)


@case
def functions(r):
    x = floats(r, 200)
    y = [np.exp(x), np.log(abs(x)), np.sin(x) + np.cos(x), 1 / (1 + np.exp(-x)), np.vectorize(math.erf)(x)]
    y += [np.floor(x) + np.ceil(x), np.sqrt(abs(x)), x / (x + 3), x * x + x]
    return launch(functions_kernel, 1, x, want(y, dtype=np.float32), 200, B=256)


@triton.jit
def rope_kernel(x, y, half, B: tl.constexpr):
    pos, i = tl.program_id(0), tl.arange(0, B)
    angle = pos * tl.exp(i.to(tl.float32) * (-9.2103404 / half))
    a, b = tl.load(x + 2 * pos * half + i), tl.load(x + (2 * pos + 1) * half + i)
    tl.store(y + 2 * pos * half + i, a * tl.cos(angle) - b * tl.sin(angle))
    tl.store(y + (2 * pos + 1) * half + i, a * tl.sin(angle) + b * tl.cos(angle))


@case
def rope(r):
    x = floats(r, 6, 2, 32)
    angle = np.arange(6)[:, None] * 10000.0 ** (-np.arange(32) / 32)
    z = (x[:, 0] + 1j * x[:, 1]) * np.exp(1j * angle)
    return launch(rope_kernel, 6, x, want(np.stack([z.real, z.imag], 1), dtype=np.float32, tol=2e-5), 32, B=32)


@triton.jit
def loss_kernel(x, label, y, n, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + row * n + i, mask=i < n, other=-float("inf"))
    most = tl.max(v, 0)
    chosen = tl.load(x + row * n + tl.load(label + row))
    tl.store(y + row, tl.log(tl.sum(tl.exp(v - most), 0)) + most - chosen)


@case
def cross_entropy(r):
    x, label = floats(r, 5, 90), ints(r, 0, 90, 5)
    return launch(loss_kernel, 5, x, label, want(-np.log(softmax(x)[range(5), label])), 90, B=128)


@triton.jit
def int4_kernel(x, scale, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=0).to(tl.int32)
    low, high = (v & 15) - 8, (v >> 4) - 8
    s = tl.load(scale + i // 32, mask=i < n)
    both = tl.interleave(low * s, high * s)
    j = 2 * tl.program_id(0) * B + tl.arange(0, 2 * B)
    tl.store(y + j, both, mask=j < 2 * n)


@case
def dequantise_int4(r):
    x, scale = ints(r, 0, 256, 300, dtype=np.uint8), floats(r, 10)
    y = np.stack([(x & 15).astype(int) - 8, (x >> 4).astype(int) - 8], 1) * scale[np.arange(300) // 32, None]
    return launch(int4_kernel, 3, x, scale, want(y, dtype=np.float32), 300, B=128)


@triton.jit
def convert_kernel(x, h, b, e, z, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    tl.store(h + i, v.to(tl.float16))
    tl.store(b + i, v.to(tl.bfloat16))
    tl.store(e + i, v.to(tl.float16).to(tl.float8e5).to(tl.uint8, bitcast=True))
    tl.store(z + i, v.to(tl.int32))


@case
def conversions(r):
    x = 30 * floats(r, 256)
    e = x.astype(np.float16).view(np.uint16).astype(np.uint32)  # e5m2 is the upper byte of float16
    e = ((e + 0x7F + (e >> 8 & 1)) >> 8).astype(np.uint8)
    z = x.astype(np.int32)
    return launch(convert_kernel, 1, x, want(x.astype(np.float16)), want(to_bf16(x)), want(e), want(z), B=256)


@triton.jit
def persistent_kernel(x, y, tiles, B: tl.constexpr):
    i = tl.arange(0, B)
    sum = tl.zeros((B,), tl.float32)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0), num_stages=3):
        sum += tl.load(x + tile * B + i) * (tile + 1)
    tl.atomic_add(y + i, sum)


@case
def persistent_sum(r):
    x = floats(r, 9, 128)
    y = (x * np.arange(1, 10)[:, None]).sum(0)
    return launch(persistent_kernel, 2, x, want(y, start=np.zeros(128, np.float32), dtype=np.float32), 9, B=128)


@triton.jit
def welford(n, mean, m2, k, other, o2):
    total = n + k
    d = other - mean
    part = tl.where(total == 0, 0.0, k / total)
    return total, mean + d * part, m2 + o2 + d * d * n * part


@triton.jit
def variance_kernel(x, y, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    n, mean, m2 = tl.reduce((tl.full((B,), 1.0, tl.float32), v, tl.zeros((B,), tl.float32)), 0, welford)
    tl.store(y, mean)
    tl.store(y + 1, m2 / n)


@case
def variance(r):
    x = floats(r, 1024) + 5
    return launch(variance_kernel, 1, x, want([x.mean(), x.var()], dtype=np.float32), B=1024)


@triton.jit
def assembly_kernel(x, y, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    bits = tl.inline_asm_elementwise("popc.b32 $0, $1;", "=r,r", [v], dtype=tl.int32, is_pure=True, pack=1)
    tl.store(y + i, bits + tl.umulhi(v, 12345).to(tl.int32))


@case
def inline_assembly(r):
    x = ints(r, 0, 1 << 32, 128, dtype=np.uint32)
    y = [int(v).bit_count() + (int(v) * 12345 >> 32) for v in x]
    return launch(assembly_kernel, 1, x, want(y, dtype=np.int32), B=128)


@triton.jit
def batched_kernel(a, b, c, N: tl.constexpr):
    batch = tl.program_id(0) * N * N
    i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    x, y = tl.load(a + batch + i * N + j), tl.load(b + batch + i * N + j)
    tl.store(c + batch + i * N + j, tl.dot(x, tl.trans(y)))


@case
def batched_products(r):
    a, b = floats(r, 3, 32, 32, dtype=np.float16), floats(r, 3, 32, 32, dtype=np.float16)
    c = a.astype(np.float32) @ b.transpose(0, 2, 1).astype(np.float32)
    return launch(batched_kernel, 3, a, b, want(c), N=32)


@triton.jit
def convolution_kernel(x, w, y, n, TAPS: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    sum = tl.zeros((B,), tl.float32)
    for k in tl.static_range(TAPS):
        sum += tl.load(w + k) * tl.load(x + i + k, mask=i + k < n, other=0.0)
    tl.store(y + i, sum, mask=i < n)


@case
def convolution(r):
    x, w = floats(r, 300), floats(r, 7)
    y = np.correlate(np.r_[x, np.zeros(6, np.float32)], w, "valid")
    return launch(convolution_kernel, 3, x, w, want(y, dtype=np.float32), 300, TAPS=7, B=128)


@triton.jit
def embedding_kernel(token, table, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    row = tl.load(token + tl.program_id(0))
    tl.store(y + tl.program_id(0) * n + i, tl.load(table + row * n + i, mask=i < n), mask=i < n)


@case
def embedding(r):
    token, table = ints(r, 0, 20, 6), floats(r, 20, 100)
    return launch(embedding_kernel, 6, token, table, want(table[token]), 100, B=128)
