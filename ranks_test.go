package tilework_test

import (
	"context"
	"errors"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tilework"
	"tilework/dtype"
	"tilework/ranks"
)

// eachRank calls f for n ranks of this process, each with a device, at the same time. It
// returns the errors by rank.
func eachRank(t *testing.T, n int, device string, f func(g *ranks.Group, d *tilework.Device) error) []error {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	errs := make([]error, n)
	var all sync.WaitGroup
	for r := range n {
		all.Go(func() {
			errs[r] = func() error {
				c := ranks.Config{Rank: r, Size: n, Address: listener.Addr().String(), Timeout: 20 * time.Second}
				if r == 0 {
					c.Listener = listener
				}
				g, err := ranks.Join(t.Context(), c)
				if err != nil {
					return err
				}
				defer g.Close()
				d, err := tilework.OpenRanks(t.Context(), g, device)
				if err != nil {
					return err
				}
				return errors.Join(f(g, d), d.Close(), d.Close())
			}()
		})
	}
	all.Wait()
	return errs
}

// uploaded returns a matrix of the ranks whose element (i, j) is f(i, j).
func uploaded(ctx context.Context, d *tilework.Device, rows, cols int, f func(i, j int) float64,
	opts ...tilework.Option) (tilework.DeviceMatrix[float64], error) {
	m, err := tilework.NewDeviceMatrix[float64](d, rows, cols, opts...)
	if err != nil {
		return m, err
	}
	row, col, rows, cols := m.Part()
	part := tilework.New[float64](rows, cols)
	for i := range rows {
		for j := range cols {
			part.Set(i, j, f(row+i, col+j))
		}
	}
	return m, tilework.Copy(ctx, m, part)
}

// TestRanksMatrix checks views and parts of matrices, and a product with options, on every layout.
func TestRanksMatrix(t *testing.T) {
	element := func(i, j int) float64 { return float64(i*10 + j) }
	if err := errors.Join(eachRank(t, 3, "cpu", func(g *ranks.Group, d *tilework.Device) error {
		for _, division := range []tilework.Option{nil, tilework.WithColumnDivision(), tilework.WithCopyOnEach()} {
			a, err := uploaded(t.Context(), d, 48, 96, element, division)
			if err != nil {
				return err
			}
			got, err := a.T().Download(t.Context())
			if err != nil {
				return err
			}
			row, col, rows, cols := a.T().Part()
			if got.Rows() != rows || got.Cols() != cols || a.T().Rows() != 96 || a.T().Cols() != 48 || a.Err() != nil {
				t.Errorf("rank %d has %d×%d of the %d×%d transpose, want %d×%d", g.Rank(), got.Rows(), got.Cols(), a.T().Rows(),
					a.T().Cols(), rows, cols)
			}
			for i := range rows {
				for j := range cols {
					if want := element(col+j, row+i); got.At(i, j) != want {
						t.Fatalf("element (%d, %d) of the transpose is %v, want %v", row+i, col+j, got.At(i, j), want)
					}
				}
			}
			if err := tilework.Copy(t.Context(), a.T(), got); err != nil {
				return err
			}
			c, err := tilework.Mul(t.Context(), a, a.T(), tilework.WithReLU(),
				tilework.WithRowBias(tilework.Vector(slices.Repeat([]float64{-1000}, 48)...)))
			if err != nil {
				return err
			}
			part, err := c.Download(t.Context())
			if err != nil {
				return err
			}
			row, col, rows, cols = c.Part()
			for i := range rows {
				for j := range cols {
					want := -1000.
					for k := range 96 {
						want += element(row+i, k) * element(col+j, k)
					}
					if part.At(i, j) != max(want, 0) {
						t.Fatalf("element (%d, %d) of the product is %v, want %v", row+i, col+j, part.At(i, j), max(want, 0))
					}
				}
			}
			if err := errors.Join(a.Close(), a.T().Close(), c.Close()); err != nil {
				return err
			}
			if _, err := a.Download(t.Context()); !errors.Is(err, tilework.ErrClosed) {
				t.Errorf("a closed matrix: error %v", err)
			}
		}
		return nil
	})...); err != nil {
		t.Error(err)
	}
}

