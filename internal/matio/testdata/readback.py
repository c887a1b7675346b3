"""Reads the files in a folder with NumPy, SciPy and safetensors, and checks them.

    python readback.py FOLDER

A file is named TYPE-ROWSxCOLS-anything.EXT and holds the matrix that make.py
describes, rounded to its type, under the name "c" where the format has names.
It exits with 1 and one line for each file that is not so, and prints the number
of files.
"""

import pathlib
import sys

import numpy as np
import scipy.io
from ml_dtypes import bfloat16, float8_e4m3fn, float8_e5m2
from safetensors import deserialize

TYPES = {
    "f64": "f8", "f32": "f4", "f16": "f2", "bf16": bfloat16, "e4m3": float8_e4m3fn, "e5m2": float8_e5m2,
    "i8": "i1", "u8": "u1", "i32": "i4",
}
# safetensors.numpy cannot load 8-bit floats.
SAFETENSORS = {
    "F64": "f8", "F32": "f4", "F16": "f2", "BF16": bfloat16, "F8_E4M3": float8_e4m3fn, "F8_E5M2": float8_e5m2,
    "I8": "i1", "U8": "u1", "I32": "i4",
}
TEXT = {".mtx", ".csv"}


def tensor(t):
    return np.frombuffer(t["data"], SAFETENSORS[t["dtype"]]).reshape(t["shape"])


READ = {
    ".npy": lambda path: np.load(path),
    ".npz": lambda path: np.load(path)["c"],
    ".safetensors": lambda path: tensor(dict(deserialize(path.read_bytes()))["c"]),
    ".mtx": lambda path: scipy.io.mmread(path),
    ".csv": lambda path: np.loadtxt(path, delimiter=",", ndmin=2),
}


def check(path):
    kind, shape = path.name.split("-")[:2]
    rows, cols = map(int, shape.split("x"))
    i, j = np.indices((rows, cols))
    want = (7 * i + 3 * j) % 23 - 11
    dtype = np.dtype(TYPES[kind])
    want = {"i": want, "u": want + 11}.get(dtype.kind, want / 4).astype(dtype).astype("f8")
    got = READ[path.suffix](path)
    if path.suffix not in TEXT and got.dtype != dtype:
        return f"{path.name}: {got.dtype}, want {dtype}"
    if got.shape != (rows, cols):
        return f"{path.name}: shape {got.shape}, want {(rows, cols)}"
    if not np.array_equal(got.astype("f8"), want):
        return f"{path.name}: {got}, want {want}"
    return None


paths = sorted(pathlib.Path(sys.argv[1]).iterdir())
wrong = [message for message in map(check, paths) if message]
print(*wrong, f"{len(paths)} files", sep="\n")
sys.exit(1 if wrong or not paths else 0)
