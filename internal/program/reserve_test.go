package program

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"tilework/internal/device"
)

// TestReserve checks that plans become smaller only while memory is lacking, that each plan that
// does not fit is freed before the next, and that the last error is returned.
func TestReserve(t *testing.T) {
	fault, closed := errors.New("fault"), errors.New("not freed")
	for _, c := range []struct {
		name     string
		errs     []error // of reserve, from the largest plan on
		free     error
		want     int
		err      error
		released []int
	}{
		{"fits", []error{nil}, nil, 3, nil, nil},
		{"smaller", []error{device.ErrOutOfMemory, device.ErrOutOfMemory, nil}, nil, 1, nil, []int{3, 2}},
		{"none fits", slices.Repeat([]error{device.ErrOutOfMemory}, 3), nil, 1, device.ErrOutOfMemory, []int{3, 2, 1}},
		{"fault", []error{device.ErrOutOfMemory, fault}, nil, 2, fault, []int{3, 2}},
		{"lost while freeing", []error{fault}, closed, 3, closed, []int{3}},
	} {
		var released []int
		got, err := Reserve(3, func(n int) error {
			if e := c.errs[3-n]; e != nil {
				return fmt.Errorf("plan %d: %w", n, e)
			}
			return nil
		}, func(n int) error {
			released = append(released, n)
			return c.free
		}, func(n int) (int, bool) { return n - 1, n > 1 })
		if got != c.want || !errors.Is(err, c.err) || !slices.Equal(released, c.released) {
			t.Errorf("%s: plan %d, error %v, freed %v, want plan %d, error %v, freed %v", c.name, got, err, released, c.want,
				c.err, c.released)
		}
	}
}