// TestRanksRefuse checks the errors of operands and options. They are the same on all ranks, so the
// group goes on.
func TestRanksRefuse(t *testing.T) {
	host := tilework.New[float64](64, 64)
	if err := errors.Join(eachRank(t, 2, "cpu", func(g *ranks.Group, d *tilework.Device) error {
		ctx := t.Context()
		m, err := uploaded(ctx, d, 64, 64, func(i, j int) float64 { return 1 })
		if err != nil {
			return err
		}
		c, err := tilework.NewDeviceMatrix[float64](d, 64, 64)
		if err != nil {
			return err
		}
		flat, err := tilework.NewDeviceMatrix[float64](d, 63, 64)
		if err != nil {
			return err
		}
		quantised, err := tilework.NewDeviceMatrix[dtype.Float8E4M3](d, 128, 128)
		if err != nil {
			return err
		}
		sums, err := tilework.NewDeviceMatrix[float32](d, 128, 128)
		if err != nil {
			return err
		}
		scales := tilework.New[float32](128, 1)
		var none tilework.DeviceMatrix[float64]
		with := func(o ...tilework.Option) error { return tilework.Gemm(ctx, 1, m, m, 0, c, o...) }
		_, tooLarge := tilework.NewDeviceMatrix[float64](d, math.MaxInt, 2)
		_, negative := tilework.NewDeviceMatrix[float64](d, -1, 2)
		_, zero := tilework.NewDeviceMatrix[float64](nil, 1, 2)
		_, batch := tilework.NewDeviceBatch[float64](d, 2, 3, 4)
		_, product := tilework.Mul(ctx, m, none)
		for name, test := range map[string]struct {
			err, is error
			text    string
		}{
			"too large": {tooLarge, tilework.ErrShape, "more elements"},
			"negative":  {negative, tilework.ErrShape, "-1×2"},
			"no team":   {zero, tilework.ErrNoDevice, "OpenRanks"},
			"part":      {tilework.Copy(ctx, m, host), tilework.ErrShape, "32×64 on the device and 64×64 on the host"},
			"view":      {m.Sub(0, 0, 8, 8).Err(), tilework.ErrUnsupported, "a part of a matrix of several ranks"},
			"batch":     {m.Batch(1, 0).Err(), tilework.ErrUnsupported, "a batch on several ranks"},
			"new batch": {batch, tilework.ErrUnsupported, "a batch on several ranks"},
		} {
			if !errors.Is(test.err, test.is) || !strings.Contains(test.err.Error(), test.text) {
				t.Errorf("%s: error %v, want %v with %q", name, test.err, test.is, test.text)
			}
		}
		// These are collective, and therefore in one order.
		for _, test := range []struct {
			err, is error
			text    string
		}{
			{product, tilework.ErrNoDevice, "B on no device"},
			{tilework.Gemm(ctx, 1, m, flat, 0, c), tilework.ErrShape, "A is 64×64 and B is 63×64"},
			{tilework.Gemm(ctx, 1, host, m, 0, c), tilework.ErrUnsupported, "C of several ranks and A of one"},
			{tilework.Gemm(ctx, 1, m, m, 0, host), tilework.ErrUnsupported, "A of several ranks and C of one"},
			{tilework.Gemm(ctx, 1, m, c.T(), 0, c), tilework.ErrOverlap, "C shares memory with B"},
			{with(tilework.WithDevice("cpu")), tilework.ErrUnsupported, "device cpu"},
			{tilework.Gemm(ctx, 1, quantised, quantised, 0, sums, tilework.WithBlockScales(scales, scales.T())),
				tilework.ErrUnsupported, "block scales of matrices of several ranks"},
			{with(tilework.WithVerify()), tilework.ErrUnsupported, "verifying"},
			{with(tilework.WithResidual(host)), tilework.ErrUnsupported, "residual"},
			{with(tilework.WithKernel("no-such")), tilework.ErrUnsupported, "no-such"},
		} {
			if !errors.Is(test.err, test.is) || !strings.Contains(test.err.Error(), test.text) {
				t.Errorf("error %v, want %v with %q", test.err, test.is, test.text)
			}
		}
		return g.Err()
	})...); err != nil {
		t.Error(err)
	}
	var none *tilework.Device
	_, err := tilework.NewDeviceMatrix[float64](none, 1, 1, tilework.WithColumnDivision(), tilework.WithCopyOnEach())
	if !errors.Is(err, tilework.ErrNoDevice) {
		t.Errorf("no device: error %v", err)
	}
}

// TestRanksPlan checks the plan of a product, which all ranks ask for.
func TestRanksPlan(t *testing.T) {
	plans := make([]tilework.Plan, 2)
	if err := errors.Join(eachRank(t, 2, "emu", func(g *ranks.Group, d *tilework.Device) error {
		a, err := tilework.NewDeviceMatrix[float32](d, 4096, 4096)
		if err != nil {
			return err
		}
		c, err := tilework.NewDeviceMatrix[float32](d, 4096, 4096)
		if err != nil {
			return err
		}
		plans[g.Rank()], err = tilework.PlanGemm(t.Context(), a, a.T(), c)
		return err
	})...); err != nil {
		t.Fatal(err)
	}
	want := "; rank 0 computes rows 0 to 2047 in "
	if p := plans[0]; p != plans[1] || p.M != 4096 || p.Device != "emu" || p.Kernel == "" || p.Why == "" ||
		!strings.Contains(p.Detail, want) || !strings.HasSuffix(p.Detail, "; TCP (rank 0: there is no GPU)") {
		t.Errorf("plans %v and %v, want %q", plans[0], plans[1], want)
	}
}

// TestRanksDevices checks the errors of devices that do not exist, and of ranks with different
// ones.
func TestRanksDevices(t *testing.T) {
	for _, device := range []string{"abacus", "emu:h200,h200", "gpu:900"} {
		for r, err := range eachRank(t, 2, device, func(*ranks.Group, *tilework.Device) error { return nil }) {
			known := errors.Is(err, tilework.ErrNoDevice) || errors.Is(err, tilework.ErrUnsupported)
			if err == nil || !known && !errors.Is(err, ranks.ErrRank) {
				t.Errorf("%s: rank %d: error %v", device, r, err)
			}
		}
	}
}
