// The C++ language on the device: indirect calls, recursion, the heap, and integers of other widths.
#define KERNEL extern "C" __global__ void
#include <cassert>
#include <cstdio>
#include <cstdlib>

__device__ __noinline__ int step(int op, int v) {
    switch (op) {
    case 0: return v + 1;
    case 1: return v * 3;
    case 2: return v - 7;
    case 3: return v ^ 0x55;
    case 4: return v << 2;
    case 5: return v >> 1;
    case 6: return ~v;
    case 7: return v % 13;
    }
    return v & 0xff;
}

KERNEL interpreter(const int *ops, const int *x, int *y, int n) {
    int t = threadIdx.x, v = x[t];
    for (int i = 0; i < n; i++) v = step(ops[(i + t) % n], v);
    y[t] = v;
}

typedef float (*Function)(float);
__device__ float square(float x) { return x * x; }
__device__ float next(float x) { return x + 1; }
__device__ float half(float x) { return x / 2; }
__device__ Function functions[] = {square, next, half};

KERNEL function_pointers(const float *x, const int *which, float *y) {
    int t = threadIdx.x;
    y[t] = functions[which[t]](x[t]) + functions[(which[t] + 1) % 3](x[t]);
}

struct Shape {
    float side;
    __device__ Shape(float side) : side(side) {}
    __device__ virtual float area() const { return side; }
};
struct Square : Shape {
    __device__ Square(float side) : Shape(side) {}
    __device__ float area() const override { return side * side; }
};
struct Cross : Shape {
    __device__ Cross(float side) : Shape(side) {}
    __device__ float area() const override { return 5 * side * side; }
};

KERNEL virtual_functions(const float *x, float *y) {
    int t = threadIdx.x;
    Shape line(x[t]);
    Square square(x[t]);
    Cross cross(x[t]);
    const Shape *shapes[] = {&line, &square, &cross};
    y[t] = shapes[t % 3]->area() + shapes[(t + 1) % 3]->area();
}

__device__ void sort(int *a, int low, int high) {
    if (low >= high) return;
    int pivot = a[(low + high) / 2], i = low, j = high;
    while (i <= j) {
        while (a[i] < pivot) i++;
        while (a[j] > pivot) j--;
        if (i <= j) {
            int v = a[i];
            a[i++] = a[j];
            a[j--] = v;
        }
    }
    sort(a, low, j);
    sort(a, i, high);
}

KERNEL recursive_sort(int *a, int n) { sort(a + threadIdx.x * n, 0, n - 1); }

struct Node {
    int v;
    Node *next;
};

KERNEL linked_list(int *y, int n) {
    Node *head = nullptr;
    for (int i = 0; i < n; i++) {
        Node *node = (Node *)malloc(sizeof(Node));
        *node = {i * (int)threadIdx.x, head};
        head = node;
    }
    int sum = 0;
    for (int k = 1; head; k++) {
        sum += k * head->v;
        Node *node = head;
        head = head->next;
        free(node);
    }
    y[threadIdx.x] = sum;
}

KERNEL backtracking(int *y, int n) { // solutions of the n queens, with the first one in column t
    unsigned column = 1u << threadIdx.x, all = (1u << n) - 1, columns[16], left[16], right[16], todo[16];
    int depth = 0, solutions = 0;
    columns[0] = column, left[0] = column << 1, right[0] = column >> 1;
    todo[0] = all & ~(columns[0] | left[0] | right[0]);
    while (depth >= 0) {
        unsigned place = todo[depth] & -todo[depth];
        if (!place) {
            depth--;
            continue;
        }
        todo[depth] ^= place;
        if (depth == n - 2) {
            solutions++;
            continue;
        }
        columns[depth + 1] = columns[depth] | place;
        left[depth + 1] = (left[depth] | place) << 1;
        right[depth + 1] = (right[depth] | place) >> 1;
        depth++;
        todo[depth] = all & ~(columns[depth] | left[depth] | right[depth]);
    }
    y[threadIdx.x] = solutions;
}

KERNEL volatile_array(const int *x, int *y) {
    volatile int a[8];
    int sum = 0;
    for (int i = 0; i < 8; i++) a[i] = x[(threadIdx.x + i) % 64];
    for (int i = 0; i < 8; i++) {
        a[i] = a[i] + a[(i + 3) & 7];
        sum += a[i];
    }
    y[threadIdx.x] = sum;
}

KERNEL lock_per_thread(int *lock, int *count, int n) { // in every lane, so that the warp diverges
    for (int i = 0; i < n; i++) {
        for (bool done = false; !done;) {
            if (atomicCAS(lock, 0, 1) != 0) continue;
            __threadfence();
            *(volatile int *)count = *(volatile int *)count + threadIdx.x;
            __threadfence();
            atomicExch(lock, 0);
            done = true;
        }
    }
}

KERNEL message(int *flag, int *data, int *y) { // from block 0 to the others
    if (blockIdx.x == 0) {
        data[threadIdx.x] = threadIdx.x * 5 + 1;
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) atomicExch(flag, 1);
        return;
    }
    if (threadIdx.x == 0) {
        while (atomicAdd(flag, 0) == 0) __nanosleep(20);
        __threadfence();
    }
    __syncthreads();
    y[threadIdx.x] = ((volatile int *)data)[31 - threadIdx.x];
}

KERNEL print_and_assert(const int *x, int *y) {
    if (threadIdx.x == 3) printf("thread %d has %d and %.1f\n", threadIdx.x, x[3], 1.5);
    assert(x[threadIdx.x] < 1000);
    y[threadIdx.x] = x[threadIdx.x] + 1;
}

KERNEL wide_integers(const unsigned long long *x, unsigned long long *y) {
    unsigned long long a = x[threadIdx.x], b = x[threadIdx.x + 32];
    unsigned __int128 p = (unsigned __int128)a * b + a;
    y[threadIdx.x] = (unsigned long long)p ^ (unsigned long long)(p >> 64) << 1 ^ __umul64hi(a, b) ^ __clzll(a) ^
                     (unsigned long long)__ffsll(b) << 8 ^ __brevll(a) ^ a % (b | 1) ^ a / (b | 3);
}

KERNEL bit_tricks(const unsigned *x, unsigned *y) {
    int t = threadIdx.x;
    unsigned a = x[t], b = x[(t + 1) % 64];
    y[t] = __byte_perm(a, b, 0x5410) ^ __funnelshift_l(a, b, t) ^ __funnelshift_rc(a, b, t) ^ __popc(a) ^ __brev(b) ^
           __usad(a, b, 3) ^ __uhadd(a, b);
}

#pragma pack(push, 1)
struct Packed {
    char c;
    int i;
    short s;
    double d;
};
#pragma pack(pop)
struct Factors {
    int n;
    float a;
    double d;
    short s[3];
};

KERNEL packed_structures(const Packed *x, double *y, Factors f) {
    int t = threadIdx.x;
    Packed p = x[t];
    y[t] = p.c + p.i + p.s + p.d * f.d + f.n * f.a + f.s[t % 3];
}
