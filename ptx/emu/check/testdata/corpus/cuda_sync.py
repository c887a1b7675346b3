import numpy as np

from corpus import Scratch, Tensor, cuda, floats, ints, launch, want

case = cuda("sync.cu")


@case
def tile_reduce(r):
    x = ints(r, -99, 99, 8, 8)
    return launch(1, 64, x, want(x.sum(1), dtype=np.int32))


@case
def tile_scan(r):
    x = ints(r, -99, 99, 4, 16)
    return launch(1, 64, x, want(x.cumsum(1), dtype=np.int32))


@case
def tile_shuffles(r):
    x = floats(r, 16, 4)
    down = np.c_[x[:, 1:], x[:, 3]]
    y = down + x[:, [2, 3, 0, 1]] * (x > 1).any(1, keepdims=True) + x[:, 3:]
    return launch(1, 64, x, want(y))


@case
def coalesced_counter(r):
    x = ints(r, -9, 9, 150)
    return launch(2, 96, x, want((x > 0).sum(), dtype=np.int32, start=np.zeros(1, np.int32)), 150)


@case
def labelled_groups(r):
    x = ints(r, 0, 5, 32)
    y = [100 * (x == v).sum() + (x[:i] == v).sum() for i, v in enumerate(x)]
    return launch(1, 32, x, want(y, dtype=np.int32))


@case
def two_way_groups(r):
    x = ints(r, -9, 9, 32)
    x[:2] = 1, -1
    return launch(1, 32, x, want(np.where(x > 0, x[x > 0].sum(), x[x <= 0].sum()), dtype=np.int32))


@case
def group_copy(r):
    x = ints(r, -99, 99, 128)
    return launch(1, 128, x, want(x[::-1]))


@case
def shared_pipeline(r):
    x = ints(r, -99, 99, 5, 64)
    return launch(1, 64, x, want((x[:, ::-1] * np.arange(1, 6)[:, None]).sum(0), dtype=np.int32), 5)


@case
def thread_pipeline(r):
    x = floats(r, 100, 4)
    return launch(2, 64, x, want(x[:, ::-1]), 100)


@case
def split_barrier(r):
    x = v = ints(r, -9, 9, 64)
    for _ in range(4):
        v = 3 * v + np.roll(v, -1)
    return launch(1, 64, x, want(v), 4)


@case
def producer_consumer(r):
    x, sum = ints(r, -9, 9, 6, 64), 0
    for row in x:
        sum = 2 * sum + row[::-1]
    return launch(1, 128, x, want(sum), 6)


@case
def spin_lock(r):
    v = int(r.integers(1, 9))
    y = v
    for _ in range(4):
        y = 3 * y + 1
    return launch(4, 32, want(y, dtype=np.int32, start=np.full(1, v, np.int32)))


@case
def message(r):
    x = ints(r, -99, 99, 64)
    return launch(2, 64, x, want(2 * x + 1), Scratch(np.int32, 64), np.zeros(1, np.int32))


@case
def grid_barrier(r):
    x = v = ints(r, -9, 9, 100)
    for _ in range(3):
        y = v + np.roll(v, -1)
        v = y - np.roll(y, -2)
    return launch(3, 32, want(v, start=x), want(y), 100)


@case
def atomics(r):
    x = ints(r, 1, 1 << 20, 100)
    y = [5 + x.sum(), 5 - x.sum(), min(5, x.min()), x.max(), np.bitwise_and.reduce(np.r_[5, x])]
    y += [np.bitwise_or.reduce(np.r_[5, x]), np.bitwise_xor.reduce(np.r_[5, x]), (5 + 100) % 11, (5 - 100) % 11]
    z = [(int(x.sum()) << 20) + 7, max(7, int(x.max()) ** 2)]
    y = want(y, dtype=np.int32, start=np.full(9, 5, np.int32))
    return launch(4, 32, x, y, want(z, dtype=np.uint64, start=np.full(2, 7, np.uint64)), 100)


@case
def float_atomics(r):
    x = floats(r, 90)
    y = want([x.sum(), x.max()], dtype=np.float32, start=np.zeros(2, np.float32))
    z = want([x.astype(float).sum(), np.prod(1 + x[:40] / 10)], start=np.array([0, 1.0]), tol=1e-6)
    h = want([x.sum(), 90], dtype=np.float16, start=np.zeros(2, np.float16), tol=0.01)
    return launch(3, 32, x, y, z, h, 90)


@case
def matches(r):
    x = ints(r, 0, 5, 32)
    y = [sum(1 << k for k in np.flatnonzero(x == v)) for v in x]
    return launch(1, 32, x, want(y, dtype=np.uint32), want(np.full(32, 3 + 4 * (x == 2).any()), dtype=np.int32))


@case
def cluster_sum(r):
    x = ints(r, -99, 99, 2, 4, 32)
    return launch(8, 32, x, want(10 * x.sum((1, 2), keepdims=True)[:, 0] + np.arange(4), dtype=np.int32), cluster=4)


@case
def cluster_histogram(r):
    x = ints(r, 0, 256, 900, dtype=np.uint8)
    y = want(np.bincount(x, minlength=256), dtype=np.int32, start=np.zeros(256, np.int32))
    return launch(8, 64, x, y, 900, cluster=4)


@case
def bulk_copy(r):
    x = ints(r, -99, 99, 3 * 128)
    return launch(3, 128, x, want(2 * x + 1))


@case
def tma_transpose(r):
    x = floats(r, 32, 64)
    return launch((2, 2), 64, Tensor(x, (16, 32)), want(x.T), 32)


@case
def tma_store(r):
    x, y = ints(r, -99, 99, 8, 32), np.zeros((16, 40), np.int32)
    y[4:12, :32] = x + 3
    return launch(1, 64, x, Tensor(want(y, start=np.zeros((16, 40), np.int32)), (8, 32)), 3)


@case
def wgmma_half(r):
    a, b = floats(r, 64, 192, dtype=np.float16), floats(r, 8, 192, dtype=np.float16)
    c = want(a.astype(np.float32) @ b.T.astype(np.float32))
    return launch(1, 128, Tensor(a, (64, 64), 128), Tensor(b, (8, 64), 128), c, 192)


@case
def specialised_warps(r):
    a, b = floats(r, 128, 320, dtype=np.float16), floats(r, 8, 320, dtype=np.float16)
    c = want(a.astype(np.float32) @ b.T.astype(np.float32))
    return launch(1, 384, Tensor(a, (128, 64), 128), Tensor(b, (8, 64), 128), c, 320)


@case
def multicast(r):
    x = ints(r, -99, 99, 64)
    return launch(2, 64, x, want(np.r_[x, x + 1]), cluster=2)


@case
def bulk_reduction(r):
    x = floats(r, 3, 64)
    return launch(3, 64, x, want(x.sum(0), start=np.zeros(64, np.float32)))


@case
def other_branch(r):
    x = ints(r, -99, 99, 32)
    v = x[np.arange(32) ^ 2]
    return launch(1, 32, x, want(np.where(np.arange(32) % 2, v + 1, 2 * v), dtype=np.int32))


@case
def uneven_loops(r):
    x = ints(r, 0, 20, 32)
    return launch(1, 32, x, want((x * (x - 1) // 2)[np.arange(32) ^ 1]))
