//go:build !nogpu && (linux || darwin) && (amd64 || arm64)

package dl

import (
	"strings"
	"sync"
	"testing"
)

// TestLoadErrorNamesFile checks that the error of a missing library names it, even if goroutines
// move between OS threads.
func TestLoadErrorNamesFile(t *testing.T) {
	const file = "/nowhere/libnone.so"
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 500 {
				if _, err := Open(file, Local); err == nil || !strings.Contains(err.Error(), file) {
					t.Errorf("got error %q, want one that names %s", err, file)
					return
				}
			}
		})
	}
	all.Wait()
}
