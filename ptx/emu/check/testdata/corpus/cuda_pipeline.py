import numpy as np

from corpus import Scratch, cuda, floats, ints, launch, want

case = cuda("pipeline.cu")


@case
def attention_pipeline(r):
    n = 128
    q, k, v = (floats(r, n, 64, dtype=np.float16) for _ in range(3))
    e = np.exp(q.astype(float) @ k.T.astype(float) / 8)
    return launch(2, 128, q, k, v, want(e / e.sum(1, keepdims=True) @ v.astype(float), dtype=np.float32, tol=2e-3), n)


@case
def sort_sweep(r):
    x = ints(r, 0, 1 << 32, 500, dtype=np.uint32)
    starts = np.cumsum(np.bincount(x & 15, minlength=16)) - np.bincount(x & 15, minlength=16)
    y = want(x[np.argsort(x & 15, kind="stable")])
    return launch(4, 128, x, y, starts.astype(np.uint32), np.zeros(64, np.uint32), np.zeros(1, np.uint32), 500)


@case
def conjugate_gradient(r):
    n, b = 200, floats(r, 200)
    a = 4 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
    x = want(np.linalg.solve(a, b), dtype=np.float32, tol=1e-4)
    return launch(3, 64, b, x, *(Scratch(np.float32, n) for _ in range(3)), np.zeros(64), n, 14)


@case
def cluster_sort(r):
    x = ints(r, -999, 999, 256)
    return launch(4, 64, x, want(np.sort(x)), cluster=4)


@case
def latch_exchange(r):
    x = ints(r, -9, 9, 64)
    return launch(1, 64, x, want(2 * x[::-1]))


@case
def pair_counter(r):
    return launch(2, 32, want([40, 40 * 39 // 2], dtype=np.uint64, start=np.zeros(2, np.uint64)), 40)


@case
def half_word_counter(r):
    i = np.arange(50)
    y = [i[i % 4 == k].sum() for k in range(4)]
    return launch(2, 32, want(y, dtype=np.uint16, start=np.zeros(4, np.uint16)), 50)
