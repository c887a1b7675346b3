// Package gpu is the backend for NVIDIA GPUs, real and emulated: [Backend] implements
// [backend.Backend], and [Open] opens a device once for all its users. Its tests range over every
// kernel and cross the packages below it:
//
//   - kernel: the kernels for every architecture, their parameters and their epilogues
//   - sm90: the wgmma kernel for Hopper
//   - frag: fragments, tiles in shared memory and pipelines for the tensor cores
//   - choose: the list of kernels, and the choice of one with its tile for a product
//   - exec: compiled kernels, and the launches that compute one product on the device
//   - stream: products of matrices in host memory, copied in panels while kernels run
//   - gputest: every way to compute, for the conformance suite
//   - ptxas: NVIDIA's assembler, for tests
package gpu
