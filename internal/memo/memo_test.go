package memo

import (
	"errors"
	"testing"
)

func TestGet(t *testing.T) {
	var table Table[int, string]
	calls := 0
	get := func(key int, err error) (string, error) {
		return table.Get(key, func() (string, error) {
			calls++
			return string(rune('a' + key%26)), err
		})
	}
	failure := errors.New("failure")
	if _, err := get(1, failure); err != failure {
		t.Errorf("error %v, want that of compute", err)
	}
	for range 3 {
		if v, err := get(1, nil); v != "b" || err != nil {
			t.Errorf("Get(1) = %q, %v", v, err)
		}
	}
	if calls != 2 {
		t.Errorf("%d calls of compute, want one after the error and one after it", calls)
	}
	for key := range 3 * limit {
		if v, _ := get(key, nil); v != string(rune('a'+key%26)) {
			t.Fatalf("Get(%d) = %q", key, v)
		}
		if len(table.values) > limit {
			t.Fatalf("%d entries, want %d at most", len(table.values), limit)
		}
	}
}

func TestGetAllocatesNothing(t *testing.T) {
	var table Table[[4]int, int]
	compute := func() (int, error) { return 1, nil }
	key := [4]int{1, 2, 3, 4}
	table.Get(key, compute)
	if n := testing.AllocsPerRun(100, func() { table.Get(key, compute) }); n != 0 {
		t.Errorf("%v allocations for a known key", n)
	}
}
