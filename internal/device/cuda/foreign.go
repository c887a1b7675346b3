package cuda

// Foreign calls f with the GPU's context current, so that f can use other libraries that launch
// kernels, such as cuBLAS. stream is the CUstream. Work that f enqueues on it is ordered with all
// other work of the stream. f must not leave work in flight on other streams.
//
// The error is that of f, or reports that the device is closed or lost. A failure of a library's
// kernel is reported by a later call, as after [GPU.Launch].
func (s *queue) Foreign(f func(stream uintptr) error) error {
	return s.gpu.within(func() error { return f(s.stream) })
}
