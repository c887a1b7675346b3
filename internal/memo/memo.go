// Package memo keeps the results of functions that are called again and again with the same
// arguments.
package memo

import (
	"cmp"
	"maps"
	"sync"
)

// limit is the number of entries of a table without a limit of its own. A full table is emptied:
// programs that repeat their calls need fewer entries, and others gain nothing from a table.
const limit = 1024

// A Table keeps one value for each of the last keys. The zero value is an empty table. Its methods
// are safe for concurrent use.
type Table[K comparable, V any] struct {
	Limit int // number of entries; 0 selects 1024

	mu     sync.Mutex
	values map[K]V
}

// Get returns the value of key. If the table has none, it calls compute, which must depend on key
// alone, and keeps the result unless there is an error. Several goroutines may compute the value of
// one key at the same time, and get the first result.
func (t *Table[K, V]) Get(key K, compute func() (V, error)) (V, error) {
	t.mu.Lock()
	v, ok := t.values[key]
	t.mu.Unlock()
	if ok {
		return v, nil
	}
	v, err := compute()
	if err != nil {
		return v, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if first, ok := t.values[key]; ok {
		return first, nil
	}
	if t.values == nil || len(t.values) >= cmp.Or(t.Limit, limit) {
		t.values = map[K]V{}
	}
	t.values[key] = v
	return v, nil
}

// All returns a copy of the entries.
func (t *Table[K, V]) All() map[K]V {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.values)
}

// Clear removes all entries.
func (t *Table[K, V]) Clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.values)
}
