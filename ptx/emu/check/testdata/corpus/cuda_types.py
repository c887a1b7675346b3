import math

import numpy as np

from corpus import cuda, floats, from_bf16, from_e4m3, from_e5m2, ints, launch, nearest, to_bf16, want

case = cuda("types.cu")
f32 = np.float32


@case
def elementary(r):
    x = 2 * floats(r, 100)
    v, a = x.astype(float), abs(x).astype(float)
    y = [np.sin(v), np.cos(v), np.tan(v), np.exp(v), np.exp2(v), np.expm1(v), np.log(a), np.log1p(a), np.arctan(v)]
    y += [np.sinh(v), np.cosh(v), np.tanh(v), np.vectorize(math.erf)(v), np.cbrt(v), np.sqrt(a), 1 / v]
    return launch(1, 128, x, want(y, dtype=f32, tol=2e-6), 100)


@case
def elementary_double(r):
    v = floats(r, 60, dtype=np.float64)
    a = abs(v)
    y = [np.sin(v), np.cos(v), np.exp(v), np.log(a), np.arctan(v), np.tanh(v), np.sqrt(a), 1 / v, a**1.7]
    y += [np.hypot(v, 2), np.fmod(v, 0.3), np.arctan2(v, 0.5)]
    return launch(1, 64, v, want(y, tol=1e-14), 60)


@case
def fast(r):
    x = floats(r, 100)
    a = abs(x)
    y = [np.sin(x), np.cos(x), np.exp(x), np.log(a), 1 / x, a**-0.5, a**1.5, np.clip(x, 0, 1)]
    return launch(1, 128, x, want(y, dtype=f32, tol=1e-5), 100)


@case
def rounding(r):
    x = 100 * floats(r, 100)
    x[:20] = ints(r, -20, 20, 20) + f32(0.5)
    away = np.copysign(np.floor(abs(x) + 0.5), x)
    y = [np.floor(x), np.ceil(x), np.trunc(x), np.rint(x), away, abs(x), np.copysign(f32(2), x), x - np.floor(x)]
    limit = np.where(x > 0, 0x7FFFFFFF, -0x80000000)
    z = [np.rint(x), np.trunc(x), np.ceil(x), np.floor(x), np.where(x == 0, 0, limit)]
    return launch(1, 128, x, want(y, dtype=f32), want(z, dtype=np.int32), 100)


@case
def directed(r):
    x, y = floats(r, 50), floats(r, 50)
    s, p = x.astype(float) + y, x.astype(float) * y

    def between(v):
        down = v.astype(f32)
        down = np.where(down > v, np.nextafter(down, f32(-np.inf)), down)
        return np.where(down == v, f32(0), np.nextafter(down, f32(np.inf)) - down)

    m = p + 1
    z = m.astype(f32)
    z = np.where(abs(z) > abs(m), np.nextafter(z, f32(0)), z)
    return launch(1, 64, x, y, want([between(s), between(p), z, x / y, np.sqrt(abs(x))], dtype=f32, tol=1e-7), 50)


@case
def classes(r):
    x = np.array([0, -0.0, 1, -1, np.nan, np.inf, -np.inf, 1e-40, 3e38, -1e-39], f32)
    y = np.isnan(x) | np.isinf(x) << 1 | np.isfinite(x) << 2 | np.signbit(x) << 3 | (x == 0) << 4
    return launch(1, 32, x, want(y | (x < f32(1e-38)) << 5, dtype=np.int32), 10)


@case
def subnormal(r):
    x = floats(r, 40)
    y = ((x * f32(1e-20)).astype(f32) * f32(1e-20)).astype(f32) * f32(1e20)
    return launch(1, 64, x, want(y, tol=1e-7), 40)


