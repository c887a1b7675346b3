import math

import numpy as np

from corpus import cuda, floats, from_bf16, ints, launch, to_bf16, want

case = cuda("layers.cu")


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def standard(x, axis=-1):
    return (x - x.mean(axis, keepdims=True)) / np.sqrt(x.var(axis, keepdims=True) + 1e-5)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


erf = np.vectorize(math.erf)


@case
def softmax_of_warps(r):
    x = floats(r, 5, 100)
    return launch(2, (32, 4), x, want(softmax(x)), 5, 100)


@case
def softmax_of_blocks(r):
    x = floats(r, 3, 200)
    return launch(3, 128, x, want(softmax(x)), 200)


@case
def softmax_online(r):
    x = floats(r, 3, 75)
    return launch(3, 32, x, want(softmax(x)), 75)


@case
def softmax_half(r):
    x = floats(r, 4, 100, dtype=np.float16)
    return launch(4, 128, x, want(softmax(x.astype(np.float32)), dtype=np.float16, tol=1e-3), 50)


@case
def layer_norm(r):
    x, gain, bias = floats(r, 4, 300), floats(r, 300), floats(r, 300)
    return launch(4, 128, x, gain, bias, want(standard(x) * gain + bias), 300)


@case
def rms_norm(r):
    x, gain = to_bf16(floats(r, 3, 260)), to_bf16(floats(r, 260))
    v = from_bf16(x)
    y = v / np.sqrt(np.square(v).mean(1, keepdims=True) + 1e-6) * from_bf16(gain)

    def check(bits):
        if not np.allclose(from_bf16(bits), y, rtol=0.01, atol=1e-6):
            return "other elements"

    return launch(3, 128, x, gain, want(to_bf16(y), check=check), 260)


@case
def layer_norm_gradient(r):
    x, dy = floats(r, 30, 50), floats(r, 30, 50)
    return launch(2, (32, 4), x, dy, want((x * dy).sum(0)), want(dy.sum(0)), 30, 50)


@case
def gelu(r):
    x = 2 * floats(r, 200)
    return launch(2, 128, x, want(0.5 * x * (1 + erf(x / 2**0.5)), dtype=np.float32), 200)


@case
def gelu_tanh(r):
    x = 2 * floats(r, 200)
    return launch(2, 128, x, want(0.5 * x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3))), dtype=np.float32), 200)


@case
def swiglu(r):
    g, u = floats(r, 200, dtype=np.float16), floats(r, 200, dtype=np.float16)
    v = g.astype(np.float32)
    return launch(1, 128, g, u, want(v * sigmoid(v) * u, dtype=np.float16, tol=1e-3), 100)


@case
def rope(r):
    x = floats(r, 6, 2, 16, 2)
    angle = np.arange(6)[:, None] * 10000.0 ** (-np.arange(16) / 16)
    z = (x[..., 0] + 1j * x[..., 1]) * np.exp(1j * angle)[:, None, :]
    return launch(6, (16, 2), want(np.stack([z.real, z.imag], -1), start=x, dtype=np.float32), 2, 16)


@case
def cross_entropy(r):
    x, label = floats(r, 6, 90), ints(r, 0, 90, 6)
    return launch(6, 32, x, label, want(-np.log(softmax(x)[range(6), label])), 90)


@case
def embedding(r):
    token, table, position = ints(r, 0, 20, 7), floats(r, 20, 64), floats(r, 7, 64)
    return launch(7, 16, token, table, position, want(table[token] + position), 16)


@case
def embedding_gradient(r):
    token, dy, table = ints(r, 0, 5, 9), floats(r, 9, 48), np.zeros((5, 48), np.float32)
    np.add.at(table, token, dy)
    return launch(9, 48, token, dy, want(table, start=0 * table), 48)


@case
def attention(r):
    q, k, v = floats(r, 40, 24), floats(r, 40, 24), floats(r, 40, 24)
    s = np.where(np.tri(40), q @ k.T / 24**0.5, -np.inf)
    return launch(40, 32, q, k, v, want(softmax(s) @ v, dtype=np.float32), 40, 24, smem=160)


@case
def flash_attention(r):
    q, k, v = floats(r, 24, 32), floats(r, 24, 32), floats(r, 24, 32)
    return launch(2, (16, 4), q, k, v, want(softmax(q @ k.T / 32**0.5) @ v), 24)


@case
def dropout(r):
    x, seed = floats(r, 300), int(r.integers(1, 1 << 30))
    h = (np.arange(300) ^ seed).astype(np.uint32)
    h ^= h >> 16
    h *= np.uint32(0x7FEB352D)
    h ^= h >> 15
    h *= np.uint32(0x846CA68B)
    h ^= h >> 16
    return launch(3, 128, x, want(np.where(h < 0x40000000, 0, x * np.float32(4 / 3))), np.uint32(seed), 300)


@case
def max_pool(r):
    x = floats(r, 20, 36)
    return launch((2, 1), (16, 16), x, want(x.reshape(10, 2, 18, 2).max((1, 3))), 20, 36)


@case
def adam(r):
    w, g, m, v = floats(r, 100), floats(r, 100), floats(r, 100), np.square(floats(r, 100))
    m1, v1 = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    w1 = w - 0.01 * (m1 / (1 - 0.9**3)) / (np.sqrt(v1 / (1 - 0.999**3)) + 1e-8)
    args = [want(a, start=b, dtype=np.float32, tol=1e-4) for a, b in ((m1, m), (v1, v))]
    return launch(1, 128, want(w1, start=w, dtype=np.float32, tol=1e-4), g, *args, 0.01, 3, 100)


@case
def quantise(r):
    x = floats(r, 4, 150)
    most = abs(x).max(1, keepdims=True)
    y = np.rint(x * (127 / most)).astype(np.int8)
    return launch(4, 128, x, want(y), want(most[:, 0] / 127), 150)


@case
def batch_norm(r):
    x = floats(r, 4, 3, 50)
    return launch(3, 128, x, want(standard(x, (0, 2)), tol=1e-4), 4, 3, 50)
