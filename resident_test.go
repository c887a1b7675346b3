package tilework

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/device"
	"tilework/internal/device/emu"
	"tilework/internal/device/faulty"
	"tilework/internal/gpu"
)

// substitute replaces all devices of this test by emulated ones that can be made to fail, with the
// given memory in bytes (0 for the default). At the end of the test it checks that no resources are
// left on them. The returned function looks up an opened device by name.
func substitute(t *testing.T, memory int64) func(name string) *faulty.Device {
	t.Helper()
	var mu sync.Mutex
	opened := map[string]*faulty.Device{}
	restore := gpu.Substitute(func(name backend.DeviceName) (device.Device, error) {
		inner, err := emu.Open(emu.Options{Memory: memory})
		if err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		opened[name.String()] = faulty.New(inner)
		return opened[name.String()], nil
	})
	t.Cleanup(func() {
		if err := restore(); err != nil {
			t.Error(err)
		}
		for name, d := range opened {
			if left := d.Leaks(); len(left) > 0 {
				t.Errorf("resources left on %s: %v", name, left)
			}
		}
	})
	return func(name string) *faulty.Device {
		mu.Lock()
		defer mu.Unlock()
		return opened[name]
	}
}

// on opens a device and closes it at the end of the test. If it is several GPUs, they divide the
// smallest matrices.
func on(t *testing.T, name string) *Device {
	t.Helper()
	d, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	d.at.(interface{ DivideSmall() }).DivideSmall()
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func upload[T dtype.Element](t *testing.T, d *Device, a Matrix[T], opts ...Option) DeviceMatrix[T] {
	t.Helper()
	m, err := Upload(t.Context(), d, a, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func download[T dtype.Element](t *testing.T, m DeviceMatrix[T]) Matrix[T] {
	t.Helper()
	h, err := m.Download(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// sameAs fails the test at the first element in which m differs from want, which is stored by rows.
func sameAs[T dtype.Float](t *testing.T, what string, m Matrix[T], want []float64) {
	t.Helper()
	for i := range m.Rows() {
		for j := range m.Cols() {
			if got := dtype.ToFloat64(m.At(i, j)); got != want[i*m.Cols()+j] {
				t.Fatalf("%s: element (%d, %d) is %v, want %v", what, i, j, got, want[i*m.Cols()+j])
			}
		}
	}
}

// testResidentViews multiplies transposed and partial views, both views of uploaded host matrices
// and views on the device.
func testResidentViews[T dtype.Float](t *testing.T) {
	d := on(t, "emu")
	rng := rand.New(rand.NewPCG(3, 4))
	for _, s := range [][3]int{{1, 1, 1}, {3, 5, 2}, {17, 9, 20}} {
		m, n, k := s[0], s[1], s[2]
		a, b := whole[T](rng, m, k), whole[T](rng, k, n)
		want := plain(a, b)
		room := whole[T](rng, m+k+2, n+k+3)
		part := room.Sub(1, 1, m, k)
		for i := range m {
			for j := range k {
				part.Set(i, j, a.At(i, j))
			}
		}
		big := upload(t, d, room)
		for name, x := range map[string]DeviceMatrix[T]{
			"dense": upload(t, d, a), "transposed": upload(t, d, a.T().clone()).T(),
			"of a transpose": upload(t, d, a.T().clone().T()), "of a part": upload(t, d, part),
			"a part": big.Sub(1, 1, m, k), "a part of the transpose": big.T().Sub(1, 1, k, m).T(),
		} {
			sameAs(t, name+" downloaded", download(t, x), plain(a, identity[T](k)))
			for bname, y := range map[string]DeviceMatrix[T]{"B": upload(t, d, b), "Bᵀᵀ": upload(t, d, b.T().clone()).T()} {
				out, err := NewDeviceMatrix[T](d, m+1, n+2)
				if err != nil {
					t.Fatal(err)
				}
				back, err := NewDeviceMatrix[T](d, n, m)
				if err != nil {
					t.Fatal(err)
				}
				for cname, c := range map[string]DeviceMatrix[T]{"a part": out.Sub(1, 2, m, n), "a transpose": back.T()} {
					if err := Gemm(t.Context(), 1, x, y, 0, c); err != nil {
						t.Fatal(err)
					}
					sameAs(t, "A "+name+" · "+bname+" into "+cname, download(t, c), want)
				}
			}
		}
	}
}

func identity[T dtype.Float](n int) Matrix[T] {
	m := New[T](n, n)
	for i := range n {
		m.Set(i, i, dtype.FromFloat64[T](1))
	}
	return m
}

// TestResidentViewsOfEveryType checks products of views on a device for each float type.
func TestResidentViewsOfEveryType(t *testing.T) {
	substitute(t, 0)
	t.Run("float64", testResidentViews[float64])
	t.Run("float32", testResidentViews[float32])
	t.Run("float16", testResidentViews[dtype.Float16])
	t.Run("bfloat16", testResidentViews[dtype.BFloat16])
}

// TestResidentEpilogues compares products of device matrices with products on the CPU: with alpha
// and beta, a row or column bias, an activation, and a result wider than the operands.
func TestResidentEpilogues(t *testing.T) {
	substitute(t, 0)
	d := on(t, "emu")
	rng := rand.New(rand.NewPCG(5, 6))
	a, b, c0 := whole[dtype.Float16](rng, 9, 7), whole[dtype.Float16](rng, 7, 10), whole[float32](rng, 9, 10)
	row, col := whole[float32](rng, 1, 9), whole[float32](rng, 1, 10)
	da, db, drow, dcol := upload(t, d, a), upload(t, d, b), upload(t, d, row), upload(t, d, col)
	for name, o := range map[string]struct{ host, device []Option }{
		"no epilogue":   {nil, nil},
		"host row bias": {[]Option{WithRowBias(Vector(row.Data()...))}, []Option{WithRowBias(Vector(row.Data()...))}},
		"row bias":      {[]Option{WithRowBias(Vector(row.Data()...))}, []Option{WithRowBias(drow)}},
		"column bias":   {[]Option{WithColBias(Vector(col.Data()...))}, []Option{WithColBias(dcol.T())}},
		"last bias wins": {[]Option{WithColBias(Vector(col.Data()...))},
			[]Option{WithColBias(Vector(make([]float32, 10)...)), WithColBias(dcol)}},
		"column bias, relu": {[]Option{WithColBias(Vector(col.Data()...)), WithReLU()},
			[]Option{WithColBias(dcol), WithReLU()}},
		"kernel":         {nil, []Option{WithKernel("tiled:16"), WithDevice("emu")}},
		"default kernel": {[]Option{WithKernel("default")}, []Option{WithKernel("default")}},
	} {
		c := c0.clone()
		if err := Gemm(t.Context(), -2, a, b, 3, c, append(o.host, WithDevice("cpu"))...); err != nil {
			t.Fatal(err)
		}
		dc := upload(t, d, c0)
		if err := Gemm(t.Context(), -2, da, db, 3, dc, o.device...); err != nil {
			t.Fatal(name, err)
		}
		sameAs(t, name, download(t, dc), plain(c, identity[float32](10)))
	}

	x, y := upload(t, d, FromSlice(1, 2, []int8{100, 100})), upload(t, d, FromSlice(2, 1, []int8{100, 27}))
	z := upload(t, d, FromSlice(1, 1, []int32{1}))
	if err := Gemm(t.Context(), 2, x, y, -1, z); err != nil {
		t.Fatal(err)
	}
	if got := download(t, z).At(0, 0); got != 25399 {
		t.Errorf("2·12700 - 1 is %d, want 25399", got)
	}
}

// TestResidualAnywhere checks that a residual may start at any element of a matrix. With split-K,
// the first launch has wider results and does not read the residual.
func TestResidualAnywhere(t *testing.T) {
	d := on(t, "emu")
	a, b := New[dtype.BFloat16](1, 511), New[dtype.BFloat16](511, 1)
	for i := range 511 {
		a.Set(0, i, dtype.FromFloat64[dtype.BFloat16](1))
		b.Set(i, 0, dtype.FromFloat64[dtype.BFloat16](float64(i%3-1)))
	}
	residual := FromSlice(1, 3, []dtype.BFloat16{0, dtype.FromFloat64[dtype.BFloat16](5), 0})
	onA, onB, onResidual := upload(t, d, a), upload(t, d, b), upload(t, d, residual)
	for _, kernel := range []string{"naive", "blocked", "blocked:4x256x8/4x4/4*2", "mma"} {
		c, err := Mul(t.Context(), onA, onB, WithResidual(onResidual.Sub(0, 1, 1, 1)), WithKernel(kernel))
		if err != nil {
			t.Errorf("%s: %v", kernel, err)
			continue
		}
		if got := download(t, c).At(0, 0).Float64(); got != 4 { // the 511 products -1, 0, 1, -1, … sum to -1
			t.Errorf("%s: got %v, want 4", kernel, got)
		}
	}
}

// TestResidentCopies checks copies to and from a device for combinations of transposed matrices and
// parts of matrices. Elements outside the parts must not change.
func TestResidentCopies(t *testing.T) {
	substitute(t, 0)
	d := on(t, "emu")
	rng := rand.New(rand.NewPCG(7, 8))
	a := whole[float64](rng, 4, 6)
	want := plain(a, identity[float64](6))
	for name, from := range map[string]Matrix[float64]{"dense": a, "transposed": a.T().clone().T()} {
		for dname, m := range map[string]DeviceMatrix[float64]{
			"dense": upload(t, d, New[float64](4, 6)), "transposed": upload(t, d, New[float64](6, 4)).T(),
			"a part": upload(t, d, New[float64](9, 9)).Sub(2, 3, 4, 6),
		} {
			if err := Copy(t.Context(), m, from); err != nil {
				t.Fatal(err)
			}
			room := whole[float64](rng, 8, 8)
			for tname, to := range map[string]Matrix[float64]{
				"dense": New[float64](4, 6), "transposed": New[float64](6, 4).T(), "a part": room.Sub(3, 1, 4, 6),
				"a part, transposed": room.T().Sub(3, 1, 4, 6),
			} {
				before := room.clone()
				if err := Copy(t.Context(), to, m); err != nil {
					t.Fatal(err)
				}
				sameAs(t, name+" to "+dname+" to "+tname, to, want)
				inside := 0
				for i := range before.data {
					if before.data[i] != room.data[i] {
						inside++
					}
				}
				if inside > 24 {
					t.Errorf("%s to %s to %s: %d elements changed, want at most 24", name, dname, tname, inside)
				}
			}
		}
	}
	if m := upload(t, d, a); m.Rows() != 4 || m.Cols() != 6 || m.T().Rows() != 6 || m.T().Cols() != 4 || m.Transposed() ||
		!m.T().Transposed() || m.Err() != nil {
		t.Errorf("a 4×6 matrix is %d×%d", m.Rows(), m.Cols())
	}
}

// TestResidentEmpty checks products of device matrices without elements.
func TestResidentEmpty(t *testing.T) {
	substitute(t, 0)
	d := on(t, "emu")
	a, b := upload(t, d, New[float32](3, 0)), upload(t, d, New[float32](0, 2))
	c := upload(t, d, FromSlice(3, 2, []float32{1, 2, 3, 4, 5, 6}))
	if err := Gemm(t.Context(), 1, a, b, 2, c); err != nil {
		t.Fatal(err)
	}
	sameAs(t, "empty product + 2·C", download(t, c), []float64{2, 4, 6, 8, 10, 12})
	none, err := Mul(t.Context(), b, c.T().Sub(0, 0, 2, 0))
	if err != nil {
		t.Fatal(err)
	}
	if h := download(t, none); h.Rows() != 0 || h.Cols() != 0 {
		t.Errorf("0×2 · 2×0 is %d×%d", h.Rows(), h.Cols())
	}
}

// TestChain multiplies a chain of matrices on a device and frees intermediate results while the
// device may still use them. No intermediate result may be copied to the host.
func TestChain(t *testing.T) {
	devices := substitute(t, 0)
	d := on(t, "emu")
	rng := rand.New(rand.NewPCG(9, 10))
	x := whole[float32](rng, 20, 20)
	w := make([]Matrix[float32], 4)
	h := upload(t, d, x)
	before := devices("emu").Calls()
	onDevice := make([]DeviceMatrix[float32], len(w))
	for i := range w {
		w[i] = FromSlice(20, 20, make([]float32, 400))
		for j := range 20 {
			w[i].Set(j, rng.IntN(20), 1)
		}
		onDevice[i] = upload(t, d, w[i])
		next, err := Mul(t.Context(), h, onDevice[i])
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		h = next
	}
	want := x
	for i := range w {
		want = FromSlice(20, 20, func() []float32 {
			var v []float32
			for _, sum := range plain(want, w[i]) {
				v = append(v, float32(sum))
			}
			return v
		}())
	}
	sameAs(t, "the chain", download(t, h), plain(want, identity[float32](20)))
	// Each product makes two allocations, a copy, a launch and a free. Compiling the kernel and
	// downloading the result are the other calls.
	if n := devices("emu").Calls() - before; n != 4*5+2+1 {
		t.Errorf("%d device calls, want %d", n, 4*5+2+1)
	}
	runtime.KeepAlive(onDevice) // otherwise frees by the garbage collector would count
	if err := d.Sync(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestOuterProduct checks a large product X·Y by comparing (X·Y)·Z with X·(Y·Z) for a Z with few
// columns.
func TestOuterProduct(t *testing.T) {
	substitute(t, 0)
	outerProduct[float32, float32](t, on(t, "emu"), 40)
}

// outerProduct multiplies an n×8 by an 8×n matrix on a device, multiplies the product and its
// transpose by five columns, and compares the results with the CPU. All sums are whole numbers, and
// their magnitudes are below 2^24 up to n = 2^18.
func outerProduct[I, O dtype.Element](t *testing.T, d *Device, n int, opts ...Option) {
	t.Helper()
	rng := rand.New(rand.NewPCG(21, 22))
	sign := func(rows, cols int) (m Matrix[I], wide Matrix[float64]) {
		m, wide = New[I](rows, cols), New[float64](rows, cols)
		for i := range wide.data {
			wide.data[i] = float64(rng.IntN(3) - 1)
			m.data[i] = dtype.FromFloat64[I](wide.data[i])
		}
		return m, wide
	}
	x, wideX := sign(n, 8)
	y, wideY := sign(8, n)
	z, wideZ := sign(n, 5)
	dx, dy, dz := upload(t, d, x), upload(t, d, y), upload(t, d, z)
	p, err := NewDeviceMatrix[I](d, n, n)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := Gemm(t.Context(), 1, dx, dy, 0, p, opts...); err != nil {
		t.Fatal(err)
	}
	q := upload(t, d, New[O](n, 5))
	for _, way := range []struct {
		p           DeviceMatrix[I]
		left, right Matrix[float64]
	}{{p, wideX, wideY}, {p.T(), wideY.T(), wideX.T()}} {
		if err := Gemm(t.Context(), 1, way.p, dz, 0, q, opts...); err != nil {
			t.Fatal(err)
		}
		inner, err := Mul(t.Context(), way.right, wideZ, WithDevice("cpu"))
		if err != nil {
			t.Fatal(err)
		}
		want, err := Mul(t.Context(), way.left, inner, WithDevice("cpu"))
		if err != nil {
			t.Fatal(err)
		}
		got := download(t, q)
		for i, v := range got.data {
			if dtype.ToFloat64(v) != want.data[i] {
				t.Fatalf("transposed %v: element (%d, %d) is %v, want %v", way.p.Transposed(), i/5, i%5, v, want.data[i])
			}
		}
	}
}
