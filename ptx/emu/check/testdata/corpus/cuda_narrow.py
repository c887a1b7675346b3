"""Cases of narrow.cu: floats of 4 and 6 bits, and scales."""

import numpy as np

from corpus import cuda, floats, from_fp8, launch, nearest, want

case = cuda("narrow.cu")


@case
def narrow_floats(r):
    x = 4 * floats(r, 100, 2)
    x[:8] = [[0.25, 0.75], [-2.5, 5], [6.5, -7.25], [-0.0, 1e30], [0.0625, 0.1875], [-3.5, 24], [26, -30], [2, 4]]

    def rounded(exponent, mantissa):
        values = from_fp8(np.arange(1 << (exponent + mantissa)), exponent, mantissa)
        return np.copysign(values[nearest(values, x)], x)

    with np.errstate(divide="ignore"):
        scale = np.exp2(np.clip(np.ceil(np.log2(abs(x))), -127, 127)).astype(np.float32)
    return launch(4, 32, x, want([rounded(2, 1), rounded(2, 3), rounded(3, 2), scale], tol=0), 100)
