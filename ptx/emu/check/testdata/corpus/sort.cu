// Sorts, searches and selections.
#define KERNEL extern "C" __global__ void
#define FULL 0xffffffffu

KERNEL bitonic(int *x) {
    __shared__ int s[256];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    for (int size = 2; size <= 256; size *= 2)
        for (int d = size / 2; d > 0; d /= 2) {
            int other = t ^ d;
            if (other > t) {
                bool up = (t & size) == 0;
                if (s[t] > s[other] == up) {
                    int v = s[t];
                    s[t] = s[other];
                    s[other] = v;
                }
            }
            __syncthreads();
        }
    x[t] = s[t];
}

KERNEL warp_bitonic(float *x) {
    int t = threadIdx.x;
    float v = x[blockIdx.x * 32 + t];
    for (int size = 2; size <= 32; size *= 2)
        for (int d = size / 2; d > 0; d /= 2) {
            float u = __shfl_xor_sync(FULL, v, d);
            bool up = (t & size) == 0, low = (t & d) == 0;
            v = up == low ? fminf(v, u) : fmaxf(v, u);
        }
    x[blockIdx.x * 32 + t] = v;
}

KERNEL odd_even(int *x, int n) {
    for (int k = 0; k < n; k++) {
        int i = 2 * threadIdx.x + k % 2;
        if (i + 1 < n && x[i] > x[i + 1]) {
            int v = x[i];
            x[i] = x[i + 1];
            x[i + 1] = v;
        }
        __syncthreads();
    }
}

KERNEL rank_sort(const int *x, int *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int rank = 0;
    for (int k = 0; k < n; k++) rank += x[k] < x[i] || x[k] == x[i] && k < i;
    y[rank] = x[i];
}

// radix_sort sorts 128 keys of 8 bits, bit by bit.
KERNEL radix_sort(unsigned *x) {
    __shared__ unsigned keys[128], ones[4];
    int t = threadIdx.x, lane = t % 32, warp = t / 32;
    unsigned key = x[t];
    for (int bit = 0; bit < 8; bit++) {
        bool one = key >> bit & 1;
        unsigned votes = __ballot_sync(FULL, one);
        if (lane == 0) ones[warp] = __popc(votes);
        __syncthreads();
        int before = __popc(votes & ((1u << lane) - 1)), total = 0;
        for (int w = 0; w < 4; w++) {
            if (w < warp) before += ones[w];
            total += ones[w];
        }
        keys[one ? 128 - total + before : t - before] = key;
        __syncthreads();
        key = keys[t];
    }
    x[t] = key;
}

__device__ int lower_bound(const int *x, int n, int v) {
    int low = 0;
    while (low < n) {
        int mid = (low + n) / 2;
        if (x[mid] < v) low = mid + 1;
        else n = mid;
    }
    return low;
}

KERNEL binary_search(const int *x, const int *v, int *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = lower_bound(x, n, v[i]);
}

// merge merges pairs of sorted runs: each element finds its place in the other run.
KERNEL merge(const int *x, int *y, int run, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int own = i / run * run, pair = i / (2 * run) * 2 * run, other = own == pair ? own + run : pair;
    int length = max(0, min(run, n - other));
    int place = own == pair ? lower_bound(x + other, length, x[i]) : lower_bound(x + other, length, x[i] + 1);
    y[pair + i - own + place] = x[i];
}

KERNEL count_keys(const unsigned char *x, int *count, int n) {
    __shared__ int local[16];
    if (threadIdx.x < 16) local[threadIdx.x] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) atomicAdd(&local[x[i]], 1);
    __syncthreads();
    if (threadIdx.x == 0) {
        int sum = 0;
        for (int k = 0; k < 16; k++) {
            count[k] = sum;
            sum += local[k];
        }
    }
}

KERNEL scatter_keys(const unsigned char *x, int *next, unsigned char *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[atomicAdd(&next[x[i]], 1)] = x[i];
}

KERNEL top_k(const float *x, float *y, int n, int k) {
    const float *row = x + blockIdx.x * n;
    float limit = 3e38f;
    for (int j = 0; j < k; j++) {
        float best = -3e38f;
        for (int i = threadIdx.x; i < n; i += 32)
            if (row[i] < limit) best = fmaxf(best, row[i]);
        for (int d = 16; d > 0; d /= 2) best = fmaxf(best, __shfl_xor_sync(FULL, best, d));
        if (threadIdx.x == 0) y[blockIdx.x * k + j] = best;
        limit = best;
    }
}

KERNEL median_filter(const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v[5];
    for (int k = 0; k < 5; k++) v[k] = x[min(max(i + k - 2, 0), n - 1)];
    for (int k = 0; k < 3; k++)
        for (int j = k + 1; j < 5; j++)
            if (v[j] < v[k]) {
                float u = v[k];
                v[k] = v[j];
                v[j] = u;
            }
    y[i] = v[2];
}

// insertion sorts rows of local memory with an index that the compiler does not know.
KERNEL insertion(int *x, int n) {
    int v[16], *row = x + threadIdx.x * n;
    for (int k = 0; k < n; k++) {
        int j = k;
        for (; j > 0 && v[j - 1] > row[k]; j--) v[j] = v[j - 1];
        v[j] = row[k];
    }
    for (int k = 0; k < n; k++) row[k] = v[k];
}

// quick sorts rows of n elements with an explicit stack.
KERNEL quick(float *x, int n) {
    float *v = x + threadIdx.x * n;
    int stack[16], top = 0;
    stack[top++] = 0, stack[top++] = n - 1;
    while (top > 0) {
        int high = stack[--top], low = stack[--top];
        if (low >= high) continue;
        float pivot = v[high];
        int i = low;
        for (int j = low; j < high; j++)
            if (v[j] < pivot) {
                float u = v[i];
                v[i++] = v[j];
                v[j] = u;
            }
        v[high] = v[i];
        v[i] = pivot;
        if (i - low < high - i) {
            stack[top++] = i + 1, stack[top++] = high;
            stack[top++] = low, stack[top++] = i - 1;
        } else {
            stack[top++] = low, stack[top++] = i - 1;
            stack[top++] = i + 1, stack[top++] = high;
        }
    }
}

KERNEL run_lengths(const int *x, int *starts, int *count, int n) {
    __shared__ int found;
    if (threadIdx.x == 0) found = 0;
    __syncthreads();
    for (int base = 0; base < n; base += blockDim.x) {
        int i = base + threadIdx.x;
        bool head = i < n && (i == 0 || x[i] != x[i - 1]);
        if (head) starts[atomicAdd(&found, 1)] = i;
    }
    __syncthreads();
    if (threadIdx.x == 0) *count = found;
}
