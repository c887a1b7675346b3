// Conversions to and from floats of 4 and 6 bits, and scales.
#include <cuda_fp4.h>
#include <cuda_fp6.h>
#include <cuda_fp8.h>

extern "C" __global__ void narrow_floats(const float2 *x, float2 *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    y[i] = (float2)__nv_fp4x2_e2m1(x[i]);
    y[n + i] = (float2)__nv_fp6x2_e2m3(x[i]);
    y[2 * n + i] = (float2)__nv_fp6x2_e3m2(x[i]);
    auto up = __nv_cvt_float2_to_e8m0x2(x[i], __NV_SATFINITE, cudaRoundPosInf);
    y[3 * n + i] = __bfloat1622float2(__nv_cvt_e8m0x2_to_bf162raw(up));
}
