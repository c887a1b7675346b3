// Misused instructions of a warp. Each kernel has one fault.
#define KERNEL extern "C" __global__ void
#define ALL 0xffffffff

KERNEL shuffle_in_if(int *x, int *y, int n) {
    int t = threadIdx.x, v = x[t];
    if (t < 16) v += __shfl_down_sync(ALL, v, 8, 16);
    y[t] = v;
}

KERNEL shuffle_from_other_branch(int *x, int *y, int n) {
    int t = threadIdx.x, v = x[t];
    if (t < 16) v += __shfl_xor_sync(ALL, v, 16);
    y[t] = v;
}

KERNEL ballot_in_if(int *x, int *y, int n) {
    int t = threadIdx.x;
    if (t < 16) x[t] = __ballot_sync(ALL, x[t] > 3);
    y[t] = t;
}

KERNEL vote_in_else(int *x, int *y, int n) {
    int t = threadIdx.x;
    if (t < 20)
        x[t] = 0;
    else
        x[t] = __any_sync(ALL, x[t] > 3);
    y[t] = t;
}

KERNEL syncwarp_in_if(int *x, int *y, int n) {
    __shared__ int s[32];
    int t = threadIdx.x;
    s[t] = x[t];
    if (t < 16) {
        __syncwarp();
        y[t] = s[t ^ 1];
    }
    x[t] = 0;
}

KERNEL match_in_if(int *x, int *y, int n) {
    int t = threadIdx.x;
    if (t < 16) x[t] = __match_any_sync(ALL, x[t] & 3);
    y[t] = t;
}

KERNEL shuffle_in_uneven_loop(int *x, int *y, int n) {
    int t = threadIdx.x, v = x[t];
    for (int k = t; k < 40; k += 32) v += __shfl_xor_sync(ALL, v, 1);
    y[t] = v;
}

KERNEL source_outside_mask(int *x, int *y, int n) {
    int t = threadIdx.x, v = x[t];
    if (t < 16) v = __shfl_sync(0xffff, v, t + 16);
    y[t] = v;
}

KERNEL caller_outside_mask(int *x, int *y, int n) {
    int t = threadIdx.x;
    y[t] = __shfl_sync(0xffff, x[t], 0);
}

KERNEL shuffle_from_returned_lanes(int *x, int *y, int n) {
    int t = threadIdx.x;
    if (t >= 24) return;
    int v = x[t];
    for (int d = 16; d > 0; d >>= 1) v += __shfl_down_sync(ALL, v, d);
    if (t == 0) y[0] = v;
}

KERNEL shuffle_in_a_small_block(int *x, int *y, int n) {
    int t = threadIdx.x, v = x[t];
    for (int d = 16; d > 0; d >>= 1) v += __shfl_down_sync(ALL, v, d);
    if (t == 0) y[0] = v;
}

KERNEL shuffle_and_vote(int *x, int *y, int n) {
    int t = threadIdx.x, v = x[t];
    if (t < 16)
        v = __shfl_sync(ALL, v, 0);
    else
        v = __any_sync(ALL, v > 3);
    y[t] = v;
}

KERNEL different_masks(int *x, int *y, int n) {
    int t = threadIdx.x;
    y[t] = __ballot_sync(t < 16 ? 0xffff : ALL, x[t] > 3);
}
