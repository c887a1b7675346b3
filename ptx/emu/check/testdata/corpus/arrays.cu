// Transposes, histograms, stencils, sparse and irregular accesses.
#define KERNEL extern "C" __global__ void
#define FULL 0xffffffffu
#include <cuda_fp16.h>

KERNEL transpose_naive(const float *x, float *y, int rows, int cols) {
    int r = blockIdx.y * 16 + threadIdx.y, c = blockIdx.x * 16 + threadIdx.x;
    if (r < rows && c < cols) y[c * rows + r] = x[r * cols + c];
}

KERNEL transpose_tiled(const float *x, float *y, int rows, int cols) {
    __shared__ float tile[32][33];
    int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8)
        if (r + k < rows && c < cols) tile[threadIdx.y + k][threadIdx.x] = x[(r + k) * cols + c];
    __syncthreads();
    c = blockIdx.y * 32 + threadIdx.x, r = blockIdx.x * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8)
        if (r + k < cols && c < rows) y[(r + k) * rows + c] = tile[threadIdx.x][threadIdx.y + k];
}

KERNEL transpose_swizzled(const int *x, int *y) {
    __shared__ int tile[32][32];
    int t = threadIdx.x;
    for (int r = threadIdx.y; r < 32; r += 4) tile[r][t ^ r] = x[r * 32 + t];
    __syncthreads();
    for (int r = threadIdx.y; r < 32; r += 4) y[r * 32 + t] = tile[t][r ^ t];
}

KERNEL transpose_half(const half2 *x, half2 *y) {
    int r = 2 * threadIdx.y, c = threadIdx.x;
    half2 a = x[r * 16 + c], b = x[(r + 1) * 16 + c];
    y[2 * c * 16 + r / 2] = __lows2half2(a, b);
    y[(2 * c + 1) * 16 + r / 2] = __highs2half2(a, b);
}

KERNEL histogram_shared(const unsigned char *x, int *y, int n) {
    __shared__ int bins[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) bins[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&bins[x[i]], 1);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x)
        if (bins[i]) atomicAdd(&y[i], bins[i]);
}

KERNEL histogram_of_warps(const unsigned char *x, int *y, int n) {
    __shared__ unsigned short bins[4][16];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (lane < 16) bins[warp][lane] = 0;
    __syncwarp();
    for (int i = threadIdx.x; i - lane < n; i += blockDim.x) {
        int v = i < n ? x[i] : 16;
        unsigned same = __match_any_sync(FULL, v);
        if (v < 16 && lane == __ffs(same) - 1) bins[warp][v] += __popc(same);
        __syncwarp();
    }
    __syncthreads();
    if (threadIdx.x < 16) y[lane] = bins[0][lane] + bins[1][lane] + bins[2][lane] + bins[3][lane];
}

KERNEL saxpy(float a, const float4 *x, float4 *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 v = x[i], u = y[i];
    y[i] = make_float4(a * v.x + u.x, a * v.y + u.y, a * v.z + u.z, a * v.w + u.w);
}

__constant__ float taps[5] = {0.1f, 0.2f, 0.4f, 0.2f, 0.1f};

KERNEL convolution(const float *x, float *y, int n) {
    __shared__ float s[68];
    int t = threadIdx.x, i = blockIdx.x * 64 + t;
    for (int k = t; k < 68; k += 64) {
        int from = blockIdx.x * 64 + k - 2;
        s[k] = from >= 0 && from < n ? x[from] : 0;
    }
    __syncthreads();
    float v = 0;
    for (int k = 0; k < 5; k++) v += taps[k] * s[t + k];
    if (i < n) y[i] = v;
}

KERNEL convolution_2d(const float *x, const float *w, float *y, int h, int v) {
    __shared__ float s[10][18];
    int c = blockIdx.x * 16 - 1, r = blockIdx.y * 8 - 1;
    for (int k = threadIdx.y * 16 + threadIdx.x; k < 180; k += 128) {
        int a = r + k / 18, b = c + k % 18;
        s[k / 18][k % 18] = a >= 0 && a < h && b >= 0 && b < v ? x[a * v + b] : 0;
    }
    __syncthreads();
    float sum = 0;
#pragma unroll
    for (int a = 0; a < 3; a++)
#pragma unroll
        for (int b = 0; b < 3; b++) sum += w[a * 3 + b] * s[threadIdx.y + a][threadIdx.x + b];
    r += threadIdx.y + 1, c += threadIdx.x + 1;
    if (r < h && c < v) y[r * v + c] = sum;
}

KERNEL heat(const float *x, float *y, int n) {
    int c = blockIdx.x * 16 + threadIdx.x, r = blockIdx.y * 16 + threadIdx.y;
    if (c >= n || r >= n) return;
    float v = x[r * n + c];
    if (c > 0 && c < n - 1 && r > 0 && r < n - 1)
        v += 0.1f * (x[r * n + c - 1] + x[r * n + c + 1] + x[(r - 1) * n + c] + x[(r + 1) * n + c] - 4 * v);
    y[r * n + c] = v;
}

