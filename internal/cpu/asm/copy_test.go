//go:build unix && amd64

package asm

import (
	"bytes"
	"testing"

	"tilework/internal/testkit/testrand"
)

// TestCopyNonTemporal checks Copy at various offsets: it copies all bytes, writes no others, and
// never faults on next.
func TestCopyNonTemporal(t *testing.T) {
	rng := testrand.New(t)
	from, to := newArena[byte](t, 300<<10), newArena[byte](t, 300<<10)
	for i := range from.mem {
		from.mem[i] = byte(rng.Uint32())
	}
	for _, n := range []int{0, 1, 63, 64, 65, 127, 128, 1000, 4096, 5*Line + 3, 200<<10 + 5} {
		for range 20 {
			// Either both next to the upper guard page or both anywhere.
			s, d := len(from.mem)-n, len(to.mem)-n
			if rng.IntN(2) == 0 {
				s, d = rng.IntN(s+1), rng.IntN(d+1)
			}
			clear(to.mem)
			var next []byte
			if rng.IntN(2) == 0 {
				next = from.mem[len(from.mem)-n:]
			}
			Copy(to.mem[d:][:n], from.mem[s:][:n], next)
			Fence()
			if !bytes.Equal(to.mem[d:][:n], from.mem[s:][:n]) {
				t.Fatalf("copy of %d bytes from %d to %d: the copy differs from the source", n, s, d)
			}
			if zero := make([]byte, len(to.mem)); !bytes.Equal(to.mem[:d], zero[:d]) ||
				!bytes.Equal(to.mem[d+n:], zero[d+n:]) {
				t.Fatalf("copy of %d bytes from %d to %d wrote outside the destination", n, s, d)
			}
		}
	}
}
