package tilework

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestDeviceMemory checks the second argument of WithDevice: results have the same bits in less
// memory, the plan states the blocks, and wrong limits are errors.
func TestDeviceMemory(t *testing.T) {
	a, b := New[float32](70, 50), New[float32](50, 90)
	for i := range a.Data() {
		a.Data()[i] = float32(i%17) / 3
	}
	for i := range b.Data() {
		b.Data()[i] = float32(i%13)/7 - 1
	}
	want, err := Mul(t.Context(), a, b, WithDevice("emu"))
	if err != nil {
		t.Fatal(err)
	}
	for _, bytes := range []int{1 << 30, 40 << 10, 10 << 10} {
		got, err := Mul(t.Context(), a, b, WithDevice("emu", bytes))
		if err != nil || !slices.Equal(got.Data(), want.Data()) {
			t.Errorf("%d bytes: error %v, or other bits than in all memory", bytes, err)
		}
		pl, err := PlanGemm(a, b, got, WithDevice("emu", bytes))
		if err != nil || strings.Contains(pl.Detail, "blocks of C") != (bytes < 1<<30) {
			t.Errorf("%d bytes: plan %v, error %v", bytes, pl, err)
		}
	}
	batch := Batch[float32]{want, New[float32](70, 90), New[float32](70, 90)}
	if err := Gemm(t.Context(), 1, Batch[float32]{a, a, a}, Batch[float32]{b, b, b}, 0, batch,
		WithDevice("emu", 40<<10)); err != nil || !slices.Equal(batch[2].Data(), want.Data()) {
		t.Errorf("a batch: error %v, or other bits", err)
	}
	c := New[float32](70, 90)
	c.Data()[7] = 42
	for _, x := range []struct {
		memory []int
		want   error
	}{{[]int{1 << 10}, ErrOutOfMemory}, {[]int{0}, ErrUnsupported}, {[]int{-1}, ErrUnsupported},
		{[]int{1, 2}, ErrUnsupported}} {
		err := Gemm(t.Context(), 1, a, b, 0, c, WithDevice("emu", x.memory...))
		if !errors.Is(err, x.want) || c.Data()[7] != 42 || strings.Contains(err.Error(), "\n") {
			t.Errorf("memory %v: error %v, want %v and C as before", x.memory, err, x.want)
		}
	}
	dev, err := Open("emu")
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	x, err := Upload(t.Context(), dev, a)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Mul(t.Context(), x, b, WithDevice("emu", 1<<20)); !errors.Is(err, ErrUnsupported) {
		t.Errorf("a matrix on a device: error %v, want ErrUnsupported", err)
	}
}
