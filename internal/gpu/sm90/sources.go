package sm90

import "embed"

// Sources holds the Go files of the kernel, for readers of its PTX.
//
//go:embed wgmma.go grid.go mainloop.go swapab.go store.go
var Sources embed.FS
