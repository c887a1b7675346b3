package resident

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"testing"

	"tilework/dtype"
	"tilework/gemmtest"
	"tilework/internal/backend"
	"tilework/internal/device"
	"tilework/internal/device/emu"
	"tilework/internal/device/faulty"
	"tilework/internal/gemm"
	"tilework/internal/gpu"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/kernel"
	"tilework/internal/sentinel"
	"tilework/internal/split"
	"tilework/internal/testkit"
)

func init() { testkit.CollectRarely() }

// open opens an emulated device, and checks in the end that nothing is left on it.
func open(t testing.TB) (*GPUs, *faulty.Device) {
	t.Helper()
	inner, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	below := faulty.New(inner)
	restore := gpu.Substitute(func(backend.DeviceName) (device.Device, error) { return below, nil })
	d, err := Open(backend.DeviceName{Kind: backend.Emulator})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if err := restore(); err != nil {
			t.Error(err)
		}
		if left := below.Leaks(); len(left) > 0 || inner.Used() != 0 {
			t.Errorf("left on the device: %v, %d bytes", left, inner.Used())
		}
	})
	return d, below
}

// room is a matrix in the midst of a larger one, whose bytes are all ones: numbers
// that are none, in types that have such.
type room struct{ whole, part Matrix }

const filling = 0xff

// newRoom places a matrix inside a larger one, after the given numbers of rows and columns, with
// one more row and column after it. data is nil for a matrix that must not be read. Several GPUs
// divide the larger matrix in the given way.
func newRoom(ctx context.Context, d *GPUs, l gemm.Layout, data []byte, rows, cols int, by split.By) (room, error) {
	whole, err := New(d, gemm.Layout{Type: l.Type, Rows: l.Rows + rows + 1, Cols: l.Cols + cols + 1,
		LD: l.Cols + cols + 1}, by)
	if err != nil {
		return room{}, err
	}
	r := room{whole, whole}
	r.part.Layout.Rows, r.part.Layout.Cols, r.part.Layout.Trans = l.Rows, l.Cols, l.Trans
	r.part.Offset = l.Type.Bytes(rows*whole.Layout.LD + cols)
	if err := whole.CopyIn(ctx, bytes.Repeat([]byte{filling}, whole.Layout.Bytes()), whole.Layout); err != nil {
		return r, err
	}
	if data == nil {
		return r, nil
	}
	return r, r.part.CopyIn(ctx, data, l)
}

// intact checks that nothing was written around the matrix.
func (r room) intact(ctx context.Context) error {
	l, p := r.whole.Layout, r.part.Layout
	got := make([]byte, l.Bytes())
	if err := r.whole.CopyOut(ctx, got, l); err != nil {
		return err
	}
	size := l.Type.Size()
	for i := range p.Rows {
		at := r.part.Offset + i*l.LD*size
		copy(got[at:at+p.Cols*size], bytes.Repeat([]byte{filling}, p.Cols*size))
	}
	for i := range l.Rows {
		for j := range l.Cols {
			if at := (i*l.LD + j) * size; !bytes.Equal(got[at:at+size], bytes.Repeat([]byte{filling}, size)) {
				return fmt.Errorf("element (%d, %d) of what is around C was written", i, j)
			}
		}
	}
	return nil
}

// TestConformance: every kernel multiplies parts of matrices as it should, wherever
// they begin, and does not write around them.
func TestConformance(t *testing.T) {
	cases := testkit.Cases(24, 100)
	for _, k := range choose.Kernels() {
		t.Run(k.Name, func(t *testing.T) {
			d, _ := open(t)
			conform(t, d, k, cases, 1<<15)
		})
	}
}

// TestGPUConformance is TestConformance on the first GPU of this machine.
func TestGPUConformance(t *testing.T) {
	d := openGPU(t, backend.DeviceName{Kind: backend.GPU})
	for _, k := range choose.Kernels() {
		t.Run(k.Name, func(t *testing.T) { conform(t, d, k, 1000, 0) })
	}
}

