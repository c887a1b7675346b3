//go:build unix

package ranks_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tilework"
	"tilework/dtype"
	"tilework/ranks"
)

// The variables of a process that a test starts as a rank.
const (
	asRank      = "TILEWORK_TEST_RANK"       // the name of a script
	asDevice    = "TILEWORK_TEST_DEVICE"     // the device of the team
	asTransport = "TILEWORK_TEST_TRANSPORT"  // a part of the team's description, which is required
	asTimeout   = "TILEWORK_TEST_TIMEOUT"    // of the group
	asVersion   = "TILEWORK_TEST_VERSION"    // of the program
	asSizes     = "TILEWORK_TEST_SIZES"      // of products to measure: "64,8192"
	asFailing   = "TILEWORK_TEST_RANK_FAILS" // the number of the rank that the script lets fail
)

// scripts are the actions of a rank.
var scripts = map[string]func(context.Context, *ranks.Group) error{
	"products": func(ctx context.Context, g *ranks.Group) error {
		return withTeam(ctx, g, func(t *tilework.Device) error {
			for _, s := range testShapes {
				if os.Getenv(asDevice) == "emu" && s.m*s.n*s.k > 3<<20 && os.Getenv("TILEWORK_FULL") == "" {
					continue
				}
				if err := s.run(ctx, g, t); err != nil {
					return fmt.Errorf("%v: %w", s, err)
				}
			}
			return nil
		})
	},
	"large": func(ctx context.Context, g *ranks.Group) error {
		return withTeam(ctx, g, func(t *tilework.Device) error {
			for text := range strings.SplitSeq(os.Getenv(asSizes), ",") {
				n, err := strconv.Atoi(text)
				if err == nil {
					err = measure(ctx, g, t, n)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	},
	// Products without end, until a rank fails or is killed.
	"endless": func(ctx context.Context, g *ranks.Group) error {
		return withTeam(ctx, g, func(t *tilework.Device) error {
			s := testShape{600, 500, 400, "RRR", false}
			for i := 0; ; i++ {
				if err := s.run(ctx, g, t); err != nil {
					return err
				}
				if i == 1 {
					fmt.Println("computing")
				}
			}
		})
	},
	"shapes": func(ctx context.Context, g *ranks.Group) error {
		return withTeam(ctx, g, func(t *tilework.Device) error {
			s := testShape{60, 50, 40, "RRR", false}
			if fmt.Sprint(g.Rank()) == os.Getenv(asFailing) {
				s.n++
			}
			return s.run(ctx, g, t)
		})
	},
	"invalid": func(ctx context.Context, g *ranks.Group) error {
		return withTeam(ctx, g, func(t *tilework.Device) error {
			k := 40
			if fmt.Sprint(g.Rank()) == os.Getenv(asFailing) {
				k++
			}
			a, err := teamMatrix[float32](ctx, t, 60, 40, 1)
			if err != nil {
				return err
			}
			b, err := teamMatrix[float32](ctx, t, k, 50, 2)
			if err != nil {
				return err
			}
			_, err = tilework.Mul(ctx, a, b)
			return err
		})
	},
	// The last rank is late, but gives signs of life.
	"slow": func(ctx context.Context, g *ranks.Group) error {
		return withTeam(ctx, g, func(t *tilework.Device) error {
			if g.Rank() == g.Size()-1 {
				time.Sleep(3 * time.Second)
			}
			s := testShape{60, 50, 40, "RRR", false}
			return s.run(ctx, g, t)
		})
	},
	"memory": func(ctx context.Context, g *ranks.Group) error {
		return withTeam(ctx, g, func(t *tilework.Device) error {
			if fmt.Sprint(g.Rank()) != os.Getenv(asFailing) {
				s := testShape{60, 50, 40, "RRR", false}
				return s.run(ctx, g, t)
			}
			_, err := tilework.NewDeviceMatrix[float64](t, 1<<24, 1<<24)
			return err
		})
	},
}

// measure prints the best and the median time of a product of bfloat16 n×n matrices.
func measure(ctx context.Context, g *ranks.Group, t *tilework.Device, n int) error {
	var all [3]tilework.DeviceMatrix[dtype.BFloat16]
	for i := range all {
		var err error
		if all[i], err = tilework.NewDeviceMatrix[dtype.BFloat16](t, n, n); err != nil {
			return err
		}
		defer all[i].Close()
		_, _, rows, cols := all[i].Part()
		part := tilework.New[dtype.BFloat16](rows, cols)
		for j, data := 0, part.Data(); j < len(data); j += copy(data[j:], data[:max(j, 1)]) {
			if j == 0 {
				dtype.Of[dtype.BFloat16]().Set(dtype.Bytes(data), 0, 1.5)
			}
		}
		if err := tilework.Copy(ctx, all[i], part); err != nil {
			return err
		}
	}
	var times []time.Duration
	for range 9 {
		if err := g.Barrier(ctx, "the start"); err != nil {
			return err
		}
		start := time.Now()
		if err := tilework.Gemm(ctx, 1, all[0], all[1], 0, all[2]); err != nil {
			return err
		}
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	way, err := transport(ctx, t)
	if err != nil {
		return err
	}
	flops := 2 * float64(n) * float64(n) * float64(n)
	fmt.Printf("rank %d of %d, %s: bfloat16 %d³ in %v, median %v, %.0f TFLOP/s\n", g.Rank(), g.Size(), way, n, times[0],
		times[len(times)/2], flops/times[0].Seconds()/1e12)
	return nil
}

// testShape is a product of float32 with a layout for A, B and C: R for rows, C for columns and E
// for each.
type testShape struct {
	m, n, k    int
	layouts    string
	transposed bool // A and B are views
}

var testShapes = []testShape{
	{300, 200, 130, "RRR", false}, {300, 200, 130, "RCR", false}, {200, 300, 130, "CRC", true},
	{128, 512, 256, "RRC", false}, {257, 129, 65, "CCE", true}, {3, 700, 90, "RCR", false}, {64, 64, 64, "ERR", false},
	{1000, 300, 200, "ECC", false}, {1, 1, 1, "RRR", false}, {400, 1, 300, "RRR", false},
}

// element returns an element of a matrix, with rounding errors in sums of products.
func element(seed, i, j int) float32 { return float32((i*31+j*17+seed*7)%101)/37 - 1.3 }

// teamMatrix makes a matrix of the ranks and fills this rank's part.
func teamMatrix[T dtype.Element](ctx context.Context, t *tilework.Device, rows, cols, seed int) (
	tilework.DeviceMatrix[T], error) {
	m, err := tilework.NewDeviceMatrix[T](t, rows, cols)
	if err != nil {
		return m, err
	}
	return m, fill(ctx, m, seed)
}

// fill fills this rank's part of a matrix.
func fill[T dtype.Element](ctx context.Context, m tilework.DeviceMatrix[T], seed int) error {
	row, col, rows, cols := m.Part()
	part, typ := tilework.New[T](rows, cols), dtype.Of[T]()
	bytes := dtype.Bytes(part.Data())
	for i := range rows {
		for j := range cols {
			typ.Set(bytes, i*cols+j, float64(element(seed, row+i, col+j)))
		}
	}
	return tilework.Copy(ctx, m, part)
}

// whole returns the same matrix in the host's memory. Its rows begin at multiples of 16 bytes, as
// those of a team do.
func whole(rows, cols, seed int) tilework.Matrix[float32] {
	m := padded(rows, cols)
	for i := range rows {
		for j := range cols {
			m.Set(i, j, element(seed, i, j))
		}
	}
	return m
}

// divisions holds the options for the divisions of a matrix.
var divisions = map[byte]tilework.Option{'R': nil, 'C': tilework.WithColumnDivision(), 'E': tilework.WithCopyOnEach()}

// run computes a product with a bias and a residual, and compares this rank's part of C with that
// of the same product on one device of the same kind, bit for bit.
func (s testShape) run(ctx context.Context, g *ranks.Group, t *tilework.Device) error {
	var close []interface{ Close() error }
	defer func() {
		for _, m := range close {
			m.Close()
		}
	}()
	matrix := func(rows, cols, seed int, letter byte, transposed bool) (m tilework.DeviceMatrix[float32], err error) {
		if transposed {
			rows, cols = cols, rows
		}
		if m, err = tilework.NewDeviceMatrix[float32](t, rows, cols, divisions[letter]); err != nil {
			return m, err
		}
		close = append(close, m)
		if transposed {
			m = m.T()
		}
		return m, fill(ctx, m, seed)
	}
	a, err := matrix(s.m, s.k, 1, s.layouts[0], s.transposed)
	if err != nil {
		return err
	}
	b, err := matrix(s.k, s.n, 2, s.layouts[1], s.transposed)
	if err != nil {
		return err
	}
	c, err := matrix(s.m, s.n, 3, s.layouts[2], false)
	if err != nil {
		return err
	}
	bias := whole(1, s.n, 4)
	if err := tilework.Gemm(ctx, 0.5, a, b, 2, c, tilework.WithColBias(bias)); err != nil {
		return err
	}
	got, err := c.Download(ctx)
	if err != nil {
		return err
	}
	want, err := s.want(ctx, bias)
	if err != nil {
		return err
	}
	row, col, rows, cols := c.Part()
	for i := range rows {
		for j := range cols {
			if x, y := got.At(i, j), want.At(row+i, col+j); math.Float32bits(x) != math.Float32bits(y) {
				return fmt.Errorf("rank %d: element (%d, %d) is %v, want the bits of %v", g.Rank(), row+i, col+j, x, y)
			}
		}
	}
	return nil
}

// want computes the product on one device.
func (s testShape) want(ctx context.Context, bias tilework.Matrix[float32]) (tilework.Matrix[float32], error) {
	a, b, c := whole(s.m, s.k, 1), whole(s.k, s.n, 2), whole(s.m, s.n, 3)
	if s.transposed {
		a, b = transposed(a), transposed(b)
	}
	device := os.Getenv(asDevice)
	if device == "cpu" {
		return c, tilework.Gemm(ctx, 0.5, a, b, 2, c, tilework.WithColBias(bias), tilework.WithDevice(device))
	}
	d, err := tilework.Open(device)
	if err != nil {
		return c, err
	}
	defer d.Close()
	var on [3]tilework.DeviceMatrix[float32]
	for i, m := range []tilework.Matrix[float32]{a, b, c} {
		if on[i], err = tilework.Upload(ctx, d, m); err != nil {
			return c, err
		}
	}
	if err := tilework.Gemm(ctx, 0.5, on[0], on[1], 2, on[2], tilework.WithColBias(bias)); err != nil {
		return c, err
	}
	return on[2].Download(ctx)
}

func padded(rows, cols int) tilework.Matrix[float32] {
	stride := (cols + 3) / 4 * 4
	if cols == 1 {
		stride = 1
	}
	return tilework.FromStrided(rows, cols, stride, make([]float32, rows*stride))
}

// transposed returns the same matrix, stored by columns.
func transposed(m tilework.Matrix[float32]) tilework.Matrix[float32] {
	t := padded(m.Cols(), m.Rows())
	for i := range m.Rows() {
		for j := range m.Cols() {
			t.Set(j, i, m.At(i, j))
		}
	}
	return t.T()
}

// withTeam opens a team, checks its transport, and closes it after f.
func withTeam(ctx context.Context, g *ranks.Group, f func(*tilework.Device) error) error {
	t, err := tilework.OpenRanks(ctx, g, os.Getenv(asDevice))
	if err != nil {
		return err
	}
	way, err := transport(ctx, t)
	if want := os.Getenv(asTransport); err == nil && !strings.Contains(way, want) {
		err = fmt.Errorf("the ranks use %s, want %s", way, want)
	}
	if err == nil {
		err = f(t)
	}
	return errors.Join(err, t.Close())
}

// transport returns the description of the way between the ranks, which ends the detail of a plan.
func transport(ctx context.Context, t *tilework.Device) (string, error) {
	a, err := tilework.NewDeviceMatrix[float32](t, 1, 1)
	if err != nil {
		return "", err
	}
	c, err := tilework.Mul(ctx, a, a)
	if err != nil {
		return "", err
	}
	plan, err := tilework.PlanGemm(ctx, a, a, c)
	return plan.Detail[strings.LastIndex(plan.Detail, ";")+1:], errors.Join(err, a.Close(), c.Close())
}

// TestAsRank is a rank, if a test has started this process as one.
func TestAsRank(t *testing.T) {
	script, ok := scripts[os.Getenv(asRank)]
	if !ok {
		t.Skip("other tests run it in separate processes")
	}
	timeout, err := time.ParseDuration(os.Getenv(asTimeout))
	if err != nil {
		t.Fatal(err)
	}
	config := ranks.Config{Timeout: timeout, Version: os.Getenv(asVersion)}
	if os.Getenv("RANK") == "0" {
		inherited := os.NewFile(3, "listener") // the first one after the standard streams
		if config.Listener, err = net.FileListener(inherited); err != nil {
			t.Fatal(err)
		}
		inherited.Close()
	}
	g, err := ranks.Join(t.Context(), config)
	if err == nil {
		err = errors.Join(script(t.Context(), g), g.Close())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "rank:", err)
		os.Exit(1)
	}
	fmt.Println("rank: ok")
	os.Exit(0) // without the report of a test, and with the threads of the CPU's products
}
