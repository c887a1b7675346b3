package exec

import (
	"bytes"
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/device/devicetest"
	"tilework/internal/device/emu"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
)

// TestFlags checks that a product with stream-K leaves all flags zero, that the launches of other
// streams, which have no flags, have no stream-K but the same bits, and that no product without
// steps has it.
func TestFlags(t *testing.T) {
	d := devicetest.FewSMs(t, emu.Options{})
	b := New(d)
	p := testkit.Product(t, dtype.BF16, dtype.BF16, 128, 4*64, 9*64)
	pl, err := b.Plan(p, Options{Kernel: "wgmma", Tile: "128x64x64/2x16/3s"})
	if err != nil {
		t.Fatal(err)
	}
	x := testkit.Filled(testrand.New(t), p)
	run := func(pl *Plan) []byte {
		product := make([]byte, len(x[gemm.C]))
		operands := [][]byte{x[gemm.A], x[gemm.B], product}
		err := devicetest.WithBuffers(t.Context(), d, 2, operands, func(at []device.Ptr) error {
			if err := d.Sync(t.Context()); err != nil {
				return err
			}
			err := pl.Enqueue(t.Context(), kernel.Memory{gemm.A: at[0], gemm.B: at[1], gemm.C: at[2]})
			if err != nil || pl.stream == nil {
				return err
			}
			return pl.stream.Sync(t.Context())
		})
		if err != nil {
			t.Fatal(err)
		}
		return product
	}
	want := run(pl)
	flags := bytes.Repeat([]byte{1}, kernel.FlagBytes(b.Info()))
	if err := d.CopyOut(t.Context(), flags, b.flags.at, device.Whole(len(flags))); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(flags, make([]byte, len(flags))) {
		t.Error("some flags are set after the product")
	}
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	streamed := func(pl *Plan) bool { return pl.record().steps[0].config.Tile.StreamK }
	other := pl.In(s, 0)
	if !streamed(pl) || streamed(other) {
		t.Errorf("stream-K: %v, in another stream %v, want only the former", streamed(pl), streamed(other))
	}
	if got := run(other); !bytes.Equal(got, want) {
		t.Error("another stream has other bits")
	}
	empty := testkit.Product(t, dtype.BF16, dtype.BF16, 128, 4*64, 0)
	if pl, err = b.Plan(empty, Options{Kernel: "wgmma", Tile: "128x64x64/2x16/3s"}); err != nil {
		t.Fatal(err)
	}
	if streamed(pl) {
		t.Error("a product without steps has stream-K")
	}
	if err := device.Join(s.Close(), b.Close(), d.Close()); err != nil {
		t.Error(err)
	}
}
