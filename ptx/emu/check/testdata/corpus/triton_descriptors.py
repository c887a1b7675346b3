"""Kernels in Triton with tensor descriptors, 8-bit attention, and results that several threads hold."""

import numpy as np
import triton
import triton.language as tl

from corpus import floats, from_e4m3, ints, want
from triton_compiler import E4m3, case, case_for, launch


@triton.jit
def descriptor_kernel(a, b, c, m, n, k, P: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, W: tl.constexpr):
    da = tl.make_tensor_descriptor(a, shape=[m, k], strides=[k, 1], block_shape=[BM, BK])
    db = tl.make_tensor_descriptor(b, shape=[n, k], strides=[k, 1], block_shape=[BN, BK])
    dc = tl.make_tensor_descriptor(c, shape=[m, n], strides=[n, 1], block_shape=[BM, BN])
    columns = tl.cdiv(n, BN)
    for t in tl.range(tl.program_id(0), tl.cdiv(m, BM) * columns, P, flatten=True, warp_specialize=W):
        sum = tl.zeros([BM, BN], tl.float32)
        for at in range(0, k, BK):
            sum = tl.dot(da.load([t // columns * BM, at]), db.load([t % columns * BN, at]).T, sum)
        dc.store([t // columns * BM, t % columns * BN], sum.to(tl.float16))


def product(r, m, n, k, programs, tile, specialised=False):
    a, b = floats(r, m, k, dtype=np.float16), floats(r, n, k, dtype=np.float16)
    c = want(a.astype(float) @ b.T.astype(float), dtype=np.float16, tol=2e-3)
    constants = dict(zip(("BM", "BN", "BK"), tile), P=programs, W=specialised)
    return launch(descriptor_kernel, programs, a, b, c, m, n, k, **constants)


@case_for("sm_90", "sm_100", "sm_120")
def descriptors(r):
    return product(r, 100, 120, 96, 4, (64, 64, 32))


@case_for("sm_90", "sm_100", "sm_120")
def persistent_descriptors(r):
    return product(r, 100, 120, 96, 3, (64, 64, 32))


@case_for("sm_90", "sm_100")
def specialised_warps(r):
    return product(r, 200, 120, 128, 2, (128, 64, 64), specialised=True)


@triton.jit
def decode_kernel(q, k, v, o, n, scale, D: tl.constexpr, B: tl.constexpr):
    h, d = tl.arange(0, 16), tl.arange(0, D)
    query = tl.load(q + h[:, None] * D + d[None, :])
    most = tl.full([16], -float("inf"), tl.float32)
    sum = tl.zeros([16], tl.float32)
    acc = tl.zeros([16, D], tl.float32)
    for at in range(0, n, B):
        j = at + tl.arange(0, B)
        s = tl.dot(query, tl.load(k + j[None, :] * D + d[:, None], mask=j[None, :] < n, other=0.0)) * scale
        s = tl.where(j[None, :] < n, s, -float("inf"))
        high = tl.maximum(most, tl.max(s, 1))
        p, shrink = tl.exp(s - high[:, None]), tl.exp(most - high)
        sum = sum * shrink + tl.sum(p, 1)
        values = tl.load(v + j[:, None] * D + d[None, :], mask=j[:, None] < n, other=0.0)
        acc = acc * shrink[:, None] + tl.dot(p.to(tl.float16), values.to(tl.float16))
        most = high
    tl.store(o + h[:, None] * D + d[None, :], acc / sum[:, None])


@case_for("sm_90", "sm_100", "sm_120")
def decode_e4m3(r):
    q, k, v = (ints(r, 0, 0x40, rows, 64, dtype=np.uint8).view(E4m3) for rows in (16, 90, 90))
    e = np.exp(from_e4m3(q) @ from_e4m3(k).T / 8)
    return launch(decode_kernel, 1, q, k, v, want(e / e.sum(1, keepdims=True) @ from_e4m3(v), tol=5e-3), 90, 0.125, D=64, B=32)


@triton.jit
def top_kernel(x, y, B: tl.constexpr, K: tl.constexpr):
    row = tl.program_id(0)
    tl.store(y + row * K + tl.arange(0, K), tl.topk(tl.load(x + row * B + tl.arange(0, B)), K))


@case
def top(r):
    x = floats(r, 3, 128)
    return launch(top_kernel, 3, x, want(-np.sort(-x, 1)[:, :8]), B=128, K=8)


@triton.jit
def backward_kernel(dy, x, w, mean, scale, dx, n, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    g, v = tl.load(dy + row * n + i, mask=i < n, other=0.0), tl.load(x + row * n + i, mask=i < n, other=0.0)
    h = tl.where(i < n, (v - tl.load(mean + row)) * tl.load(scale + row), 0.0)
    wg = tl.load(w + i, mask=i < n, other=0.0) * g
    c, d = tl.sum(h * wg, 0) / n, tl.sum(wg, 0) / n
    tl.store(dx + row * n + i, (wg - h * c - d) * tl.load(scale + row), mask=i < n)


@case
def layer_norm_backward(r):
    n, dy, x, w = 100, floats(r, 5, 100), floats(r, 5, 100), floats(r, 100)
    mean, scale = x.mean(1), 1 / np.sqrt(x.var(1) + 1e-5)
    h, wg = (x - mean[:, None]) * scale[:, None], w * dy
    dx = (wg - h * (h * wg).mean(1, keepdims=True) - wg.mean(1, keepdims=True)) * scale[:, None]
    # With B=128, one element per thread, Triton fuses the products with the first step of the sum over a warp. Its lanes
    # then store sums that differ by rounding to one address: an error where the terms nearly cancel, advice elsewhere.
    return launch(backward_kernel, 5, dy, x, w, mean, scale, want(dx), n, B=256)
