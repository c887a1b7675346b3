package host

import (
	"math"
	"testing"
)

func TestBytes(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0 bytes", 1023: "1023 bytes", 1024: "1 KiB", 1536: "1.5 KiB", 1000 << 10: "1000 KiB", 1 << 20: "1 MiB",
		1023 << 20: "1023 MiB", 5 << 40: "5 TiB", math.MaxUint64: "16 EiB",
	} {
		if got := Bytes(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
