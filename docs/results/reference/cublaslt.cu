// Times cuBLASLt by itself, in plain CUDA C, to hold the figures of `tilework bench`
// against: the best of 8 heuristics with a workspace of 256 MiB, random data in [-1, 1]
// (or ±127), buffers rotated over twice the L2 cache, events, the median of many after
// two seconds of the same.
//
//	cublaslt TYPE:MxNxK…    TYPE: f64 f32 tf32 f16 bf16 i8 (A plain and B transposed)
//
// prints a line for each: type, m, n, k, microseconds, TFLOP/s, number of the heuristic.

#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define CHECK(call)                                                                \
	do {                                                                           \
		int status = (int)(call);                                                  \
		if (status != 0) {                                                         \
			fprintf(stderr, "%s:%d: %s: %d\n", __FILE__, __LINE__, #call, status); \
			exit(1);                                                               \
		}                                                                          \
	} while (0)

struct Type {
	const char *name;
	cudaDataType in, out, scale;
	cublasComputeType_t compute;
	size_t size, outSize;
	bool transB;
};

static const Type types[] = {
	{"f64", CUDA_R_64F, CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F, 8, 8, false},
	{"f32", CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, 4, 4, false},
	{"tf32", CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, 4, 4, false},
	{"f16", CUDA_R_16F, CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F, 2, 2, false},
	{"bf16", CUDA_R_16BF, CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F, 2, 2, false},
	{"i8", CUDA_R_8I, CUDA_R_32I, CUDA_R_32I, CUBLAS_COMPUTE_32I, 1, 4, true},
};

// fill draws n elements by hashing their numbers.
__global__ void fill(void *at, cudaDataType type, size_t n, uint32_t seed) {
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
		uint64_t h = (i + 1) * 0x9E3779B97F4A7C15ull + seed;
		h = (h ^ h >> 30) * 0xBF58476D1CE4E5B9ull;
		h = (h ^ h >> 27) * 0x94D049BB133111EBull;
		double v = (double)((h ^ h >> 31) >> 11) * 0x1p-52 - 1;
		switch (type) {
		case CUDA_R_64F: ((double *)at)[i] = v; break;
		case CUDA_R_32F: ((float *)at)[i] = (float)v; break;
		case CUDA_R_16F: ((__half *)at)[i] = __float2half((float)v); break;
		case CUDA_R_16BF: ((__nv_bfloat16 *)at)[i] = __float2bfloat16((float)v); break;
		default: ((int8_t *)at)[i] = (int8_t)(v * 127.5);
		}
	}
}

// hold keeps the device busy until everything has been asked for.
__global__ void hold(long long nanoseconds) {
	long long start, now;
	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
	do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
	while (now - start < nanoseconds);
}

static const size_t workspaceBytes = 256 << 20;
static const double warmUp = 2; // seconds: the clock follows the power, and that the warmth
static cublasLtHandle_t handle;
static void *workspace;
static cudaEvent_t from, to;
static size_t cache;

// Product is one product and the copies of its matrices.
struct Product {
	cublasLtMatmulDesc_t desc;
	cublasLtMatrixLayout_t a, b, c;
	std::vector<char *> A, B, C;
	union {
		double f64;
		float f32;
		int i32;
	} one = {}, zero = {}; // in the type of the sums
	size_t at = 0;

	int run(const cublasLtMatmulAlgo_t *algo) {
		at = (at + 1) % A.size();
		// Row-major matrices are the transposes of column-major ones: B comes first.
		return cublasLtMatmul(handle, desc, &one, B[at], b, A[at], a, &zero, C[at], c, C[at], c, algo, workspace, workspaceBytes, 0);
	}
	// time is the seconds of one of n products, negative where it is refused.
	double time(const cublasLtMatmulAlgo_t *algo, int n) {
		hold<<<1, 1>>>(20000 + 8000ll * std::min(n, 500));
		CHECK(cudaEventRecord(from));
		for (int i = 0; i < n; i++)
			if (run(algo) != 0) return -1;
		CHECK(cudaEventRecord(to));
		CHECK(cudaEventSynchronize(to));
		float ms;
		CHECK(cudaEventElapsedTime(&ms, from, to));
		return ms * 1e-3 / n;
	}
	double median(const cublasLtMatmulAlgo_t *algo, int n, int reps) {
		std::vector<double> all;
		for (int i = 0; i < reps; i++) all.push_back(time(algo, n));
		std::sort(all.begin(), all.end());
		return all[reps / 2];
	}
};