// openGPU opens a GPU of this machine, or several. Without one it skips the test, or fails it if
// TILEWORK_REQUIRE_GPU is set.
func openGPU(t testing.TB, name backend.DeviceName) *GPUs {
	t.Helper()
	d, err := Open(name)
	if errors.Is(err, sentinel.ErrNoDevice) && os.Getenv("TILEWORK_REQUIRE_GPU") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// conform runs the suite with TILEWORK_CASES cases, or else with cases. Repetitions of a product
// place its matrices equally, because the order of the sums depends on the alignment.
func conform(t *testing.T, d *GPUs, k *kernel.Kernel, cases, volume int) {
	tiles := k.Tiles[len(k.Tiles)-1]
	gemmtest.Run(t, gemmtest.Implementation{
		Name: k.Name,
		Gemm: func(ctx context.Context, p *gemmtest.Problem, b gemmtest.Buffers) error {
			turn := crc32.ChecksumIEEE([]byte(p.String()))
			return multiply(ctx, d, k.Name, p, b, int(turn))
		},
		Supports: func(p *gemmtest.Problem) bool { return k.Check(p, kernel.Tile{}, kernel.Align{}, nil) == nil },
		Accuracy: k.Accuracy,
		Tiles:    []int{tiles.M, tiles.N}, Volume: volume, Cases: cases, Concurrent: true, Cancels: true,
	})
}

// product returns a product of matrices A, B and C, not complete.
func product(alpha, beta complex128, m []Matrix) *Job {
	p := &Job{Problem: gemm.Problem{Alpha: alpha, Beta: beta}}
	for o := range m {
		p.Operands[o].On = m[o]
	}
	return p
}

// complete completes the problem of the operands.
func (p *Job) complete() (err error) {
	for o := range gemm.Bias {
		if p.Layouts[o] = p.Operands[o].Layout; p.Operands[o].On.Memory != nil {
			p.Layouts[o] = p.Operands[o].On.Layout
		}
	}
	p.Swapped, err = p.Problem.Complete()
	return err
}

// compute completes and enqueues a product.
func compute(ctx context.Context, p *Job) error {
	if err := p.complete(); err != nil {
		return err
	}
	return Gemm(ctx, p)
}

// multiply computes a product of matrices in rooms, whose position in the room depends on turn.
func multiply(ctx context.Context, d *GPUs, kernel string, p *gemm.Problem, b gemm.Buffers, turn int) (err error) {
	q := Job{Problem: *p, Kernel: kernel}
	var rooms []room
	var result room
	defer func() {
		for _, r := range rooms {
			if closed := r.whole.Memory.Close(); err == nil {
				err = closed
			}
		}
	}()
	for o := range gemm.Operands {
		if !p.Uses(o) {
			continue
		}
		if o > gemm.C && turn>>o&1 == 1 {
			q.Operands[o] = Operand{Host: b[o], Layout: p.Layout(o)}
			continue
		}
		data := b[o]
		if o == gemm.C && p.Beta == 0 || (o == gemm.A || o == gemm.B) && !p.ReadsAB() {
			data = nil // not read
		}
		shift := turn >> (2 * o) // 0 for all at first, later any combination
		r, err := newRoom(ctx, d, p.Layout(o), data, shift&1, shift%5, split.By(shift%3))
		if r.whole.Memory != nil {
			rooms = append(rooms, r)
		}
		if err != nil {
			return err
		}
		q.Operands[o].On = r.part
		if o == gemm.C {
			result = r
		}
	}
	if err := compute(ctx, &q); err != nil {
		return err
	}
	if err := q.c().CopyOut(ctx, b[gemm.C], p.Layouts[gemm.C]); err != nil {
		return err
	}
	return result.intact(ctx)
}

// TestEmptyOperand checks that a bias of no elements in host memory is an operand like any other.
func TestEmptyOperand(t *testing.T) {
	d, _ := open(t)
	for _, l := range []gemm.Layout{gemm.Dense(dtype.F32, 0, 3), gemm.Dense(dtype.F32, 3, 0)} {
		a, errA := New(d, gemm.Dense(dtype.F32, l.Rows, 2), split.Rows)
		b, errB := New(d, gemm.Dense(dtype.F32, 2, l.Cols), split.Rows)
		c, errC := New(d, l, split.Rows)
		if err := errors.Join(errA, errB, errC); err != nil {
			t.Fatal(err)
		}
		p := product(1, 0, []Matrix{a, b, c})
		p.Epilogue.Bias = gemm.BiasRow
		bias := gemm.Dense(dtype.F32, 1, l.Cols)
		if l.Cols > 0 {
			p.Epilogue.Bias = gemm.BiasCol
			bias = gemm.Dense(dtype.F32, 1, l.Rows)
		}
		p.Operands[gemm.Bias] = Operand{Layout: bias}
		if err := compute(t.Context(), p); err != nil {
			t.Errorf("C of %v: %v", l, err)
		}
		for _, m := range []Matrix{a, b, c} {
			if err := m.Memory.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestPlansAreKept: the second product of a kind is not planned again, another one is,
// and other factors are not those of before.
func TestPlansAreKept(t *testing.T) {
	d, _ := open(t)
	l := gemm.Dense(dtype.F32, 4, 4)
	data := make([]float32, 16)
	for i := range data {
		data[i] = 1
	}
	var m [3]Matrix
	for i := range m {
		var err error
		if m[i], err = New(d, l, split.Rows); err != nil {
			t.Fatal(err)
		}
		if err := m[i].CopyIn(t.Context(), dtype.Bytes(data), l); err != nil {
			t.Fatal(err)
		}
	}
	want := float32(1)
	for _, step := range []struct {
		alpha, beta complex128
		plans       int
	}{{1, 1, 1}, {2, 3, 1}, {-1, 0.5, 1}, {2, 0, 2}, {5, 0, 2}, {0, 3, 3}} {
		if err := compute(t.Context(), product(step.alpha, step.beta, m[:])); err != nil {
			t.Fatal(err)
		}
		want = float32(real(step.alpha))*4 + float32(real(step.beta))*want
		if err := m[2].CopyOut(t.Context(), dtype.Bytes(data), l); err != nil || data[7] != want {
			t.Errorf("%+v: %v, %v, want %v", step, data[7], err, want)
		}
		if n := len(d.plans.All()); n != step.plans {
			t.Errorf("%+v: %d plans are kept, want %d", step, n, step.plans)
		}
	}
}

// TestClosedMidway checks that memory which is closed while work with it is being enqueued is freed
// after that.
func TestClosedMidway(t *testing.T) {
	d, below := open(t)
	m, err := New(d, gemm.Dense(dtype.F32, 4, 4), split.Rows)
	if err != nil {
		t.Fatal(err)
	}
	err = m.use(t.Context(), func() error {
		if err := m.Memory.Close(); err != nil {
			t.Error(err)
		}
		if len(below.Leaks()) != 1 {
			t.Error("the memory is given back while it is in use")
		}
		return nil
	})
	if err != nil || len(below.Leaks()) != 0 {
		t.Errorf("%v, left: %v", err, below.Leaks())
	}
}
