package tilework

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"tilework/internal/backend"
	"tilework/internal/device"
	"tilework/internal/device/emu"
	"tilework/internal/gpu"
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
		got, err := Mul(t.Context(), a, b, WithDevice("emu"), WithGPUMemory(bytes))
		if err != nil || !slices.Equal(got.Data(), want.Data()) {
			t.Errorf("%d bytes: error %v, or other bits than in all memory", bytes, err)
		}
		pl, err := PlanGemm(t.Context(), a, b, got, WithDevice("emu"), WithGPUMemory(bytes))
		if err != nil || strings.Contains(pl.Detail, "blocks of C") != (bytes < 1<<30) {
			t.Errorf("%d bytes: plan %v, error %v", bytes, pl, err)
		}
	}
	batch := Batch[float32]{want, New[float32](70, 90), New[float32](70, 90)}
	if err := Gemm(t.Context(), 1, Batch[float32]{a, a, a}, Batch[float32]{b, b, b}, 0, batch,
		WithDevice("emu"), WithGPUMemory(40<<10)); err != nil || !slices.Equal(batch[2].Data(), want.Data()) {
		t.Errorf("a batch: error %v, or other bits", err)
	}
	c := New[float32](70, 90)
	c.Data()[7] = 42
	for _, x := range []struct {
		memory int
		want   error
	}{{1 << 10, ErrOutOfMemory}, {0, ErrUnsupported}, {-1, ErrUnsupported}} {
		err := Gemm(t.Context(), 1, a, b, 0, c, WithDevice("emu"), WithGPUMemory(x.memory))
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
	if _, err := Mul(t.Context(), x, b, WithDevice("emu"), WithGPUMemory(1<<20)); !errors.Is(err, ErrUnsupported) {
		t.Errorf("a matrix on a device: error %v, want ErrUnsupported", err)
	}
}

// TestSeveralGPUs multiplies on a list of two emulated GPUs, and checks the errors of other lists
// and of matrices in the memory of a list.
func TestSeveralGPUs(t *testing.T) {
	restore := gpu.Substitute(func(d backend.DeviceName) (device.Device, error) {
		if d.Index > 1 {
			return nil, device.ErrIndex
		}
		return emu.Open(emu.Options{})
	})
	t.Cleanup(func() {
		if err := restore(); err != nil {
			t.Error(err)
		}
	})
	a, b := New[float32](40, 30), New[float32](30, 50)
	for i := range a.Data() {
		a.Data()[i] = float32(i % 7)
	}
	for i := range b.Data() {
		b.Data()[i] = float32(i%5) / 3
	}
	want, err := Mul(t.Context(), a, b, WithDevice("gpu"))
	if err != nil {
		t.Fatal(err)
	}
	for name, kind := range map[string]error{"gpu:0,1": nil, "gpu:all": nil, "gpu:1,0": nil, "gpu:0,0": ErrNoDevice,
		"gpu:0,2": ErrNoDevice, "gpu:0,x": ErrNoDevice} {
		got, err := Mul(t.Context(), a, b, WithDevice(name), WithVerify())
		if !errors.Is(err, kind) || kind == nil && (err != nil || !slices.Equal(got.Data(), want.Data())) {
			t.Errorf("%s: error %v, want %v and the bits of one GPU", name, err, kind)
		}
	}
}
