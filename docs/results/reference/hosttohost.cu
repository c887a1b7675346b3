// Times the host function of every introduction: reserve, copy, launch, copy back, give
// back, with the plain kernel and memory that came from malloc.
//
//	hosttohost N…
//
// prints a line for each: N, milliseconds of the whole, and of it those of reserving,
// of the copies there, of the kernel and of the copy back; medians of 9 after 2.

#include "ladder.cu"

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                                                    \
	do {                                                                                               \
		cudaError_t status = (call);                                                                   \
		if (status != cudaSuccess) {                                                                   \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(status)); \
			exit(1);                                                                                   \
		}                                                                                              \
	} while (0)

static double now() {
	return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// multiply adds the times of its steps to laps.
static void multiply(const T *A, const T *B, T *C, int n, std::vector<double> laps[5]) {
	size_t bytes = sizeof(T) * n * n;
	T *a, *b, *c;
	double start = now(), last = start;
	auto lap = [&](int i) {
		double t = now();
		laps[i].push_back(t - last);
		last = t;
	};
	CHECK(cudaMalloc(&a, bytes));
	CHECK(cudaMalloc(&b, bytes));
	CHECK(cudaMalloc(&c, bytes));
	lap(1);
	CHECK(cudaMemcpy(a, A, bytes, cudaMemcpyHostToDevice));
	CHECK(cudaMemcpy(b, B, bytes, cudaMemcpyHostToDevice));
	lap(2);
	dim3 block(16, 16), grid((n + 15) / 16, (n + 15) / 16);
	naive<<<grid, block>>>(a, b, c, n, n, n, n, n, n, 1, 0);
	CHECK(cudaGetLastError());
	CHECK(cudaDeviceSynchronize());
	lap(3);
	CHECK(cudaMemcpy(C, c, bytes, cudaMemcpyDeviceToHost));
	lap(4);
	CHECK(cudaFree(a));
	CHECK(cudaFree(b));
	CHECK(cudaFree(c));
	laps[0].push_back(now() - start);
}

int main(int argc, char **argv) {
	for (int i = 1; i < argc; i++) {
		int n = atoi(argv[i]);
		if (n < 1) {
			fprintf(stderr, "%s: want a size\n", argv[i]);
			return 2;
		}
		std::vector<T> A((size_t)n * n), B(A.size()), C(A.size());
		for (auto *m : {&A, &B})
			for (T &v : *m) v = (T)(2.0 * rand() / RAND_MAX - 1);
		std::vector<double> laps[5];
		for (int j = 0; j < 2; j++) multiply(A.data(), B.data(), C.data(), n, laps);
		for (auto &l : laps) l.clear();
		for (int j = 0; j < 9; j++) multiply(A.data(), B.data(), C.data(), n, laps);
		printf("%d", n);
		for (auto &l : laps) {
			std::sort(l.begin(), l.end());
			printf(" %.4f", l[l.size() / 2]);
		}
		printf("\n");
	}
}