static void measure(const Type &t, long m, long n, long k) {
	Product p;
	size_t bytes = (m * k + k * n) * t.size + m * n * t.outSize;
	size_t copies = std::max<size_t>(2, 2 * cache / bytes + 1) + 1;
	for (size_t i = 0; i < copies; i++) {
		char *a, *b, *c;
		CHECK(cudaMalloc(&a, m * k * t.size));
		CHECK(cudaMalloc(&b, k * n * t.size));
		CHECK(cudaMalloc(&c, m * n * t.outSize));
		fill<<<264, 256>>>(a, t.in, m * k, 1);
		fill<<<264, 256>>>(b, t.in, k * n, 2);
		p.A.push_back(a), p.B.push_back(b), p.C.push_back(c);
	}
	if (t.scale == CUDA_R_64F) p.one.f64 = 1;
	else if (t.scale == CUDA_R_32F) p.one.f32 = 1;
	else p.one.i32 = 1;

	CHECK(cublasLtMatmulDescCreate(&p.desc, t.compute, t.scale));
	cublasOperation_t transB = t.transB ? CUBLAS_OP_T : CUBLAS_OP_N;
	CHECK(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_TRANSA, &transB, sizeof transB));
	CHECK(cublasLtMatrixLayoutCreate(&p.a, t.in, k, m, k));
	CHECK(t.transB ? cublasLtMatrixLayoutCreate(&p.b, t.in, k, n, k) : cublasLtMatrixLayoutCreate(&p.b, t.in, n, k, n));
	CHECK(cublasLtMatrixLayoutCreate(&p.c, t.out, n, m, n));
	cublasLtMatmulPreference_t preference;
	CHECK(cublasLtMatmulPreferenceCreate(&preference));
	CHECK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspaceBytes, sizeof workspaceBytes));
	cublasLtMatmulHeuristicResult_t found[8];
	int count = 0;
	cublasLtMatmulAlgoGetHeuristic(handle, p.desc, p.b, p.a, p.c, p.c, preference, 8, found, &count);

	// As many products in a timing as take so long, of those that queue up.
	auto batch = [](double seconds, double took) { return std::clamp((int)(seconds / took) + 1, 1, 64); };
	int best = -1;
	double least = 0;
	for (int i = 0; i < count; i++) {
		if (found[i].state != CUBLAS_STATUS_SUCCESS || p.time(&found[i].algo, 1) < 0) continue;
		double took = p.median(&found[i].algo, batch(1e-3, p.time(&found[i].algo, 1)), 5);
		if (best < 0 || took < least) best = i, least = took;
	}
	if (best < 0) {
		printf("%s %ld %ld %ld refused\n", t.name, m, n, k);
	} else {
		int each = batch(1e-2, least);
		p.median(&found[best].algo, each, (int)(warmUp / (least * each)) + 1);
		double took = p.median(&found[best].algo, each, std::clamp((int)(0.2 / (least * each)), 7, 1000));
		printf("%s %ld %ld %ld %.3f %.3f %d\n", t.name, m, n, k, took * 1e6, 2e-12 * m * n * k / took, best + 1);
	}
	fflush(stdout);
	for (auto *all : {&p.A, &p.B, &p.C})
		for (char *at : *all) CHECK(cudaFree(at));
}

int main(int argc, char **argv) {
	CHECK(cublasLtCreate(&handle));
	CHECK(cudaMalloc(&workspace, workspaceBytes));
	CHECK(cudaEventCreate(&from));
	CHECK(cudaEventCreate(&to));
	int l2;
	CHECK(cudaDeviceGetAttribute(&l2, cudaDevAttrL2CacheSize, 0));
	cache = l2;
	for (int i = 1; i < argc; i++) {
		char name[8];
		long m, n, k;
		bool known = false;
		if (sscanf(argv[i], "%7[^:]:%ldx%ldx%ld", name, &m, &n, &k) == 4)
			for (const Type &t : types)
				if (!strcmp(t.name, name)) measure(t, m, n, k), known = true;
		if (!known) {
			fprintf(stderr, "%s: want TYPE:MxNxK\n", argv[i]);
			return 2;
		}
	}
}
