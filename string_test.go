package tilework_test

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"tilework"
	"tilework/dtype"
	"tilework/ptx/build"
	"tilework/ranks"
)

func ExampleMatrix_String() {
	a := tilework.FromSlice(2, 3, []float32{1, -2.5, 3, 4, 5, 1e10})
	fmt.Println(a)
	fmt.Println(a.T())

	b := tilework.New[int32](1000, 2000)
	for i := range b.Rows() {
		for j := range b.Cols() {
			b.Set(i, j, int32(i+j))
		}
	}
	fmt.Println(b)
	fmt.Println(a.Sub(1, 1, 5, 5))
	// Output:
	// 2×3 float32
	// [[1 -2.5     3]
	//  [4    5 1e+10]]
	// 3×2 float32
	// [[   1     4]
	//  [-2.5     5]
	//  [   3 1e+10]]
	// 1000×2000 int32
	// [[  0    1    2 … 1997 1998 1999]
	//  [  1    2    3 … 1998 1999 2000]
	//  [  2    3    4 … 1999 2000 2001]
	//  …
	//  [997  998  999 … 2994 2995 2996]
	//  [998  999 1000 … 2995 2996 2997]
	//  [999 1000 1001 … 2996 2997 2998]]
	// invalid float32 matrix: shapes do not fit: a 5×5 part from (1, 1) of a 2×3 matrix
}

func TestMatrixString(t *testing.T) {
	nan := float32(math.NaN())
	for _, c := range []struct {
		m    fmt.Stringer
		want string
	}{
		{tilework.Matrix[float64]{}, "0×0 float64\n[]"},
		{tilework.New[int8](0, 3), "0×3 int8\n[]"},
		{tilework.New[int8](2, 0), "2×0 int8\n[[]\n []]"},
		{tilework.New[dtype.BFloat16](1, 8), "1×8 bfloat16\n[[0 0 0 0 0 0 0 0]]"},
		{tilework.New[dtype.Float8E4M3](1, 9), "1×9 float8_e4m3fn\n[[0 0 0 … 0 0 0]]"},
		{tilework.New[float32](9, 1), "9×1 float32\n[[0]\n [0]\n [0]\n …\n [0]\n [0]\n [0]]"},
		{tilework.FromSlice(1, 2, []int32{math.MinInt32, math.MaxInt32}), "1×2 int32\n[[-2147483648 2147483647]]"},
		{tilework.FromSlice(1, 3, []float32{1.0 / 3, nan, float32(math.Inf(-1))}), "1×3 float32\n[[0.333333 NaN -Inf]]"},
		{tilework.FromStrided(2, 2, 3, []float64{1, 2, 99, 3, 4}), "2×2 float64\n[[1 2]\n [3 4]]"},
		{tilework.FromStrided(2, 2, 3, []float64{1, 2, 99, 3, 4}).T(), "2×2 float64\n[[1 3]\n [2 4]]"},
		{tilework.DeviceMatrix[float32]{}, "0×0 float32 matrix on no device"},
	} {
		if got := c.m.String(); got != c.want {
			t.Errorf("got\n%s\nwant\n%s", got, c.want)
		}
	}
}

// TestPublicStrings prints a value of each public type that hides its fields. None may print an
// address.
func TestPublicStrings(t *testing.T) {
	ctx := t.Context()
	open := func(name string) *tilework.Device {
		d, err := tilework.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		return d
	}
	d, two := open("emu"), open("emu:h200,h200")
	batch, err := tilework.NewDeviceBatch[float32](d, 2, 3, 4)
	if err != nil {
		t.Fatal(err)
	}
	packed, err := tilework.Pack(ctx, tilework.New[float32](3, 4))
	if err != nil {
		t.Fatal(err)
	}
	g, err := ranks.Join(ctx, ranks.Config{Size: 1, Secret: []byte("sixteen-bytes-or-more")})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	rank, err := tilework.OpenRanks(ctx, g, "cpu")
	if err != nil {
		t.Fatal(err)
	}
	defer rank.Close()
	onRank, err := tilework.NewDeviceMatrix[float32](rank, 2, 3)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := tilework.NewDeviceFunc(func(k *build.Kernel, e tilework.DeviceElement) build.Reg { return e.Value })
	if err != nil {
		t.Fatal(err)
	}
	reads, err := tilework.NewDeviceFunc(func(k *build.Kernel, e tilework.DeviceElement) build.Reg {
		return k.Mul(e.Value, e.Data.At(e.Col).Load())
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		v    fmt.Stringer
		want string
	}{
		{d, "emu"},
		{two, "emu:h200,h200"},
		{(*tilework.Device)(nil), "no device"},
		{&tilework.Device{}, "no device"},
		{rank, "cpu of rank 0 of 1"},
		{onRank, "2×3 float32 matrix on cpu of rank 0 of 1"},
		{batch, "2 matrices of 3×4 float32 on emu"},
		{batch.T(), "2 matrices of 4×3 float32 on emu"},
		{tilework.DeviceBatch[int8]{}, "0 matrices of 0×0 int8 on no device"},
		{packed, "3×4 float32 matrix, packed"},
		{g, "rank 0 of 1"},
		{(*ranks.Group)(nil), "no group"},
		{plain, "device function"},
		{reads, "device function that reads data"},
		{(*tilework.DeviceFunc)(nil), "no device function"},
		{&tilework.DeviceFunc{}, "no device function"},
	} {
		if got := fmt.Sprint(c.v); got != c.want {
			t.Errorf("%T prints %q, want %q", c.v, got, c.want)
		}
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%d", "%x", "%q"} {
		if got := fmt.Sprintf(verb, g); got != "rank 0 of 1" {
			t.Errorf("a group prints %q with %s, want no secret", got, verb)
		}
	}
}

func TestDeviceMatrixString(t *testing.T) {
	d, err := tilework.Open("emu")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	m, err := tilework.NewDeviceMatrix[dtype.Float16](d, 2, 5)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if got, want := fmt.Sprint(m.T()), "5×2 float16 matrix on emu"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	bad := m.Sub(1, 1, 2, 2)
	if !errors.Is(bad.Err(), tilework.ErrShape) || bad.String() != "invalid float16 matrix: "+bad.Err().Error() {
		t.Errorf("%q", bad)
	}
}
