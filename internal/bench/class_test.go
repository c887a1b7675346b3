package bench

import (
	"slices"
	"strings"
	"testing"

	"tilework/dtype"
)

// TestClasses checks the class of products at the borders of size and alignment.
func TestClasses(t *testing.T) {
	for _, c := range []struct {
		shape   Shape
		in, out dtype.Type
		want    string
	}{
		{Shape{499, 100, 1000}, dtype.F32, dtype.F32, "below 0.1 GFLOP"},
		{Shape{500, 100, 1000}, dtype.F32, dtype.F32, "0.1 to 10 GFLOP, aligned rows"},
		{Shape{500, 101, 1000}, dtype.F32, dtype.F32, "from 0.1 GFLOP, unaligned rows"},
		{Shape{500, 100, 1000}, dtype.BF16, dtype.BF16, "from 0.1 GFLOP, unaligned rows"}, // rows of B have 200 bytes
		{Shape{500, 104, 1002}, dtype.BF16, dtype.BF16, "from 0.1 GFLOP, unaligned rows"}, // those of A have 2004
		{Shape{500, 104, 1000}, dtype.BF16, dtype.BF16, "0.1 to 10 GFLOP, aligned rows"},
		{Shape{4999, 1000, 1000}, dtype.F32, dtype.F32, "0.1 to 10 GFLOP, aligned rows"},
		{Shape{5000, 1000, 1000}, dtype.F32, dtype.F32, "from 10 GFLOP, aligned rows"},
		{Shape{5000, 1001, 1000}, dtype.F32, dtype.F32, "from 0.1 GFLOP, unaligned rows"},
	} {
		p := shape(t, c.shape, c.in, c.out)
		r := newRecord(&p)
		if got := classes[r.class()].Name; got != c.want {
			t.Errorf("%v in %v: got class %q, want %q", c.shape, c.in, got, c.want)
		}
	}
}

// TestClassLines checks the lines of a suite's classes, and that few cases have none.
func TestClassLines(t *testing.T) {
	var records []Record
	add := func(s Shape, speed float64) {
		c := shape(t, s, dtype.F32, dtype.F32)
		r := newRecord(&c)
		r.Subject, r.Environment = "a", *quick(nil).Environment
		r.Seconds.Median, r.Peak = r.Flops()/1e9, 4 // 1 GFLOP/s
		r.GFLOPS = 1
		r.Versus = []Ratio{{Peer: "p", Speed: speed, Low: speed, High: speed}}
		records = append(records, r)
	}
	for range 9 {
		add(Cube(16), 2)
	}
	for range 8 {
		add(Cube(1000), 0.5)
	}
	add(Cube(1000), 1)
	add(Shape{1000, 1001, 1000}, 4)
	few := slices.Clone(records)
	add(Cube(16), 2)
	lines := []string{
		"- below 0.1 GFLOP: geometric mean 2.000, slower in 0 of 10, worst 2.000; median 1 GFLOP/s, 25 % of the peak",
		"- from 0.1 GFLOP, unaligned rows: geometric mean 4.000, slower in 0 of 1, worst 4.000; median 1 GFLOP/s, " +
			"25 % of the peak",
		"- 0.1 to 10 GFLOP, aligned rows: geometric mean 0.540, slower in 8 of 9, worst 0.500; median 1 GFLOP/s, " +
			"25 % of the peak",
	}
	if got := summaryLines(records); len(got) != 4 || !slices.Equal(got[1:], lines) {
		t.Errorf("got lines\n%s\nwant one and\n%s", strings.Join(got, "\n"), strings.Join(lines, "\n"))
	}
	if got := summaryLines(few); len(got) != 1 {
		t.Errorf("%d cases: got lines\n%s\nwant one", len(few), strings.Join(got, "\n"))
	}
	if got := summaryLines(slices.Repeat(records[:1], 20)); len(got) != 1 {
		t.Errorf("one class: got lines\n%s\nwant one", strings.Join(got, "\n"))
	}
}
