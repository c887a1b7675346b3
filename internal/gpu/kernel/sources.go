package kernel

import "embed"

// Sources holds the Go files of the kernels and of their panels, for readers of their PTX.
//
//go:embed naive.go tiled.go blocked.go panel.go mma.go
var Sources embed.FS
