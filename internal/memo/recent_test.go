package memo

import (
	"sync"
	"testing"
)

// TestRecent checks that a value is kept for its key until a key with the same place replaces it,
// and that keys with equal hashes are not confused.
func TestRecent(t *testing.T) {
	var r Recent[string, int]
	const hash = 7 << 32
	a, b := "a", "b"
	if _, ok := r.Get(hash, &a); ok {
		t.Error("an empty Recent has a value")
	}
	r.Put(hash, a, 1)
	if v, ok := r.Get(hash, &a); !ok || v != 1 {
		t.Errorf("a: %d, %v, want 1", v, ok)
	}
	if v, ok := r.Get(hash, &b); ok {
		t.Errorf("b, with the hash of a: %d, want none", v)
	}
	r.Put(hash+recentSize<<32, b, 2) // the same place
	if _, ok := r.Get(hash, &a); ok {
		t.Error("a is still there after b took its place")
	}
}

// TestRecentConcurrently checks that several goroutines read the values of their keys only.
func TestRecentConcurrently(t *testing.T) {
	var r Recent[int, int]
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 10_000 {
				key := 4*i + g
				hash := uint64(i) << 32 // four keys for each place
				if v, ok := r.Get(hash, &key); ok && v != -key {
					t.Errorf("key %d: %d, want %d", key, v, -key)
				}
				r.Put(hash, key, -key)
			}
		})
	}
	wg.Wait()
}
