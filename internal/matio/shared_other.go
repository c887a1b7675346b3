//go:build !linux

package matio

import "os"

// keepBytesApart does nothing.
func keepBytesApart(*os.File, int64) {}
