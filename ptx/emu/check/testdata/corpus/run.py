#!/usr/bin/env python3
"""Compiles the kernels of this folder, runs each on the emulator with all checkers, and compares the
results with NumPy's.

Needs nvcc and the packages numpy, triton, numba-cuda and nvidia-cuda-nvrtc. With clang, it compiles
the CUDA C kernels a second time. The exit code is 1 if a kernel does not compile, if a result is
wrong, if the checkers report an error, or if more than 2 % of the runs are refused.
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import importlib
import json
import multiprocessing
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

import numpy as np

import corpus

here = pathlib.Path(__file__).parent
modules = [path.stem for path in sorted(here.glob("*_*.py"))]

# The builds of .cu files by nvcc and clang, and the architectures of those that need more than sm_80.
builds = {"O3": ["-O3", "-lineinfo"], "G": ["-G"]}
clang_builds = {"clang O0": ["-O0"], "clang O3": ["-O3", "-gline-tables-only"]}
archs = {"gemm.cu": "sm_90a", "types.cu": "sm_90a", "sync.cu": "sm_90a", "tensor.cu": "sm_100a", "narrow.cu": "sm_100a",
         "pipeline.cu": "sm_90"}


def load():
    """Loads the cases."""
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # Triton warns if it is not set
    for module in modules:
        importlib.import_module(module)


def type_name(dtype):
    dtype = np.dtype(dtype)
    return f"{dict(f='f', i='s', u='u')[dtype.kind]}{8 * dtype.itemsize}"


def dims(sides):
    return "x".join(map(str, sides)) if isinstance(sides, tuple) else str(sides)


class Script:
    """The memory and launches of a case, as a script of tilework emulate."""

    def __init__(self, folder):
        self.folder, self.memory, self.launches, self.wants, self.names = folder, {}, [], {}, {}

    def name(self, value):
        """Returns the name of the memory of an argument, and declares it."""
        if id(value) in self.names:
            return self.names[id(value)][0]
        name = f"m{len(self.names)}"
        self.names[id(value)] = name, value  # keeps the value, so that no other one gets its id
        path = self.folder / name
        if isinstance(value, corpus.Scratch):
            text = f"scratch:{type_name(value.dtype)}:{value.size}"
        elif isinstance(value, np.ndarray):
            np.save(f"{path}.npy", np.ascontiguousarray(value))
            text = f"{path}.npy"
        else:
            result = f"{path}.out.npy"
            self.wants[result] = value
            if value.start is None:
                text = f"out:{type_name(value.array.dtype)}:{dims(value.array.shape)}:{result}"
            else:
                np.save(f"{path}.npy", np.ascontiguousarray(value.start))
                text = f"inout:{path}.npy:{result}"
        self.memory[name] = text
        return name

    def arg(self, value):
        match value:
            case corpus.Tensor():
                return f"tensor:{dims(value.box)}:{value.swizzle}:memory:{self.name(value.of)}"
            case corpus.Struct():
                return "struct:" + ",".join(map(self.arg, value.fields))
            case np.ndarray() | corpus.Want() | corpus.Scratch():
                return f"memory:{self.name(value)}"
            case np.generic():
                return f"{type_name(value.dtype)}:{value}"
            case int():
                return f"s32:{value}"
            case float():
                return f"f32:{value}"
        raise TypeError(f"an argument of type {type(value)}")

    def add(self, launch):
        described = {
            "entry": launch.kernel,
            "grid": dims(launch.grid),
            "block": dims(launch.block),
            "smem": str(launch.smem),
            "args": [self.arg(a) for a in launch.args],
        }
        if launch.cluster:
            described["cluster"] = dims(launch.cluster)
        self.launches.append(described)

    def write(self, path):
        path.write_text(json.dumps({"memory": self.memory, "launches": self.launches}))


def difference(path, want):
    """Returns how the result differs from the wanted one, or None."""
    got = np.load(path).reshape(want.array.shape)
    if want.check:
        return want.check(got)
    if got.dtype.kind == "f":
        exact = want.array.astype(np.float64)
        most = np.max(np.abs(exact), initial=0, where=np.isfinite(exact))
        equal = np.isclose(got.astype(np.float64), exact, rtol=want.tol, atol=want.tol * most, equal_nan=True)
    else:
        equal = got == want.array
    if not equal.all():
        i = np.flatnonzero(~equal)[0]
        return f"{np.sum(~equal)} elements differ: element {i} is {got.flat[i]}, want {want.array.flat[i]}"


def run(tilework, case, compiled, seed):
    """Runs a case. Returns its outcome (ok, refused, wrong or alarm) and the details."""
    ptx, properties = compiled
    launches = case.launches(np.random.default_rng(seed))
    with tempfile.TemporaryDirectory() as folder:
        script = Script(pathlib.Path(folder))
        for launch in launches if isinstance(launches, list) else [launches]:
            if properties:
                args = sys.modules[f"{case.source}_compiler"].arguments(launch.args)
                launch = dataclasses.replace(launch, args=args, **properties)
            elif launch.kernel is None:
                launch = dataclasses.replace(launch, kernel=case.name)
            script.add(launch)
        file = pathlib.Path(folder) / "script.json"
        script.write(file)
        command = [tilework, "emulate", ptx, "--script", file, "--format", "json", "--seed", str(seed)]
        command += ["--workers", "1", "--max-instructions", "20000000"]
        p = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if p.returncode not in (0, 1):
            return "refused", p.stderr
        for result in json.loads(p.stdout)["launches"]:
            errors = [f"{f['place']}: {f['message']}" for f in result["findings"] if f["severity"] == "error"]
            if errors or "failure" in result:
                return "alarm", "\n".join([result.get("failure", ""), *errors])
        for path, want in script.wants.items():
            if text := difference(path, want):
                return "wrong", text
    return "ok", ""


def compile_cuda(o, source, build, folder):
    """Compiles a .cu file and returns the path of the PTX."""
    to = folder / f"{pathlib.Path(source).stem}.{build.replace(' ', '-')}.ptx"
    arch = archs.get(source, "sm_80")
    if build in builds:
        command = [o.nvcc, "-w", "-ptx", f"-arch={arch}", *builds[build]]
    else:
        cuda = pathlib.Path(o.nvcc).parent.parent
        command = [o.clang, "-w", "-x", "cuda", f"--cuda-gpu-arch={arch}", "--cuda-device-only", f"--cuda-path={cuda}"]
        command += ["-S", f"-I{here}/clang", f"-I{cuda}/include/cccl", *clang_builds[build]]
        command += ["-D_CG_CLUSTER_INTRINSICS_AVAILABLE"]  # cooperative groups test for nvcc
    command += [str(here / source), "-o", str(to)]
    p = subprocess.run(command, capture_output=True, text=True)
    if p.returncode:
        raise RuntimeError(f"{' '.join(command)}: {p.stdout}{p.stderr}")
    return to, None


def compile_python(number, build, folder):
    """Compiles the kernel of a case in Triton or Numba.

    Returns the path of the PTX and the properties of the launch that the compiler has chosen.
    """
    case = corpus.cases[number]
    to = folder / f"{case.source}.{case.name}.{build}.ptx"
    launch = case.launches(np.random.default_rng(0))
    return to, sys.modules[f"{case.source}_compiler"].compile(launch, build, to)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tilework", required=True, help="the command")
    parser.add_argument("--nvcc", required=True, help="the CUDA compiler")
    parser.add_argument("--clang", help="clang of version 22, which compiles the .cu files too, with nvcc's headers")
    parser.add_argument("--seeds", type=int, default=2, help="runs of each kernel and build but clang's, with other data and schedules")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--builds", type=int, help="run each kernel in so many builds, which the first seed selects, instead of all")
    parser.add_argument("--only", default="", help="run the cases whose name contains this")
    parser.add_argument("--ptx", help="keep the PTX in this folder")
    o = parser.parse_args()

    start = time.time()
    load()
    with (
        tempfile.TemporaryDirectory() as temporary,
        concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as threads,
        # Triton and Numba hold Python's lock. Forked processes could inherit a lock of the threads.
        concurrent.futures.ProcessPoolExecutor(
            os.cpu_count(), mp_context=multiprocessing.get_context("spawn"), initializer=load
        ) as processes,
    ):
        os.environ["TRITON_CACHE_DIR"] = f"{temporary}/triton"
        folder = pathlib.Path(o.ptx or temporary)
        files, compilations = {}, {}
        cuda_builds = [*builds, *(clang_builds if o.clang else [])]
        for number, case in enumerate(corpus.cases):
            if o.only not in f"{case.source} {case.name}":
                continue
            all_builds = list(case.builds or cuda_builds)
            chosen = random.Random(f"{o.seed} {case.source} {case.name}").sample(all_builds, len(all_builds))
            for build in chosen[: o.builds]:
                if case.builds:
                    file = processes.submit(compile_python, number, build, folder)
                elif (case.source, build) in files:
                    file = files[case.source, build]
                else:
                    file = files[case.source, build] = threads.submit(compile_cuda, o, case.source, build, folder)
                seeds = 1 if build in clang_builds else o.seeds
                compilations[f"{case.source} {case.name} {build}"] = case, file, seeds
        outcomes, jobs = collections.Counter(), {}
        for name, (case, file, seeds) in compilations.items():
            try:
                for seed in range(o.seed, o.seed + seeds):
                    jobs[f"{name} seed {seed}"] = threads.submit(run, o.tilework, case, file.result(), seed)
            except Exception as e:
                outcomes["not compiled"] += 1
                print(f"{name}: not compiled: {e}")
        for name, job in jobs.items():
            outcome, text = job.result()
            outcomes[outcome] += 1
            if outcome != "ok":
                print(f"{name}: {outcome}: {text}")
    kernels, total = len({id(case) for case, *_ in compilations.values()}), sum(outcomes.values())
    print(f"{kernels} kernels, {total} runs in {time.time() - start:.0f} s: {dict(outcomes)}")
    failed = outcomes["not compiled"] + outcomes["wrong"] + outcomes["alarm"]
    return 1 if failed or outcomes["refused"] > total // 50 or not total else 0


if __name__ == "__main__":
    sys.exit(main())
