"""Writes the files that the tests read, with NumPy, SciPy and safetensors.

    pip install numpy scipy safetensors ml_dtypes
    python make.py    # in this folder

Unless it says otherwise, a matrix is 3x5 and element (i, j) is
(7i + 3j) mod 23 - 11 for integers, 11 more for unsigned ones, and a quarter of
that for the other types. Only e5m2 rounds it. readback.py and the Go tests
know the same rule.
"""

import gzip

import numpy as np
import scipy.io
import scipy.sparse
from ml_dtypes import bfloat16, float8_e4m3fn, float8_e5m2
from safetensors.numpy import save_file


def matrix(dtype, rows=3, cols=5):
    i, j = np.indices((rows, cols))
    v = (7 * i + 3 * j) % 23 - 11
    return {"i": v, "u": v + 11}.get(np.dtype(dtype).kind, v / 4).astype(dtype)


def npy():
    for name, code in [("f64", "f8"), ("f32", "f4"), ("f16", "f2"), ("i32", "i4"), ("i8", "i1"), ("u8", "u1")]:
        for order, byte in [("le", "<"), ("be", ">")]:
            a = matrix(code).astype(byte + code)
            np.save(f"{name}-{order}-c.npy", a)
            np.save(f"{name}-{order}-fortran.npy", np.asfortranarray(a))
    for version in 1, 2, 3:
        with open(f"version{version}.npy", "wb") as f:
            np.lib.format.write_array(f, matrix("f4"), version=(version, 0))
    special = [np.nan, np.inf, -np.inf, -0.0, 5e-324, 1.7976931348623157e308, 0.1, -1 / 3]
    np.save("special.npy", np.array([special]))
    np.save("vector.npy", matrix("f4", 1, 5)[0])
    np.save("column.npy", matrix("f4", 5, 1))
    np.save("scalar.npy", np.float32(1))
    np.save("cube.npy", np.zeros((2, 2, 2), "f4"))
    np.save("empty.npy", np.zeros((0, 3), "f4"))
    np.save("complex.npy", matrix("f8").astype("c16"))
    np.save("bool.npy", matrix("f8") > 0)
    np.save("i64.npy", matrix(np.int64))
    np.save("text.npy", np.array([["a", "b"]]))
    np.save("object.npy", np.array([[None, 1]]), allow_pickle=True)
    np.save("struct.npy", np.zeros((2, 2), [("x", "f4"), ("y", "f4")]))
    for name, t in [("bf16", bfloat16), ("e4m3", float8_e4m3fn), ("e5m2", float8_e5m2)]:
        np.save(f"{name}.npy", matrix("f8").astype(t))
    with gzip.GzipFile("f32.npy.gz", "wb", mtime=0) as f:
        np.save(f, matrix("f4"))


def npz():
    np.savez("stored.npz", a=matrix("f4"))
    np.savez_compressed("deflated.npz", a=matrix("f8"))
    np.savez_compressed("bias.npz", w=matrix("f4"), bias=matrix("f4", 1, 5)[0], names=np.array(["x"]))
    np.savez("several.npz", a=matrix("f4"), b=np.asfortranarray(matrix(">f8")), i=matrix("i1"))
    np.savez("none.npz")


def safetensors():
    save_file({"a": matrix("f4")}, "one.safetensors")
    types = {"f64": "f8", "f32": "f4", "f16": "f2", "bf16": bfloat16, "i8": "i1", "i32": "i4", "i64": np.int64}
    all_types = {f"layer.0.{name}": matrix(t) for name, t in types.items()}
    all_types["layer.0.u8"] = np.zeros((3, 5), "u1")
    all_types["layer.0.bias"] = matrix("f4", 1, 5)[0]
    all_types["layer.0.none"] = np.zeros((0, 4), "f4")
    save_file(all_types, "all.safetensors", metadata={"format": "np", "note": 'a "quoted" word'})
    save_file({"w": matrix(bfloat16), "bias": matrix(bfloat16, 1, 5)[0]}, "bias.safetensors")


def mtx():
    scipy.io.mmwrite("array-real.mtx", matrix("f8"), comment="one line\nand another")
    scipy.io.mmwrite("array-integer.mtx", matrix("i4"))
    i, j = np.indices((4, 4))
    symmetric = ((7 * np.maximum(i, j) + 3 * np.minimum(i, j)) % 23 - 11) / 4
    skew = (i - j) * (i + j + 1)
    scipy.io.mmwrite("array-symmetric.mtx", symmetric)
    scipy.io.mmwrite("array-skew.mtx", skew)
    coo = scipy.sparse.coo_array
    scipy.io.mmwrite("coordinate-real.mtx", coo(matrix("f8")))
    scipy.io.mmwrite("coordinate-integer.mtx", coo(matrix("i4")))
    scipy.io.mmwrite("coordinate-symmetric.mtx", coo(symmetric))
    scipy.io.mmwrite("coordinate-skew.mtx", coo(skew))
    scipy.io.mmwrite("coordinate-pattern.mtx", coo(((i + j) % 2 == 0).astype("f8")), field="pattern")
    once = coo(matrix("f8"))
    row, col = once.coords
    twice = coo((np.r_[once.data / 2, once.data / 2], (np.r_[row, row], np.r_[col, col])), shape=once.shape)
    scipy.io.mmwrite("coordinate-twice.mtx", twice)
    scipy.io.mmwrite("coordinate-complex.mtx", coo(matrix("c16")))
    special = [np.nan, np.inf, -np.inf, -0.0, 5e-324, 1.7976931348623157e308, 0.1, -1 / 3]
    scipy.io.mmwrite("special.mtx", np.array([special]), precision=17)
    with gzip.GzipFile("coordinate-real.mtx.gz", "wb", mtime=0) as f:
        scipy.io.mmwrite(f, coo(matrix("f8")))


def csv():
    a = matrix("f8")
    np.savetxt("comma.csv", a, delimiter=",", fmt="%g")
    np.savetxt("full.csv", a, delimiter=", ")
    np.savetxt("tab.csv", a, delimiter="\t", fmt="%g")
    np.savetxt("windows.csv", a, delimiter=",", fmt="%g", newline="\r\n", encoding="utf-8-sig")
    np.savetxt("integer.csv", matrix("i4"), delimiter=",", fmt="%d")
    np.savetxt("exponents.txt", a, header="a comment")
    np.savetxt("tab.tsv", a, delimiter="\t", fmt="%g", encoding="utf-16")
    np.savetxt("header.csv", a, delimiter=",", fmt="%g", header="a,b,c,d,e", comments="")


for write in npy, npz, safetensors, mtx, csv:
    write()
