// Layers of neural networks.
#define KERNEL extern "C" __global__ void
#define FULL 0xffffffffu
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cmath>

__device__ float warp_sum(float v) {
    for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(FULL, v, d);
    return v;
}
__device__ float warp_max(float v) {
    for (int d = 16; d > 0; d /= 2) v = fmaxf(v, __shfl_xor_sync(FULL, v, d));
    return v;
}

KERNEL softmax_of_warps(const float *x, float *y, int rows, int n) {
    int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    float most = -INFINITY, sum = 0;
    for (int i = threadIdx.x; i < n; i += 32) most = fmaxf(most, x[row * n + i]);
    most = warp_max(most);
    for (int i = threadIdx.x; i < n; i += 32) sum += expf(x[row * n + i] - most);
    sum = warp_sum(sum);
    for (int i = threadIdx.x; i < n; i += 32) y[row * n + i] = expf(x[row * n + i] - most) / sum;
}

// block_all returns the sum or the maximum of v over a block of 128 threads, in each thread.
template <bool max> __device__ float block_all(float v) {
    __shared__ float s[4];
    v = max ? warp_max(v) : warp_sum(v);
    __syncthreads();
    if (threadIdx.x % 32 == 0) s[threadIdx.x / 32] = v;
    __syncthreads();
    return max ? fmaxf(fmaxf(s[0], s[1]), fmaxf(s[2], s[3])) : s[0] + s[1] + s[2] + s[3];
}

KERNEL softmax_of_blocks(const float *x, float *y, int n) {
    x += blockIdx.x * n, y += blockIdx.x * n;
    float most = -INFINITY, sum = 0;
    for (int i = threadIdx.x; i < n; i += 128) most = fmaxf(most, x[i]);
    most = block_all<true>(most);
    for (int i = threadIdx.x; i < n; i += 128) sum += __expf(x[i] - most);
    sum = block_all<false>(sum);
    for (int i = threadIdx.x; i < n; i += 128) y[i] = __fdividef(__expf(x[i] - most), sum);
}

KERNEL softmax_online(const float *x, float *y, int n) {
    x += blockIdx.x * n, y += blockIdx.x * n;
    float most = -INFINITY, sum = 0;
    for (int i = threadIdx.x; i < n; i += 32) {
        float m = fmaxf(most, x[i]);
        sum = sum * expf(most - m) + expf(x[i] - m);
        most = m;
    }
    for (int d = 16; d > 0; d /= 2) {
        float m = __shfl_xor_sync(FULL, most, d), s = __shfl_xor_sync(FULL, sum, d), high = fmaxf(most, m);
        sum = (most == -INFINITY ? 0 : sum * expf(most - high)) + (m == -INFINITY ? 0 : s * expf(m - high));
        most = high;
    }
    for (int i = threadIdx.x; i < n; i += 32) y[i] = expf(x[i] - most) / sum;
}

KERNEL softmax_half(const __half2 *x, __half2 *y, int n) {
    x += blockIdx.x * n, y += blockIdx.x * n;
    float most = -INFINITY, sum = 0;
    float2 v = make_float2(0, 0);
    if (threadIdx.x < n) {
        v = __half22float2(x[threadIdx.x]);
        most = fmaxf(v.x, v.y);
    }
    most = block_all<true>(most);
    v = make_float2(expf(v.x - most), expf(v.y - most));
    sum = block_all<false>(threadIdx.x < n ? v.x + v.y : 0);
    if (threadIdx.x < n) y[threadIdx.x] = __floats2half2_rn(v.x / sum, v.y / sum);
}

KERNEL layer_norm(const float *x, const float *gain, const float *bias, float *y, int n) {
    x += blockIdx.x * n, y += blockIdx.x * n;
    float sum = 0, square = 0;
    for (int i = threadIdx.x; i < n; i += 128) sum += x[i];
    float mean = block_all<false>(sum) / n;
    for (int i = threadIdx.x; i < n; i += 128) square += (x[i] - mean) * (x[i] - mean);
    float scale = rsqrtf(block_all<false>(square) / n + 1e-5f);
    for (int i = threadIdx.x; i < n; i += 128) y[i] = (x[i] - mean) * scale * gain[i] + bias[i];
}

