package sm90

import "embed"

// Sources holds the Go files of the kernel, for readers of its PTX.
//
//go:embed wgmma.go producer.go consumer.go grid.go mainloop.go promotion.go swapab.go
//go:embed epilogue.go store.go
var Sources embed.FS
