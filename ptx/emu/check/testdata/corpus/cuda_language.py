import math

import numpy as np

from corpus import Scratch, Struct, cuda, floats, ints, launch, want

case = cuda("language.cu")
zero = np.zeros(1, np.int32)


@case
def interpreter(r):
    n, y = 12, []
    ops, x = ints(r, 0, 9, n), ints(r, -1000, 1000, 32)
    for t in range(32):
        v = int(x[t])
        for i in range(n):
            steps = v + 1, v * 3, v - 7, v ^ 0x55, v << 2, v >> 1, ~v, int(math.fmod(v, 13)), v & 0xFF
            v = (steps[ops[(i + t) % n]] + 2**31) % 2**32 - 2**31
        y.append(v)
    return launch(1, 32, ops, x, want(y, dtype=np.int32), n)


@case
def function_pointers(r):
    x, which = floats(r, 64), ints(r, 0, 3, 64)
    f = [x * x, x + 1, x / 2]
    return launch(1, 64, x, which, want(np.choose(which, f) + np.choose((which + 1) % 3, f)))


@case
def virtual_functions(r):
    x, t = floats(r, 64), np.arange(64)
    f = [x, x * x, 5 * x * x]
    return launch(1, 64, x, want(np.choose(t % 3, f) + np.choose((t + 1) % 3, f)))


@case
def recursive_sort(r):
    x = ints(r, -50, 50, 16, 30)
    return launch(1, 16, want(np.sort(x, 1), start=x), 30)


@case
def linked_list(r):
    n, t = 9, np.arange(40)
    return launch(1, 40, want(sum((k + 1) * (n - 1 - k) for k in range(n)) * t, dtype=np.int32), n)


@case
def backtracking(r):
    return launch(1, 6, want([0, 1, 1, 1, 1, 0], dtype=np.int32), 6)


@case
def volatile_array(r):
    x, y = ints(r, -99, 99, 64), []
    for t in range(64):
        a = [int(x[(t + i) % 64]) for i in range(8)]
        for i in range(8):
            a[i] += a[(i + 3) & 7]
        y.append(sum(a))
    return launch(1, 64, x, want(y, dtype=np.int32))


@case
def lock_per_thread(r):
    return launch(2, 40, want(zero, start=zero), want(2 * 3 * sum(range(40)), start=zero, dtype=np.int32), 3)


@case
def message(r):
    y = np.arange(31, -1, -1) * 5 + 1
    return launch(2, 32, want(1, start=zero, dtype=np.int32), Scratch(np.int32, 32), want(y, dtype=np.int32))


@case
def print_and_assert(r):
    x = ints(r, -9, 9, 32)
    return launch(1, 32, x, want(x + 1))


@case
def wide_integers(r):
    x, y = r.integers(1, 2**64, 64, dtype=np.uint64), []
    for t in range(32):
        a, b = int(x[t]), int(x[t + 32])
        p = a * b + a
        v = p ^ p >> 64 << 1 ^ a * b >> 64 ^ 64 - a.bit_length() ^ (b & -b).bit_length() << 8
        y.append((v ^ int(f"{a:064b}"[::-1], 2) ^ a % (b | 1) ^ a // (b | 3)) % 2**64)
    return launch(1, 32, x, want(np.array(y, np.uint64)))


@case
def bit_tricks(r):
    x, y = r.integers(0, 2**32, 64, dtype=np.uint32), []
    for t in range(64):
        a, b = int(x[t]), int(x[(t + 1) % 64])
        both = b << 32 | a
        v = (a & 0xFFFF | b << 16) ^ both << t % 32 >> 32 ^ both >> min(t, 32) ^ a.bit_count()
        y.append((v ^ int(f"{b:032b}"[::-1], 2) ^ abs(a - b) + 3 ^ (a + b) // 2) % 2**32)
    return launch(1, 64, x, want(np.array(y, np.uint32)))


@case
def packed_structures(r):
    p = np.zeros(16, [("c", "i1"), ("i", "<i4"), ("s", "<i2"), ("d", "<f8")])
    for name in "cis":
        p[name] = r.integers(-100, 100, 16)
    p["d"] = r.standard_normal(16)
    s = np.array([5, -6, 7], np.int16)
    y = p["c"] + 0.0 + p["i"] + p["s"] + p["d"] * 2.5 + 1.5 + s[np.arange(16) % 3]
    factors = Struct([np.int32(3), np.float32(0.5), np.float64(2.5), *s])
    return launch(1, 16, p.view(np.uint8), want(y), factors)