KERNEL rms_norm(const __nv_bfloat16 *x, const __nv_bfloat16 *gain, __nv_bfloat16 *y, int n) {
    x += blockIdx.x * n, y += blockIdx.x * n;
    float square = 0;
    for (int i = threadIdx.x; i < n; i += 128) {
        float v = __bfloat162float(x[i]);
        square += v * v;
    }
    float scale = rsqrtf(block_all<false>(square) / n + 1e-6f);
    for (int i = threadIdx.x; i < n; i += 128)
        y[i] = __float2bfloat16(__bfloat162float(x[i]) * scale * __bfloat162float(gain[i]));
}

// layer_norm_gradient adds up the gradients of gain and bias over the rows.
KERNEL layer_norm_gradient(const float *x, const float *dy, float *dgain, float *dbias, int rows, int n) {
    int c = blockIdx.x * 32 + threadIdx.x;
    __shared__ float g[4][32], b[4][32];
    float sum = 0, gain = 0;
    for (int r = threadIdx.y; r < rows; r += 4)
        if (c < n) sum += dy[r * n + c], gain += dy[r * n + c] * x[r * n + c];
    g[threadIdx.y][threadIdx.x] = gain, b[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && c < n) {
        dgain[c] = g[0][threadIdx.x] + g[1][threadIdx.x] + g[2][threadIdx.x] + g[3][threadIdx.x];
        dbias[c] = b[0][threadIdx.x] + b[1][threadIdx.x] + b[2][threadIdx.x] + b[3][threadIdx.x];
    }
}

KERNEL gelu(const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 0.5f * x[i] * (1 + erff(x[i] * 0.70710678f));
}

KERNEL gelu_tanh(const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 0.5f * x[i] * (1 + tanhf(0.79788456f * (x[i] + 0.044715f * x[i] * x[i] * x[i])));
}

KERNEL swiglu(const __half2 *gate, const __half2 *up, __half2 *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float2 g = __half22float2(gate[i]), u = __half22float2(up[i]);
    y[i] = __floats2half2_rn(g.x / (1 + expf(-g.x)) * u.x, g.y / (1 + expf(-g.y)) * u.y);
}

KERNEL rope(float2 *x, int heads, int half) {
    int pos = blockIdx.x, i = threadIdx.x, head = threadIdx.y;
    float angle = pos * powf(10000, -(float)i / half), s, c;
    sincosf(angle, &s, &c);
    float2 *p = &x[(pos * heads + head) * half + i], v = *p;
    *p = make_float2(v.x * c - v.y * s, v.x * s + v.y * c);
}

KERNEL cross_entropy(const float *x, const int *label, float *loss, int n) {
    x += blockIdx.x * n;
    float most = -INFINITY, sum = 0;
    for (int i = threadIdx.x; i < n; i += 32) most = fmaxf(most, x[i]);
    most = warp_max(most);
    for (int i = threadIdx.x; i < n; i += 32) sum += expf(x[i] - most);
    sum = warp_sum(sum);
    if (threadIdx.x == 0) loss[blockIdx.x] = logf(sum) + most - x[label[blockIdx.x]];
}

