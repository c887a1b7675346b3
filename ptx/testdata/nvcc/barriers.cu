// Barriers that all threads of a block of 64 reach, and barriers that some threads skip: after an
// early return, in an if and in a loop.

__global__ void all_reach(const float *x, float *y, int n) {
    __shared__ float s[64];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    s[t] = i < n ? x[i] : 0;
    __syncthreads();
    if (i < n) y[i] = s[63 - t];
}

__global__ void early_return(const float *x, float *y, int n) {
    __shared__ float s[64];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    if (i >= n) return;
    s[t] = x[i];
    __syncthreads();
    y[i] = s[t ^ 1];
}

__global__ void early_return_loop(const float *x, float *y, int n, int steps) {
    __shared__ float s[64];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    if (i >= n) return;
    float sum = 0;
    for (int k = 0; k < steps; k++) {
        s[t] = x[i] + k;
        __syncthreads();
        sum += s[t ^ 1];
        __syncthreads();
    }
    y[i] = sum;
}

__global__ void early_return_with_store(const float *x, float *y, int n) {
    __shared__ float s[64];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    if (i >= n) {
        y[i] = 0;
        return;
    }
    s[t] = x[i];
    __syncthreads();
    y[i] = s[t ^ 1];
}

__global__ void in_if(float *y, int n) {
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = t;
    if (t < n) __syncthreads();
    y[t] = s[t ^ 1];
}

__global__ void in_if_at_the_end(float *y, int n) {
    int t = threadIdx.x;
    y[t] = t;
    if (t < n) __syncthreads();
}

__global__ void in_if_with_work(float *y, int n) {
    __shared__ float s[64];
    int t = threadIdx.x;
    if (t < n) {
        s[t] = t;
        __syncthreads();
        y[t] = s[t ^ 1];
    }
}

__global__ void in_loop(const int *steps, float *y) {
    __shared__ float s[64];
    int t = threadIdx.x;
    float sum = 0;
    for (int k = 0; k < steps[t]; k++) {
        s[t] = k;
        __syncthreads();
        sum += s[t ^ 1];
        __syncthreads();
    }
    y[t] = sum;
}

__global__ void grid_stride(const float *x, float *y, int n) {
    __shared__ float s[64];
    int t = threadIdx.x;
    for (int i = t; i < n; i += blockDim.x) {
        s[t] = x[i];
        __syncthreads();
        y[i] = s[t ^ 1];
        __syncthreads();
    }
}

__global__ void votes(const float *x, int *y, int n) {
    int t = threadIdx.x;
    y[t] = 0;
    if (t < n) y[t] = __syncthreads_count(x[t] > 0);
}

__noinline__ __device__ float neighbour(float *s, float v) {
    s[threadIdx.x] = v;
    __syncthreads();
    return s[threadIdx.x ^ 1];
}

__global__ void in_function(float *y, int n) {
    __shared__ float s[64];
    int t = threadIdx.x;
    float v = t;
    if (t < n) v = neighbour(s, v);
    y[t] = v;
}

__global__ void in_function_after_return(float *y, int n) {
    __shared__ float s[64];
    int t = threadIdx.x;
    if (t >= n) return;
    y[t] = neighbour(s, t);
}