KERNEL stencil_3d(const double *x, double *y, int n) {
    int i = threadIdx.x, j = threadIdx.y;
    double below = 0, at = x[j * n + i];
    for (int k = 0; k < n; k++) {
        double above = k + 1 < n ? x[((k + 1) * n + j) * n + i] : 0;
        y[(k * n + j) * n + i] = below + above - 2 * at;
        below = at, at = above;
    }
}

KERNEL life(const unsigned char *x, unsigned char *y, int n) {
    int c = blockIdx.x * 16 + threadIdx.x, r = blockIdx.y * 16 + threadIdx.y;
    int alive = 0;
    for (int a = -1; a <= 1; a++)
        for (int b = -1; b <= 1; b++)
            if (a || b) alive += x[(r + a + n) % n * n + (c + b + n) % n];
    y[r * n + c] = alive == 3 || alive == 2 && x[r * n + c];
}

KERNEL gather(const float *x, const long long *at, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = __ldg(&x[at[i]]);
}

KERNEL scatter_add(const float *x, const int *at, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&y[at[i]], x[i]);
}

KERNEL sparse(const int *start, const int *col, const float *value, const float *x, float *y, int rows) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float v = 0;
    for (int i = start[row]; i < start[row + 1]; i++) v += value[i] * x[col[i]];
    y[row] = v;
}

KERNEL matrix_vector(const float *a, const float *x, float *y, int m, int n) {
    int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= m) return;
    float v = 0;
    for (int k = threadIdx.x; k < n; k += 32) v += a[row * n + k] * x[k];
    for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(FULL, v, d);
    if (threadIdx.x == 0) y[row] = v;
}

KERNEL breadth_first(const int *start, const int *to, int *level, int depth, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n || atomicAdd(&level[i], 0) != depth) return;
    for (int k = start[i]; k < start[i + 1]; k++) atomicCAS(&level[to[k]], -1, depth + 1);
}

KERNEL bodies(const float4 *p, float4 *force, int n) {
    __shared__ float4 s[32];
    int i = blockIdx.x * 32 + threadIdx.x;
    float4 own = i < n ? p[i] : make_float4(0, 0, 0, 0);
    float x = 0, y = 0, z = 0;
    for (int base = 0; base < n; base += 32) {
        s[threadIdx.x] = base + threadIdx.x < n ? p[base + threadIdx.x] : make_float4(0, 0, 0, 0);
        __syncthreads();
        for (int k = 0; k < 32; k++) {
            float dx = s[k].x - own.x, dy = s[k].y - own.y, dz = s[k].z - own.z;
            float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + 0.01f), f = s[k].w * inverse * inverse * inverse;
            x += f * dx, y += f * dy, z += f * dz;
        }
        __syncthreads();
    }
    if (i < n) force[i] = make_float4(x, y, z, 0);
}

KERNEL mandelbrot(int *y, int w, int h) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= w * h) return;
    float a = -2 + 3.f * (i % w) / w, b = -1 + 2.f * (i / w) / h, u = 0, v = 0;
    int k = 0;
    for (; k < 40 && u * u + v * v < 4; k++) {
        float t = u * u - v * v + a;
        v = 2 * u * v + b, u = t;
    }
    y[i] = k;
}

KERNEL pascal(unsigned long long *x, int n) {
    __shared__ unsigned long long row[64];
    int t = threadIdx.x;
    row[t] = t == 0;
    for (int k = 0; k < n; k++) {
        __syncthreads();
        unsigned long long v = t > 0 ? row[t - 1] + row[t] : 1;
        __syncthreads();
        row[t] = v;
    }
    x[t] = row[t];
}

struct image { const unsigned char *pixels; int width, height; float gain; };

KERNEL grey(image m, unsigned char *y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= m.width * m.height) return;
    uchar4 p = ((const uchar4 *)m.pixels)[i];
    y[i] = min(255, (int)(m.gain * (p.x * 77 + p.y * 150 + p.z * 29) / 256));
}

KERNEL longest_common(const char *a, const char *b, int *y, int n) {
    __shared__ int d[3][65];
    int t = threadIdx.x + 1;
    for (int k = 0; k < 3; k++) {
        d[k][t] = 0;
        if (t == 1) d[k][0] = 0;
    }
    __syncthreads();
    for (int k = 2; k <= 2 * n; k++) { // anti-diagonals: d[k % 3][i] is the length for i and k - i letters
        int i = t, j = k - t;
        if (j >= 1 && j <= n && i <= n)
            d[k % 3][i] = a[i - 1] == b[j - 1] ? d[(k + 1) % 3][i - 1] + 1
                                               : max(d[(k + 2) % 3][i - 1], d[(k + 2) % 3][i]);
        else if (i <= n) d[k % 3][i] = j < 1 ? 0 : d[(k + 2) % 3][i];
        __syncthreads();
    }
    if (t == n) *y = d[2 * n % 3][n];
}