@case
def integers(r):
    a, b = ints(r, 0, 1 << 32, 100, dtype=np.uint32), ints(r, 0, 1 << 32, 100, dtype=np.uint32)

    def one(a, b):
        s, t, u = a - (a >> 31 << 32), b - (b >> 31 << 32), b | 1
        su = u - (u >> 31 << 32)
        pool = [(w >> 8 * k) & 255 for w in (a, b) for k in range(4)]
        perm = sum(pool[k] << 8 * j for j, k in enumerate((0, 4, 1, 5)))
        left, right = ((b << 32 | a) << (a & 31)) >> 32, (b << 32 | a) >> (b & 31)
        quotient = abs(s) // abs(su) * (1 if (s < 0) == (su < 0) else -1)
        low = (a & -a).bit_length()
        return [32 - a.bit_length(), a.bit_count(), int(f"{a:032b}"[::-1], 2), low, perm, left, right, a * b >> 32,
                s * t >> 32, a // u, a % u, quotient, abs(a - b) + 5, (a & 0xFFFFFF) * (b & 0xFFFFFF), abs(s), max(s, t)]

    z = np.array([[v & 0xFFFFFFFF for v in one(int(x), int(y))] for x, y in zip(a, b)], np.uint32).T
    return launch(1, 128, a, b, want(z), 100)


@case
def long_integers(r):
    a = ints(r, -(1 << 62), 1 << 62, 60, dtype=np.int64)
    b = ints(r, -(1 << 40), 1 << 40, 60, dtype=np.int64)

    def one(a, b):
        b |= 1
        q, mask = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1), (1 << 64) - 1
        u, v = a & mask, b & mask
        bits = [64 - u.bit_length(), u.bit_count(), int(f"{u:064b}"[::-1], 2)]
        return [q, a - q * b, u // v, a * b >> 64, *bits, a << (v & 63), a >> (v & 63), a * b]

    z = np.array([[v & ((1 << 64) - 1) for v in one(int(x), int(y))] for x, y in zip(a, b)], np.uint64)
    return launch(1, 64, a, b, want(z.T.view(np.int64)), 60)


@case
def wide_product(r):
    x = ints(r, 0, 1 << 63, 40, dtype=np.uint64)
    p = [int(a) * int(b) + int(a) for a, b in zip(x, np.roll(x, -1))]
    return launch(1, 64, x, want([[v & ((1 << 64) - 1), v >> 64] for v in p], dtype=np.uint64), 40)


@case
def bytes_in_words(r):
    x, y = ints(r, 0, 256, 80, 4, dtype=np.uint8), ints(r, 0, 256, 80, 4, dtype=np.uint8)
    a, b = x.astype(int), y.astype(int)
    s, t = x.view(np.uint16).astype(int), y.view(np.uint16).astype(int)
    z = [a + b, a - b, np.maximum(a, b), np.minimum(x.view(np.int8), y.view(np.int8)).astype(int), abs(a - b), (a + b + 1) // 2]
    z = [(v & 255).astype(np.uint8) for v in z] + [np.where(a > b, 255, 0).astype(np.uint8)]
    z += [np.minimum(s + t, 65535).astype(np.uint16)]
    return launch(1, 128, x, y, want([np.ascontiguousarray(v).view(np.uint32)[:, 0] for v in z]), 80)


@case
def bit_fields(r):
    x = ints(r, 0, 1 << 32, 60, dtype=np.uint32)
    low, middle, high = x & 31, x >> 5 & 0x1FFF, x.view(np.int32) >> 18
    z = low | (middle + 1 & 0x1FFF) << 5 | (-low.astype(np.int32)).view(np.uint32) << 18
    return launch(1, 64, x, want(np.c_[low, middle, high], dtype=np.int32), want(z), 60)


@case
def half_arithmetic(r):
    x, y = floats(r, 90, dtype=np.float16), floats(r, 90, dtype=np.float16)
    v, w = x.astype(float), y.astype(float)
    z = [v + w, v - w, v * w, v / w, v * w + v, -v, abs(w), np.maximum(v, w), np.minimum(v, w), np.sqrt(abs(v))]
    z += [np.floor(v), np.ceil(w), np.maximum(v, w), v * float(np.float16(0.1))]
    return launch(1, 96, x, y, want(z, dtype=np.float16, tol=1e-3), 90)


@case
def half_functions(r):
    x = floats(r, 60, dtype=np.float16)
    v, a = x.astype(float), abs(x.astype(float))
    z = [np.exp(v), np.exp2(v), np.log(a), np.sin(v), np.cos(v), 1 / v, a**-0.5, np.tanh(v)]
    return launch(1, 64, x, want(z, dtype=f32, tol=2e-3), 60)


@case
def half_pairs(r):
    x, y = floats(r, 70, 2, dtype=np.float16), floats(r, 70, 2, dtype=np.float16)
    v, w = x.astype(float), y.astype(float)
    sum = (v + w[:, ::-1]).astype(np.float16)
    z = [v * w + sum, np.maximum(v, w), v * w[:, 1:]]
    return launch(1, 96, x, y, want(z, dtype=np.float16, tol=1e-3), 70)


@case
def bf16_arithmetic(r):
    x, y = to_bf16(floats(r, 80)), to_bf16(floats(r, 80))
    v, w = from_bf16(x), from_bf16(y)
    z = [v + w, v - w, v * w, (v.astype(float) * w + v).astype(f32), np.maximum(v, w), -v]
    return launch(1, 96, x, y, want(from_bf16(to_bf16(z)), tol=0), 80)


@case
def from_float(r):
    x = np.r_[floats(r, 60), 300 * floats(r, 60), 1e-3 * floats(r, 60)]

    def encode(values):
        return nearest(values.astype(float), x).astype(np.uint8) | np.signbit(x).astype(np.uint8) << 7

    e, f = encode(from_e4m3(np.arange(0x7F))), encode(from_e5m2(np.arange(0x7C)))
    return launch(2, 96, x, want(x.astype(np.float16), tol=0), want(to_bf16(x)), want(e), want(f), 180)


@case
def from_fp8(r):
    x = np.arange(256).astype(np.uint8)
    e, f = from_e4m3(x), from_e5m2(x)
    e[[0x7F, 0xFF]] = np.nan
    f[[0x7C, 0xFC]] = np.inf, -np.inf
    f[[0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF]] = np.nan
    return launch(2, 128, x, x, want([e, f], tol=0), 256)


@case
def fp8_pairs(r):
    x = ints(r, 0, 0x70, 4 * 30, dtype=np.uint8)
    return launch(1, 32, x, want(from_e4m3(x), tol=0), 30)


@case
def between_integers(r):
    x = ints(r, -(1 << 31), 1 << 31, 70)
    y = [x.astype(t) for t in (np.int8, np.uint8, np.int16, np.uint16, np.uint32)]
    return launch(1, 96, x, want(np.stack([v.astype(np.int64) for v in y] + [3 * x.astype(np.int64)], 1)), 70)


@case
def complex_powers(r):
    x = floats(r, 50, 2)
    z = (x[:, 0] + 1j * x[:, 1].astype(float)) ** 5
    return launch(1, 64, x, want(np.c_[z.real, z.imag], dtype=f32), 50)


@case
def fft(r):
    x = floats(r, 64, 2)
    z = np.fft.fft(x[:, 0] + 1j * x[:, 1])
    return launch(1, 32, x, want(np.c_[z.real, z.imag], dtype=f32))


@case
def recursion(r):
    x = ints(r, 0, 20, 40)
    return launch(1, 64, x, want([math.factorial(v) for v in x], dtype=np.int64), 40)


@case
def virtual_calls(r):
    x = floats(r, 70)
    return launch(1, 96, x, want(np.where(x > 0, x * x, 3 * x * x)), 70)


@case
def switches(r):
    x = ints(r, 0, 1000, 100)
    m = x % 8
    y = [x * 3, x + 100, (x ^ 0x55) - 7, x - 7, x << 2, -x, x // 3]
    return launch(1, 128, x, want(np.select([m == k for k in range(7)], y, 1), dtype=np.int32), 100)


@case
def random_numbers(r):
    seed, y = ints(r, 0, 1 << 63, 30, dtype=np.uint64), []
    s = seed
    for _ in range(4):
        s = s * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
        x, n = ((s >> np.uint64(18) ^ s) >> np.uint64(27)).astype(np.uint32), (s >> np.uint64(59)).astype(np.uint32)
        y.append(x >> n | x << (-n & np.uint32(31)))
    return launch(1, 32, seed, want(np.stack(y, 1)), 30)
