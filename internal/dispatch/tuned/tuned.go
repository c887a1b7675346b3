// Package tuned stores the choices that tuning has found to be faster than the default ones, and
// finds them again when a product is planned.
package tuned

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"tilework/internal/backend"
	"tilework/internal/cache"
	"tilework/internal/gemm"
)

// cacheKey returns the key under which the cache stores the choice for a form.
func cacheKey(k *backend.TuningKey, f Form) string {
	return fmt.Sprintf("tuned, %s, %s, %v", k.Device, k.Build, f)
}

// matches reports whether an entry of the cache is for the device of k, and whether it is for the
// build of k, too.
func matches(k *backend.TuningKey, entry string) (device, build bool) {
	device = strings.HasPrefix(entry, "tuned, "+k.Device+", ")
	return device, device && strings.HasPrefix(entry, "tuned, "+k.Device+", "+k.Build+", ")
}

// store holds the tuned choices of the cache as this process has read them. It reads them once, so
// that equal products get equal bits. Only tuning in this process changes them.
type store struct {
	cache *cache.Cache

	mu    sync.Mutex // guards slots, and is held while a table is read
	slots map[backend.TuningKey]*slot
}

// slot holds the choices for one key, or nil until they are needed.
type slot struct{ atomic.Pointer[table] }

// table holds the choices for one key. It is never modified.
type table struct {
	choices map[Form]*Tuned
	stale   int // number of choices for the device with other kernels or another driver
}

// current is the store of the process, or nil before its first use.
var current atomic.Pointer[store]

func currentStore() *store {
	if s := current.Load(); s != nil {
		return s
	}
	current.CompareAndSwap(nil, newStore(cache.Default()))
	return current.Load()
}

func newStore(c *cache.Cache) *store {
	return &store{cache: c.Section("tuned"), slots: map[backend.TuningKey]*slot{}}
}

// changes is [Changes].
var changes atomic.Uint64

// Substitute makes the package use another cache, as a new process would, until restore is called.
// It is for tests.
func Substitute(c *cache.Cache) (restore func()) {
	before := current.Swap(newStore(c))
	changes.Add(1)
	return func() {
		current.Store(before)
		changes.Add(1)
	}
}

// slot returns the slot of a key.
func (s *store) slot(k *backend.TuningKey) *slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.slots[*k] == nil {
		s.slots[*k] = &slot{}
	}
	return s.slots[*k]
}

// table returns the choices of a slot. It reads the cache on the first call.
func (s *store) table(k *backend.TuningKey, in *slot) *table {
	if t := in.Load(); t != nil {
		return t
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if in.Load() == nil {
		in.Store(s.read(k))
	}
	return in.Load()
}

// read reads the choices for a key from the cache.
func (s *store) read(k *backend.TuningKey) *table {
	t := &table{choices: map[Form]*Tuned{}}
	s.cache.All(func(entry string, value []byte) {
		device, build := matches(k, entry)
		if !device {
			return
		}
		if !build {
			t.stale++
			return
		}
		var x Tuned
		if json.Unmarshal(value, &x) == nil && x.valid() && entry == cacheKey(k, x.Form) {
			t.choices[x.Form] = &x
		}
	})
	return t
}

// Finder finds the choices tuned for one backend. It keeps their place, so that Find takes no time
// if there are none. The zero value is ready to use, by several goroutines at once.
type Finder struct{ last atomic.Pointer[place] }

// place is the slot of a backend in a store.
type place struct {
	store *store
	key   *backend.TuningKey
	slot  *slot
}

// Find returns the choice tuned for p on b, or nil.
func (f *Finder) Find(b backend.Tunable, p *gemm.Problem) *Tuned {
	at := f.last.Load()
	if at == nil || at.store != current.Load() {
		if at = f.locate(b); at == nil {
			return nil
		}
	}
	t := at.slot.Load()
	if t == nil {
		t = at.store.table(at.key, at.slot)
	}
	if len(t.choices) == 0 || !IsTunable(b, p) {
		return nil
	}
	return t.choices[FormOf(p)]
}

// IsTunable reports whether a choice may be tuned for p on b.
func IsTunable(b backend.Tunable, p *gemm.Problem) bool {
	if p.Batch.Kind != gemm.Single || p.BlockScaled() || !p.ReadsAB() {
		return false
	}
	for o := range gemm.C + 1 {
		if !b.IsTuned(p.Layouts[o]) {
			return false
		}
	}
	return true
}

// locate sets the place of a backend in the current store and returns it. It returns nil if the
// choices of the backend are not tuned.
func (f *Finder) locate(b backend.Tunable) *place {
	key := b.TuningKey()
	if key == nil {
		return nil
	}
	s := currentStore()
	at := &place{s, key, s.slot(key)}
	f.last.Store(at)
	return at
}
