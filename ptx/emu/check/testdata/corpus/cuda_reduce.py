import numpy as np

from corpus import Scratch, cuda, floats, ints, launch, want

case = cuda("reduce.cu")


@case
def warp_sum(r):
    x = floats(r, 32)
    return launch(1, 32, x, want(x.sum()))


@case
def warp_max(r):
    x = floats(r, 4, 32)
    return launch(4, 32, x, want(x.max(1)))


@case
def block_sum(r):
    x = floats(r, 1000)
    return launch(1, 128, x, want(x.sum()), 1000)


@case
def tree_sum(r):
    x = ints(r, -99, 99, 1000)
    sums = np.add.reduceat(x, range(0, 1000, 256))
    return launch(4, 256, x, want(sums, dtype=np.int32), 1000, smem=1024)


@case
def grid_sum(r):
    x = ints(r, -99, 99, 3000)
    return launch(5, 64, x, want(x.sum(), dtype=np.int32, start=np.zeros(1, np.int32)), 3000)


@case
def last_block_sum(r):
    x = floats(r, 1500, dtype=np.float64)
    return launch(6, 64, x, Scratch(np.float64, 6), want(x.sum(), tol=1e-12), 1500)


@case
def arg_max(r):
    x = floats(r, 500)
    return launch(1, 32, x, want(x.argmax(), dtype=np.int32), 500)


@case
def mean_variance(r):
    x = floats(r, 1000) + 3
    return launch(1, 128, x, want([x.mean(), x.var()], dtype=np.float32), 1000)


@case
def dot(r):
    x, y = floats(r, 700), floats(r, 700)
    return launch(1, 96, x, y, want(x.astype(float) @ y.astype(float), tol=1e-12), 700)


@case
def redux(r):
    x = ints(r, -1000, 1000, 32)
    operations = np.add, np.minimum, np.maximum, np.bitwise_and, np.bitwise_or, np.bitwise_xor
    return launch(1, 32, x, want([f.reduce(x) for f in operations], dtype=np.int32))


@case
def count_positive(r):
    x = floats(r, 500)
    return launch(4, 128, x, want((x > 0).sum(), dtype=np.int32, start=np.zeros(1, np.int32)), 500)


@case
def block_count(r):
    x = ints(r, -9, 9, 128)
    return launch(1, 128, x, want([(x > 3).sum(), 1, (x == 7).any()], dtype=np.int32))


@case
def segmented_sum(r):
    x = floats(r, 600)
    start = np.sort(np.r_[0, r.integers(0, 600, 9), 600]).astype(np.int32)
    sums = [x[a:b].sum() for a, b in zip(start, start[1:])]
    return launch(3, 128, x, start, want(sums, dtype=np.float32), 10)


@case
def kahan_sum(r):
    x = floats(r, 100, 32)
    return launch(1, 32, x, want(x.astype(float).sum(0).astype(np.float32), tol=1e-6), 100)


@case
def warp_scan(r):
    x = ints(r, -99, 99, 3, 32)
    return launch(3, 32, x, want(x.cumsum(1, dtype=np.int32)))


@case
def block_scan(r):
    x = ints(r, -99, 99, 200)
    return launch(1, 256, x, want(x.cumsum(dtype=np.int32)), 200)


@case
def hillis_steele(r):
    x = ints(r, -99, 99, 128)
    return launch(1, 128, x, want(x.cumsum(dtype=np.int32)))


@case
def blelloch(r):
    x = ints(r, -99, 99, 256)
    return launch(1, 128, x, want(x.cumsum() - x, dtype=np.int32))


@case
def scan_three_launches(r):
    x, totals, sums = ints(r, -99, 99, 700), Scratch(np.int32, 6), Scratch(np.int32, 6)
    y = want(x.cumsum(dtype=np.int32))
    return [
        launch(6, 128, x, y, totals, 700, kernel="scan_blocks"),
        launch(1, 32, totals, sums, 6, kernel="block_scan"),
        launch(6, 128, y, sums, 700, kernel="add_totals"),
    ]


@case
def decoupled_scan(r):
    x = ints(r, 0, 99, 5 * 128)
    return launch(5, 128, x, want(x.cumsum(dtype=np.int32)), np.zeros(5, np.uint32))


@case
def compact(r):
    x = ints(r, -9, 9, 500)
    kept = np.sort(x[x > 0])

    def check(y):
        if not np.array_equal(np.sort(y[: kept.size]), kept):
            return "other elements are kept"

    y = want(np.zeros(500, np.int32), start=np.zeros(500, np.int32), check=check)
    return launch(4, 128, x, y, want(kept.size, dtype=np.int32, start=np.zeros(1, np.int32)), 500)


@case
def running_maximum(r):
    x = floats(r, 2, 32)
    return launch(2, 32, x, want(np.maximum.accumulate(x, 1)))


@case
def column_sums(r):
    x = floats(r, 50, 70)
    return launch(3, (32, 8), x, want(x.sum(0)), 50, 70)
