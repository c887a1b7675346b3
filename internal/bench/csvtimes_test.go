package bench

import (
	"testing"

	"tilework/dtype"
)

// TestCSVTimes checks the titles and the rows of csv-times.
func TestCSVTimes(t *testing.T) {
	add := func(records []Record, s Shape, in dtype.Type, subject, device string, seconds float64) []Record {
		c := shape(t, s, in, in)
		c.Device, c.Threads = device, 0
		r := newRecord(&c)
		r.Subject, r.Seconds.Median = subject, seconds
		return append(records, r)
	}
	var squares []Record
	for i, n := range []int{16, 32} {
		squares = add(squares, Cube(n), dtype.F32, "loop", "cpu", float64(i+1))
		squares = add(squares, Cube(n), dtype.F32, "naive", "gpu", 0.5)
	}
	copied := add(nil, Cube(32), dtype.F32, "naive", "gpu", 0.75)
	copied[0].Transfers = true
	failed := add(nil, Cube(64), dtype.F32, "naive", "gpu", 0)
	failed[0].Error = "out of memory"
	one := add(nil, Cube(16), dtype.F32, "loop", "cpu", 3)
	one[0].Threads = 1
	shapes := add(nil, Shape{1, 2, 3}, dtype.F32, "a", "cpu", 1)
	shapes = add(shapes, Shape{1, 2, 3}, dtype.F64, "a", "cpu", 2)
	shapes = add(shapes, Shape{1, 2, 3}, dtype.F64, "a", "cpu", 4)
	for _, c := range []struct {
		records []Record
		want    string
	}{
		{nil, "N\n"},
		{squares[:1], "N,loop_seconds\n16,1\n"},
		{squares, "N,loop_cpu_seconds,naive_gpu_seconds\n16,1,0.5\n32,2,0.5\n"},
		{append(squares[1:2:2], copied...), "N,naive_seconds,naive_transfers=yes_seconds\n16,0.5,\n32,,0.75\n"},
		{append(squares[1:2:2], failed...), "N,naive_seconds\n16,0.5\n"},
		{append(squares[:1:1], one...), "N,loop_threads=all_seconds,loop_threads=1_seconds\n16,1,3\n"},
		{shapes, "MxNxK,a_float32_seconds,a_float64_seconds\n1x2x3,1,4\n"},
	} {
		if got := write(t, "csv-times", c.records); got != c.want {
			t.Errorf("got\n%s\nwant\n%s", got, c.want)
		}
	}
}
