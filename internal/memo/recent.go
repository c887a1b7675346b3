package memo

import "sync/atomic"

// recentSize is the number of places of a [Recent].
const recentSize = 512

// A Recent keeps values of recent keys, one for each place that the hash of a key selects. Reading
// takes no lock and some nanoseconds. The zero value is empty. Its methods are safe for concurrent
// use.
type Recent[K comparable, V any] struct {
	places [recentSize]atomic.Pointer[entry[K, V]]
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

// Get returns the value of key, and whether there is one. hash must depend on key alone.
func (r *Recent[K, V]) Get(hash uint64, key *K) (v V, ok bool) {
	if e := r.place(hash).Load(); e != nil && e.key == *key {
		return e.value, true
	}
	return v, false
}

// Put keeps the value of key, in the place of another key with an equal part of its hash.
func (r *Recent[K, V]) Put(hash uint64, key K, v V) {
	r.place(hash).Store(&entry[K, V]{key, v})
}

// place returns the place for a hash, by its upper bits.
func (r *Recent[K, V]) place(hash uint64) *atomic.Pointer[entry[K, V]] {
	return &r.places[hash>>32%recentSize]
}
