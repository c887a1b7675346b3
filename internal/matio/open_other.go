//go:build !unix && !windows

package matio

// openItself has no effect on systems without processes.
const openItself = 0
