#!/bin/sh
# Compiles the kernels of this folder to PTX, optimised and as debug builds, for the
# architectures that matter. Needs nvcc on PATH or in NVCC; what is committed came
# from CUDA 13.
set -eu
cd "$(dirname "$0")"
nvcc=${NVCC:-nvcc}

compile() { # source, architecture, name of the flags, flags
	src=$1 arch=$2 name=$3
	shift 3
	"$nvcc" -ptx -arch="sm_$arch" "$@" "$src" -o "${src%.cu}.sm_$arch.$name.ptx"
}

for src in matmul.cu reduce.cu calls.cu half.cu barriers.cu; do
	compile $src 80 O3 -O3
	compile $src 75 O0 -O0 -Xcicc -O0
	compile $src 90 G -G
done
for src in matmul.cu calls.cu barriers.cu; do
	compile $src 90 lineinfo -O3 -lineinfo
done
compile matmul.cu 80 fast -O3 -use_fast_math
compile hopper.cu 90 O3 -O3 -std=c++17
