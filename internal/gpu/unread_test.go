package gpu

import (
	"bytes"
	"testing"

	"tilework/internal/device"
	"tilework/internal/device/devicetest"
	"tilework/internal/device/emu"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/gputest"
	"tilework/internal/gpu/kernel"
	"tilework/internal/testkit"
)

// TestUnreadAddresses checks that A and B can be at any address if alpha is 0: every kernel
// computes beta·C, without reading them.
func TestUnreadAddresses(t *testing.T) {
	const m, n, k = 16, 64, 128
	d := devicetest.FewSMs(t, emu.Options{})
	b := exec.New(d)
	for _, w := range gputest.Smallest(d.Info()) {
		pair := w.Types()[0]
		p := testkit.Product(t, pair.In, pair.Out, m, n, k)
		p.Layouts[gemm.B] = gemm.Dense(pair.In, n, k).T() // all kernels can read it in place
		p.Alpha, p.Beta, p.Precision = 0, 1, w.Precision
		pl, err := b.Plan(p, exec.Options{Kernel: w.Kernel.Name, Tile: w.Tile(), KeepLayout: true})
		if err != nil {
			t.Errorf("%v: %v", w, err)
			continue
		}
		c := make([]byte, pair.Out.Bytes(m*n))
		for i := range m * n {
			pair.Out.Set(c, i, float64(i%7))
		}
		got := bytes.Clone(c)
		err = devicetest.WithBuffers(t.Context(), d, 0, [][]byte{got}, func(at []device.Ptr) error {
			return pl.Enqueue(t.Context(), kernel.Memory{gemm.A: 1, gemm.B: 3, gemm.C: at[0]})
		})
		if err != nil || !bytes.Equal(got, c) {
			t.Errorf("%v, %v: C has changed, or error %v", w, pair, err)
		}
	}
}