KERNEL embedding(const int *token, const float4 *table, const float4 *position, float4 *y, int n) {
    int i = blockIdx.x * n + threadIdx.x;
    float4 a = table[token[blockIdx.x] * n + threadIdx.x], b = position[i];
    y[i] = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

KERNEL embedding_gradient(const int *token, const float *dy, float *table, int n) {
    atomicAdd(&table[token[blockIdx.x] * n + threadIdx.x], dy[blockIdx.x * n + threadIdx.x]);
}

// attention computes a row of the output per warp, with the scores in shared memory.
KERNEL attention(const float *q, const float *k, const float *v, float *y, int n, int d) {
    extern __shared__ float score[];
    int row = blockIdx.x, lane = threadIdx.x;
    float most = -INFINITY, sum = 0;
    for (int j = lane; j <= row; j += 32) {
        float s = 0;
        for (int i = 0; i < d; i++) s += q[row * d + i] * k[j * d + i];
        score[j] = s * rsqrtf(d);
        most = fmaxf(most, score[j]);
    }
    most = warp_max(most);
    for (int j = lane; j <= row; j += 32) {
        score[j] = expf(score[j] - most);
        sum += score[j];
    }
    sum = warp_sum(sum);
    __syncwarp();
    for (int i = lane; i < d; i += 32) {
        float o = 0;
        for (int j = 0; j <= row; j++) o += score[j] * v[j * d + i];
        y[row * d + i] = o / sum;
    }
}

// flash_attention computes 16 rows of the output per block, over tiles of 16 keys and values.
KERNEL flash_attention(const float *q, const float *k, const float *v, float *y, int n) {
    const int D = 32;
    __shared__ float ks[16][D + 1], vs[16][D + 1];
    int row = blockIdx.x * 16 + threadIdx.x, part = threadIdx.y; // 4 threads per row, 8 columns each
    float own[8], o[8] = {}, most = -INFINITY, sum = 0;
    for (int i = 0; i < 8; i++) own[i] = row < n ? q[row * D + part * 8 + i] : 0;
    for (int base = 0; base < n; base += 16) {
        for (int e = threadIdx.y * 16 + threadIdx.x; e < 16 * D; e += 64) {
            int r = base + e / D;
            ks[e / D][e % D] = r < n ? k[r * D + e % D] : 0;
            vs[e / D][e % D] = r < n ? v[r * D + e % D] : 0;
        }
        __syncthreads();
        for (int j = 0; j < min(16, n - base); j++) {
            __shared__ float partial[4][16];
            float s = 0;
            for (int i = 0; i < 8; i++) s += own[i] * ks[j][part * 8 + i];
            partial[part][threadIdx.x] = s;
            __syncthreads();
            s = partial[0][threadIdx.x] + partial[1][threadIdx.x] + partial[2][threadIdx.x] + partial[3][threadIdx.x];
            __syncthreads();
            s *= 0.17677669f;
            float high = fmaxf(most, s), shrink = __expf(most - high), weight = __expf(s - high);
            sum = sum * shrink + weight;
            for (int i = 0; i < 8; i++) o[i] = o[i] * shrink + weight * vs[j][part * 8 + i];
            most = high;
        }
        __syncthreads();
    }
    if (row < n)
        for (int i = 0; i < 8; i++) y[row * D + part * 8 + i] = o[i] / sum;
}

__device__ unsigned hash(unsigned x) {
    x ^= x >> 16, x *= 0x7feb352du, x ^= x >> 15, x *= 0x846ca68bu;
    return x ^ x >> 16;
}

KERNEL dropout(const float *x, float *y, unsigned seed, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = hash(i ^ seed) < 0x40000000u ? 0 : x[i] * (4.f / 3);
}

KERNEL max_pool(const float *x, float *y, int h, int w) {
    int c = blockIdx.x * 16 + threadIdx.x, r = blockIdx.y * 16 + threadIdx.y;
    if (c >= w / 2 || r >= h / 2) return;
    const float *p = x + 2 * r * w + 2 * c;
    y[r * (w / 2) + c] = fmaxf(fmaxf(p[0], p[1]), fmaxf(p[w], p[w + 1]));
}

KERNEL adam(float *w, const float *g, float *m, float *v, float rate, int step, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    m[i] = 0.9f * m[i] + 0.1f * g[i];
    v[i] = 0.999f * v[i] + 0.001f * g[i] * g[i];
    float mh = m[i] / (1 - powf(0.9f, step)), vh = v[i] / (1 - powf(0.999f, step));
    w[i] -= rate * mh / (sqrtf(vh) + 1e-8f);
}

KERNEL quantise(const float *x, signed char *y, float *scale, int n) {
    x += blockIdx.x * n, y += blockIdx.x * n;
    float most = 0;
    for (int i = threadIdx.x; i < n; i += 128) most = fmaxf(most, fabsf(x[i]));
    most = block_all<true>(most);
    for (int i = threadIdx.x; i < n; i += 128) y[i] = (signed char)lrintf(x[i] * (127 / most));
    if (threadIdx.x == 0) scale[blockIdx.x] = most / 127;
}

KERNEL batch_norm(const float *x, float *y, int n, int channels, int size) {
    int c = blockIdx.x;
    float sum = 0, square = 0;
    for (int i = threadIdx.x; i < n * size; i += 128) {
        float v = x[(i / size * channels + c) * size + i % size];
        sum += v, square += v * v;
    }
    float mean = block_all<false>(sum) / (n * size);
    float scale = rsqrtf(block_all<false>(square) / (n * size) - mean * mean + 1e-5f);
    for (int i = threadIdx.x; i < n * size; i += 128) {
        int at = (i / size * channels + c) * size + i % size;
        y[at] = (x[at] - mean) * scale;
    }
}
