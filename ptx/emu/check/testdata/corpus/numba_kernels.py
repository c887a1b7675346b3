"""Kernels in Numba."""

import math

import numpy as np
from numba import cuda, float32, float64, int32, uint32

from corpus import Scratch, floats, ints, want
from numba_compiler import case


@case(3, 128)
def add(x, y, z):
    i = cuda.grid(1)
    if i < z.size:
        z[i] = x[i] + y[i]


@add
def _(r):
    x, y = floats(r, 300), floats(r, 300)
    return x, y, want(x + y)


@case((3, 2), (16, 16))
def add_matrices(x, y, z):
    i, j = cuda.grid(2)
    if i < z.shape[0] and j < z.shape[1]:
        z[i, j] = x[i, j] * 2 + y[i, j]


@add_matrices
def _(r):
    x, y = floats(r, 40, 30, dtype=np.float64), floats(r, 40, 30, dtype=np.float64)
    return x, y, want(2 * x + y)


@case((2, 3), (16, 16))
def matmul(a, b, c):
    s, t = cuda.shared.array((16, 16), float32), cuda.shared.array((16, 16), float32)
    i, j = cuda.grid(2)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    sum = float32(0)
    for k in range((a.shape[1] + 15) // 16):
        s[x, y] = a[i, k * 16 + y] if i < a.shape[0] and k * 16 + y < a.shape[1] else float32(0)
        t[x, y] = b[k * 16 + x, j] if j < b.shape[1] and k * 16 + x < b.shape[0] else float32(0)
        cuda.syncthreads()
        for q in range(16):
            sum += s[x, q] * t[q, y]
        cuda.syncthreads()
    if i < c.shape[0] and j < c.shape[1]:
        c[i, j] = sum


@matmul
def _(r):
    a, b = floats(r, 30, 50), floats(r, 50, 40)
    return a, b, want(a @ b)


@case(4, 64)
def sum_shared(x, y):
    s = cuda.shared.array(64, float64)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    s[t] = x[i] if i < x.size else 0.0
    cuda.syncthreads()
    d = 32
    while d > 0:
        if t < d:
            s[t] += s[t + d]
        cuda.syncthreads()
        d //= 2
    if t == 0:
        y[cuda.blockIdx.x] = s[0]


@sum_shared
def _(r):
    x = floats(r, 230, dtype=np.float64)
    return x, want(np.add.reduceat(x, range(0, 230, 64)), tol=1e-13)


@case(2, 96)
def sum_warps(x, y):
    v = x[cuda.grid(1)]
    d = 16
    while d > 0:
        v += cuda.shfl_down_sync(0xFFFFFFFF, v, d)
        d //= 2
    if cuda.laneid == 0:
        cuda.atomic.add(y, 0, v)


@sum_warps
def _(r):
    x = ints(r, -99, 99, 192)
    return x, want(x.sum(), dtype=np.int32, start=np.zeros(1, np.int32))


@case(1, 128)
def scan(x, y):
    s = cuda.shared.array((2, 128), int32)
    t, p = cuda.threadIdx.x, 0
    s[0, t] = x[t]
    cuda.syncthreads()
    d = 1
    while d < 128:
        s[1 - p, t] = s[p, t] + (s[p, t - d] if t >= d else 0)
        p = 1 - p
        cuda.syncthreads()
        d *= 2
    y[t] = s[p, t]


@scan
def _(r):
    x = ints(r, -99, 99, 128)
    return x, want(x.cumsum(dtype=np.int32))


@case(1, 128)
def bitonic(x):
    s = cuda.shared.array(128, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    size = 2
    while size <= 128:
        d = size // 2
        while d > 0:
            o = t ^ d
            if o > t and (s[t] > s[o]) == ((t & size) == 0):
                s[t], s[o] = s[o], s[t]
            cuda.syncthreads()
            d //= 2
        size *= 2
    x[t] = s[t]


@bitonic
def _(r):
    x = floats(r, 128)
    return (want(np.sort(x), start=x),)


@case(3, 64)
def histogram(x, y):
    s = cuda.shared.array(32, int32)
    t = cuda.threadIdx.x
    if t < 32:
        s[t] = 0
    cuda.syncthreads()
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        cuda.atomic.add(s, x[i], 1)
    cuda.syncthreads()
    if t < 32:
        cuda.atomic.add(y, t, s[t])


@histogram
def _(r):
    x = ints(r, 0, 32, 900, dtype=np.uint8)
    return x, want(np.bincount(x, minlength=32), dtype=np.int32, start=np.zeros(32, np.int32))


@case((3, 2), (32, 8))
def transpose(x, y):
    s = cuda.shared.array((32, 33), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    for k in range(0, 32, 8):
        i, j = cuda.blockIdx.y * 32 + ty + k, cuda.blockIdx.x * 32 + tx
        if i < x.shape[0] and j < x.shape[1]:
            s[ty + k, tx] = x[i, j]
    cuda.syncthreads()
    for k in range(0, 32, 8):
        i, j = cuda.blockIdx.x * 32 + ty + k, cuda.blockIdx.y * 32 + tx
        if i < y.shape[0] and j < y.shape[1]:
            y[i, j] = s[tx, ty + k]


@transpose
def _(r):
    x = floats(r, 50, 70)
    return x, want(x.T)


@case(5, 32)
def softmax(x, y):
    row, lane = cuda.blockIdx.x, cuda.threadIdx.x
    most, sum = float32(-1e30), float32(0)
    for i in range(lane, x.shape[1], 32):
        most = max(most, x[row, i])
    for d in (16, 8, 4, 2, 1):
        most = max(most, cuda.shfl_xor_sync(0xFFFFFFFF, most, d))
    for i in range(lane, x.shape[1], 32):
        sum += math.exp(x[row, i] - most)
    for d in (16, 8, 4, 2, 1):
        sum += cuda.shfl_xor_sync(0xFFFFFFFF, sum, d)
    for i in range(lane, x.shape[1], 32):
        y[row, i] = math.exp(x[row, i] - most) / sum


@softmax
def _(r):
    x = floats(r, 5, 70)
    e = np.exp(x - x.max(1, keepdims=True))
    return x, want(e / e.sum(1, keepdims=True))


@case(4, 64)
def layer_norm(x, y):
    s = cuda.shared.array(2, float32)
    row, t = cuda.blockIdx.x, cuda.threadIdx.x
    if t < 2:
        s[t] = 0
    cuda.syncthreads()
    for i in range(t, x.shape[1], 64):
        cuda.atomic.add(s, 0, x[row, i])
    cuda.syncthreads()
    mean = s[0] / x.shape[1]
    for i in range(t, x.shape[1], 64):
        cuda.atomic.add(s, 1, (x[row, i] - mean) * (x[row, i] - mean))
    cuda.syncthreads()
    scale = 1 / math.sqrt(s[1] / x.shape[1] + 1e-5)
    for i in range(t, x.shape[1], 64):
        y[row, i] = (x[row, i] - mean) * scale


@layer_norm
def _(r):
    x = floats(r, 4, 150)
    return x, want((x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5), tol=3e-5)


@case(1, 100)
def functions(x, y):
    i = cuda.grid(1)
    if i < x.size:
        v = x[i]
        y[0, i] = math.sin(v) + math.cos(v)
        y[1, i] = math.exp(v)
        y[2, i] = math.log(abs(v))
        y[3, i] = math.sqrt(abs(v))
        y[4, i] = math.erf(v)
        y[5, i] = math.tanh(v)
        y[6, i] = math.pow(abs(v), 1.5)
        y[7, i] = math.floor(v) + math.ceil(v)
        y[8, i] = math.gamma(abs(v) + 1)
        y[9, i] = math.atan2(v, 2.0)


@functions
def _(r):
    x = floats(r, 90, dtype=np.float64)
    y = [np.sin(x) + np.cos(x), np.exp(x), np.log(abs(x)), np.sqrt(abs(x)), np.vectorize(math.erf)(x), np.tanh(x)]
    y += [abs(x) ** 1.5, np.floor(x) + np.ceil(x), np.vectorize(math.gamma)(abs(x) + 1), np.arctan2(x, 2)]
    return x, want(y, tol=1e-13)


@case(2, 64)
def integers(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[0, i] = cuda.popc(x[i])
        y[1, i] = cuda.clz(x[i])
        y[2, i] = x[i] // 7
        y[3, i] = x[i] % 7
        y[4, i] = (x[i] << 3) ^ (x[i] >> 2)


@integers
def _(r):
    x = ints(r, 1, 1 << 30, 100)
    y = [[int(v).bit_count() for v in x], [32 - int(v).bit_length() for v in x], x // 7, x % 7, (x << 3) ^ (x >> 2)]
    return x, want(y, dtype=np.int32)


@case(2, 64)
def polynomial(x, c, y):
    i = cuda.grid(1)
    if i < x.size:
        v = 0.0
        for k in range(c.size):
            v = v * x[i] + c[k]
        y[i] = v


@polynomial
def _(r):
    x, c = floats(r, 100), floats(r, 6)
    return x, c, want(np.polyval(c.astype(float), x), dtype=np.float32)


@case((2, 2), (16, 16))
def mandelbrot(y):
    i, j = cuda.grid(2)
    c = complex(-2 + 3 * i / 32, -1 + 2 * j / 32)
    z, k = complex(0, 0), 0
    while k < 30 and z.real * z.real + z.imag * z.imag < 4:
        z = z * z + c
        k += 1
    y[i, j] = k


@mandelbrot
def _(r):
    i, j = np.indices((32, 32))
    c, z, k = -2 + 3 * i / 32 + 1j * (-1 + 2 * j / 32), 0, np.zeros((32, 32))
    for _ in range(30):
        inside = abs(z) < 2
        k += inside
        z = np.where(inside, z * z + c, z)

    def check(y):
        if (y != k).mean() > 0.02:
            return "the set differs"

    return (want(k, dtype=np.int32, check=check),)


@case(1, 64)
def local_arrays(x, y):
    t = cuda.threadIdx.x
    v = cuda.local.array(8, float32)
    for k in range(8):
        v[k] = x[t, k]
    for k in range(8):
        for j in range(7 - k):
            if v[j] > v[j + 1]:
                v[j], v[j + 1] = v[j + 1], v[j]
    for k in range(8):
        y[t, k] = v[k]


@local_arrays
def _(r):
    x = floats(r, 64, 8)
    return x, want(np.sort(x, 1))


@case(2, 128)
def votes(x, y):
    i = cuda.grid(1)
    b = cuda.ballot_sync(0xFFFFFFFF, x[i] > 0)
    y[i] = cuda.popc(b) * 4 + cuda.all_sync(0xFFFFFFFF, x[i] > -5) * 2 + cuda.any_sync(0xFFFFFFFF, x[i] == 4)


@votes
def _(r):
    x = ints(r, -5, 5, 8, 32)
    y = 4 * (x > 0).sum(1) + 2 * (x > -5).all(1) + (x == 4).any(1)
    return x.ravel(), want(np.repeat(y, 32), dtype=np.int32)


@case(3, 64)
def atomics(x, y):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(y, 0, x[i])
        cuda.atomic.max(y, 1, x[i])
        cuda.atomic.min(y, 2, x[i])
        cuda.atomic.sub(y, 3, x[i])


@atomics
def _(r):
    x = ints(r, -99, 99, 150)
    y = [x.sum(), max(0, x.max()), min(0, x.min()), -x.sum()]
    return x, want(y, dtype=np.int32, start=np.zeros(4, np.int32))


@case(2, 64)
def float_atomics(x, y):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.max(y, 0, x[i])
        cuda.atomic.min(y, 1, x[i])
        cuda.atomic.add(y, 2, x[i])


@float_atomics
def _(r):
    x = floats(r, 100, dtype=np.float64)
    return x, want([x.max(), x.min(), x.sum()], start=np.zeros(3), tol=1e-12)


@case(4, 32)
def locked_counter(lock, y):
    if cuda.threadIdx.x == 0:
        while cuda.atomic.cas(lock, 0, 0, 1) != 0:
            pass
        cuda.threadfence()
        y[0] = y[0] * 2 + 1
        cuda.threadfence()
        cuda.atomic.exch(lock, 0, 0)


@locked_counter
def _(r):
    v = int(r.integers(9))
    return np.zeros(1, np.int32), want(16 * v + 15, dtype=np.int32, start=np.full(1, v, np.int32))


@case((3, 3), (16, 16))
def heat(x, y):
    i, j = cuda.grid(2)
    n, m = x.shape
    if 0 < i < n - 1 and 0 < j < m - 1:
        y[i, j] = 0.25 * (x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1])
    elif i < n and j < m:
        y[i, j] = x[i, j]


@heat
def _(r):
    x = floats(r, 40, 35)
    y = x.copy()
    y[1:-1, 1:-1] = (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]) / 4
    return x, want(y)


@case(2, 64)
def powers(x, n, y):
    i = cuda.grid(1)
    if i < x.size:
        result, base, k = 1.0, x[i], n[i]
        while k > 0:
            if k % 2:
                result *= base
            base *= base
            k //= 2
        y[i] = result


@powers
def _(r):
    x, n = floats(r, 100, dtype=np.float64), ints(r, 0, 9, 100)
    return x, n, want(x**n, tol=1e-13)


@case(2, 64)
def complex_numbers(x, y):
    i = cuda.grid(1)
    if i < x.shape[0]:
        z = complex(x[i, 0], x[i, 1])
        w = z * z - 2 * z
        y[i, 0] = w.real
        y[i, 1] = w.imag


@complex_numbers
def _(r):
    x = floats(r, 100, 2, dtype=np.float64)
    z = x[:, 0] + 1j * x[:, 1]
    w = z * z - 2 * z
    return x, want(np.c_[w.real, w.imag], tol=1e-12)


table = np.array([3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0], np.float32)


@case(2, 64)
def constants(x, y):
    c = cuda.const.array_like(table)
    i = cuda.grid(1)
    if i < x.size:
        y[i] = c[x[i] % 8]


@constants
def _(r):
    x = ints(r, 0, 100, 100)
    return x, want(table[x % 8])


@case(4, (8, 4, 2))
def indices_3d(y):
    i = ((cuda.blockIdx.x * 2 + cuda.threadIdx.z) * 4 + cuda.threadIdx.y) * 8 + cuda.threadIdx.x
    y[i] = cuda.threadIdx.x + 10 * cuda.threadIdx.y + 100 * cuda.threadIdx.z + 1000 * cuda.blockIdx.x


@indices_3d
def _(r):
    b, z, y, x = np.indices((4, 2, 4, 8))
    return (want((x + 10 * y + 100 * z + 1000 * b).ravel(), dtype=np.int32),)


@case(2, 64)
def binary_search(x, v, y):
    i = cuda.grid(1)
    if i < v.size:
        low, high = 0, x.size
        while low < high:
            mid = (low + high) // 2
            if x[mid] < v[i]:
                low = mid + 1
            else:
                high = mid
        y[i] = low


@binary_search
def _(r):
    x, v = np.sort(floats(r, 150)), floats(r, 100)
    return x, v, want(np.searchsorted(x, v), dtype=np.int32)


@case(6, 64)
def sparse(start, col, value, x, y):
    row = cuda.blockIdx.x
    s = cuda.shared.array(64, float32)
    v = float32(0)
    for i in range(start[row] + cuda.threadIdx.x, start[row + 1], 64):
        v += value[i] * x[col[i]]
    s[cuda.threadIdx.x] = v
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        v = float32(0)
        for k in range(64):
            v += s[k]
        y[row] = v


@sparse
def _(r):
    a = floats(r, 6, 200) * (r.random((6, 200)) < 0.5)
    rows, cols = np.nonzero(a)
    x, start = floats(r, 200), np.searchsorted(rows, range(7)).astype(np.int32)
    return start, cols.astype(np.int32), a[rows, cols], x, want(a @ x)


@case(3, 64)
def random_walk(seed, y):
    i = cuda.grid(1)
    if i < y.size:
        s, v = seed[i], int32(0)
        for _ in range(20):
            s = uint32(s * uint32(1664525) + uint32(1013904223))
            v += 1 if s >> 31 else -1
        y[i] = v


@random_walk
def _(r):
    s = ints(r, 0, 1 << 32, 150, dtype=np.uint32)
    v, seed = 0, s
    for _ in range(20):
        s = s * np.uint32(1664525) + np.uint32(1013904223)
        v = v + np.where(s >> 31, 1, -1)
    return seed, want(v, dtype=np.int32)


@case(1, 64, smem=256)
def dynamic_shared(x, y):
    s = cuda.shared.array(0, int32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    y[t] = s[63 - t]


@dynamic_shared
def _(r):
    x = ints(r, -99, 99, 64)
    return x, want(x[::-1])


@case(2, 32)
def last_block(x, partial, count, y):
    s = cuda.shared.array(1, int32)
    t, b = cuda.threadIdx.x, cuda.blockIdx.x
    if t == 0:
        v = int32(0)
        for k in range(b * 50, b * 50 + 50):
            v += x[k]
        partial[b] = v
        cuda.threadfence()
        s[0] = cuda.atomic.add(count, 0, 1)
        cuda.threadfence()
    cuda.syncthreads()
    if s[0] == 1 and t == 0:
        y[0] = partial[0] + partial[1]


@last_block
def _(r):
    x = ints(r, -99, 99, 100)
    return x, Scratch(np.int32, 2), np.zeros(1, np.int32), want(x.sum(), dtype=np.int32)
