package check

import "testing"

func TestHistoricTransactions(t *testing.T) {
	lanes := func(f func(i int) uint64) (a [32]uint64) {
		for i := range a {
			a[i] = f(i)
		}
		return a
	}
	for _, c := range []struct {
		name                string
		addr                [32]uint64
		mask                uint32
		size                int
		halves, transaction int64
	}{
		{"consecutive", lanes(func(i int) uint64 { return uint64(4 * i) }), ^uint32(0), 4, 2, 2},
		{"every second thread", lanes(func(i int) uint64 { return uint64(4 * i) }), 0xaaaaaaaa, 4, 2, 2},
		{"misaligned", lanes(func(i int) uint64 { return uint64(4*i + 4) }), ^uint32(0), 4, 2, 32},
		{"swapped", lanes(func(i int) uint64 { return uint64(4 * (i ^ 1)) }), 0xffff, 4, 1, 16},
		{"same word", lanes(func(i int) uint64 { return 64 }), 0xffff0000, 4, 1, 16},
		{"doubles", lanes(func(i int) uint64 { return uint64(8 * i) }), ^uint32(0), 8, 2, 2},
		{"16 bytes", lanes(func(i int) uint64 { return uint64(16 * i) }), ^uint32(0), 16, 2, 4},
		{"bytes", lanes(func(i int) uint64 { return uint64(i) }), ^uint32(0), 1, 2, 32},
		{"single thread", lanes(func(i int) uint64 { return uint64(4 * i) }), 1 << 20, 4, 1, 1},
	} {
		if h, n := historicTransactions(&c.addr, c.mask, c.size); h != c.halves || n != c.transaction {
			t.Errorf("%s: %d transactions of %d half-warps, want %d of %d", c.name, n, h, c.transaction, c.halves)
		}
	}
}
