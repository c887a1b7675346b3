package cuda

// Foreign runs f where the GPU's context is current, for libraries that bring kernels
// of their own. What they put in the stream, a CUstream, is in order with everything
// else that the GPU does. f must not leave anything running outside of it.
//
// The errors are f's, and those of a device that is closed or lost; what fails in a
// kernel of the library's comes out of what is asked next, as after [GPU.Launch].
func (g *GPU) Foreign(f func(stream uintptr) error) error {
	return g.within(func() error { return f(g.stream) })
}
