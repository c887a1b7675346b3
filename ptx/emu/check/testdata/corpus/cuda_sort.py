import numpy as np

from corpus import Scratch, cuda, floats, ints, launch, want

case = cuda("sort.cu")


@case
def bitonic(r):
    x = ints(r, -1000, 1000, 256)
    return launch(1, 256, want(np.sort(x), start=x))


@case
def warp_bitonic(r):
    x = floats(r, 3, 32)
    x[:, 1::2] = x[:, 1::2]
    return launch(3, 32, want(np.sort(x, 1), start=x))


@case
def odd_even(r):
    x = ints(r, -99, 99, 61)
    return launch(1, 32, want(np.sort(x), start=x), 61)


@case
def rank_sort(r):
    x = ints(r, -99, 99, 150)
    return launch(3, 64, x, want(np.sort(x)), 150)


@case
def radix_sort(r):
    x = ints(r, 0, 256, 128, dtype=np.uint32)
    return launch(1, 128, want(np.sort(x), start=x))


@case
def binary_search(r):
    x, v = np.sort(ints(r, -500, 500, 200)), ints(r, -600, 600, 128)
    return launch(2, 64, x, v, want(np.searchsorted(x, v), dtype=np.int32), 200)


@case
def merge(r):
    x, launches = ints(r, -500, 500, 200), []
    steps = [x] + [Scratch(np.int32, 200) for _ in range(7)] + [want(np.sort(x))]
    for k in range(8):
        launches.append(launch(4, 64, steps[k], steps[k + 1], 1 << k, 200))
    return launches


@case
def counting_sort(r):
    x, next = ints(r, 0, 16, 400, dtype=np.uint8), Scratch(np.int32, 16)
    return [
        launch(1, 64, x, next, 400, kernel="count_keys"),
        launch(4, 128, x, next, want(np.sort(x)), 400, kernel="scatter_keys"),
    ]


@case
def top_k(r):
    x = floats(r, 3, 100)
    return launch(3, 32, x, want(-np.sort(-x, 1)[:, :4]), 100, 4)


@case
def median_filter(r):
    x = floats(r, 100)
    padded = np.pad(x, 2, mode="edge")
    return launch(2, 64, x, want(np.median([padded[k : k + 100] for k in range(5)], 0), dtype=np.float32), 100)


@case
def insertion(r):
    x = ints(r, -99, 99, 40, 13)
    return launch(1, 40, want(np.sort(x, 1), start=x), 13)


@case
def quick(r):
    x = floats(r, 20, 30)
    return launch(1, 20, want(np.sort(x, 1), start=x), 30)


@case
def run_lengths(r):
    x = np.repeat(ints(r, 0, 5, 60), ints(r, 1, 6, 60))
    starts = np.r_[0, np.flatnonzero(np.diff(x)) + 1]

    def check(y):
        if not np.array_equal(np.sort(y[: starts.size]), starts):
            return "other starts"

    y = want(np.zeros(60, np.int32), check=check)
    return launch(1, 64, x, y, want(starts.size, dtype=np.int32), x.size)
