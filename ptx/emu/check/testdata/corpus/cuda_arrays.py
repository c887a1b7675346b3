import numpy as np

from corpus import Struct, cuda, floats, ints, launch, want

case = cuda("arrays.cu")


@case
def transpose_naive(r):
    x = floats(r, 30, 45)
    return launch((3, 2), (16, 16), x, want(x.T), 30, 45)


@case
def transpose_tiled(r):
    x = floats(r, 50, 70)
    return launch((3, 2), (32, 8), x, want(x.T), 50, 70)


@case
def transpose_swizzled(r):
    x = ints(r, -99, 99, 32, 32)
    return launch(1, (32, 4), x, want(x.T))


@case
def transpose_half(r):
    x = floats(r, 32, 32, dtype=np.float16)
    return launch(1, (16, 16), x, want(x.T))


@case
def histogram_shared(r):
    x = ints(r, 0, 256, 2000, dtype=np.uint8)
    return launch(3, 128, x, want(np.bincount(x, minlength=256), dtype=np.int32, start=np.zeros(256, np.int32)), 2000)


@case
def histogram_of_warps(r):
    x = ints(r, 0, 16, 700, dtype=np.uint8)
    return launch(1, 128, x, want(np.bincount(x, minlength=16), dtype=np.int32), 700)


@case
def saxpy(r):
    x, y = floats(r, 400), floats(r, 400)
    return launch(2, 64, 1.5, x, want(1.5 * x + y, start=y), 100)


@case
def convolution(r):
    x = floats(r, 150)
    taps = np.array([0.1, 0.2, 0.4, 0.2, 0.1], np.float32)
    return launch(3, 64, x, want(np.convolve(x, taps, "same")), 150)


@case
def convolution_2d(r):
    x, w = floats(r, 20, 30), floats(r, 3, 3)
    p = np.pad(x, 1)
    y = sum(w[a, b] * p[a : a + 20, b : b + 30] for a in range(3) for b in range(3))
    return launch((2, 3), (16, 8), x, w, want(y), 20, 30)


@case
def heat(r):
    x = floats(r, 40, 40)
    y = x.copy()
    y[1:-1, 1:-1] += np.float32(0.1) * (x[1:-1, :-2] + x[1:-1, 2:] + x[:-2, 1:-1] + x[2:, 1:-1] - 4 * x[1:-1, 1:-1])
    return launch((3, 3), (16, 16), x, want(y), 40)


@case
def stencil_3d(r):
    x = floats(r, 8, 8, 8, dtype=np.float64)
    p = np.pad(x, ((1, 1), (0, 0), (0, 0)))
    return launch(1, (8, 8), x, want(p[2:] + p[:-2] - 2 * x, tol=1e-14), 8)


@case
def life(r):
    x = ints(r, 0, 2, 32, 32, dtype=np.uint8)
    n = sum(np.roll(x, (a, b), (0, 1)) for a in (-1, 0, 1) for b in (-1, 0, 1)) - x
    return launch((2, 2), (16, 16), x, want((n == 3) | (n == 2) & (x == 1), dtype=np.uint8), 32)


@case
def gather(r):
    x, at = floats(r, 300), ints(r, 0, 300, 150, dtype=np.int64)
    return launch(3, 64, x, at, want(x[at]), 150)


@case
def scatter_add(r):
    x, at, y = floats(r, 300), ints(r, 0, 40, 300), np.zeros(40, np.float32)
    np.add.at(y, at, x)
    return launch(3, 128, x, at, want(y, start=np.zeros(40, np.float32)), 300)


@case
def sparse(r):
    a = floats(r, 60, 50) * (r.random((60, 50)) < 0.1)
    x, (rows, cols) = floats(r, 50), np.nonzero(a)
    start = np.searchsorted(rows, range(61)).astype(np.int32)
    return launch(1, 64, start, cols.astype(np.int32), a[rows, cols], x, want(a @ x), 60)


@case
def matrix_vector(r):
    a, x = floats(r, 21, 100), floats(r, 100)
    return launch(6, (32, 4), a, x, want(a @ x), 21, 100)


@case
def breadth_first(r):
    edges = r.random((64, 64)) < 0.04
    level, front = np.full(64, -1), np.arange(64) == 0
    level[0] = 0
    for depth in range(1, 9):
        front = edges[front].any(0) & (level < 0)
        level[front] = depth
    rows, to = np.nonzero(edges)
    start = np.searchsorted(rows, range(65)).astype(np.int32)
    first = np.full(64, -1, np.int32)
    first[0] = 0
    y, to = want(level, start=first, dtype=np.int32), to.astype(np.int32)
    return [launch(1, 64, start, to, y, depth, 64) for depth in range(8)]


@case
def bodies(r):
    p = floats(r, 50, 4)
    d = p[None, :, :3] - p[:, None, :3]
    f = (p[None, :, 3:] * d / (np.square(d).sum(2, keepdims=True) + 0.01) ** 1.5).sum(1)
    return launch(2, 32, p, want(np.c_[f, np.zeros(50)], dtype=np.float32, tol=1e-4), 50)


@case
def mandelbrot(r):
    i, one = np.arange(300), np.float32(1)
    a = (-2 + 3 * one * (i % 20) / 20).astype(np.float32)
    b = (-1 + 2 * one * (i // 20) / 15).astype(np.float32)

    def check(y):
        c, z, k = a.astype(float) + 1j * b, 0, np.zeros(300)
        for _ in range(40):
            inside = abs(z) < 2
            k += inside
            z = np.where(inside, z * z + c, z)
        if (y != k).mean() > 0.02:  # points at the border escape later or earlier by rounding
            return "the set differs"

    return launch(3, 128, want(np.zeros(300, np.int32), check=check), 20, 15)


@case
def pascal(r):
    n = int(r.integers(20, 60))
    row = [1]
    for _ in range(n):
        row = [1] + [a + b for a, b in zip(row, row[1:])] + [1]
    row = np.array((row + [0] * 64)[:64], dtype=np.uint64)
    return launch(1, 64, want(row), n)


@case
def grey(r):
    p = ints(r, 0, 256, 10 * 12, 4, dtype=np.uint8)
    y = np.minimum(255, np.float32(1.5) * (p[:, :3].astype(int) @ [77, 150, 29]) / 256)
    return launch(1, 128, Struct([p, 12, 10, 1.5]), want(y, dtype=np.uint8))


@case
def longest_common(r):
    a, b = ints(r, 0, 4, 50, dtype=np.int8), ints(r, 0, 4, 50, dtype=np.int8)
    d = np.zeros((51, 51), int)
    for i in range(50):
        for j in range(50):
            d[i + 1, j + 1] = d[i, j] + 1 if a[i] == b[j] else max(d[i, j + 1], d[i + 1, j])
    return launch(1, 64, a, b, want(d[50, 50], dtype=np.int32), 50)
