//go:build !nogpu && (linux || darwin) && (amd64 || arm64)

package peers

import (
	"strings"
	"sync"
	"testing"
)

// TestWhyNotLoaded: a library that is not there is named, whichever thread each of the
// loader's functions is called on.
func TestWhyNotLoaded(t *testing.T) {
	const file = "/nowhere/libnone.so"
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 500 {
				if _, err := dlopen(file, alone); err == nil || !strings.Contains(err.Error(), file) {
					t.Errorf("the error is %q", err)
					return
				}
			}
		})
	}
	all.Wait()
}
