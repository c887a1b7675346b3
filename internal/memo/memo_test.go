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

// TestLimit checks that a table has no more entries than its limit, among them the last one.
func TestLimit(t *testing.T) {
	table := Table[int, int]{Limit: 3}
	for key := range 10 {
		table.Get(key, func() (int, error) { return key, nil })
		if all := table.All(); len(all) > 3 || all[key] != key {
			t.Fatalf("entries %v after key %d, want at most 3 with the last one", all, key)
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

// TestGetTwice computes a value while it is being computed. Both callers get the first result.
func TestGetTwice(t *testing.T) {
	var table Table[int, string]
	v, err := table.Get(1, func() (string, error) {
		if v, err := table.Get(1, func() (string, error) { return "first", nil }); v != "first" || err != nil {
			t.Errorf("the first result is %q, %v", v, err)
		}
		return "second", nil
	})
	if v != "first" || err != nil {
		t.Errorf("the second caller gets %q, %v", v, err)
	}
}
