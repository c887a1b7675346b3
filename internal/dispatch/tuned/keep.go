package tuned

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"tilework/internal/backend"
)

// Tuner stores and removes the tuned choices of one device.
type Tuner struct {
	store *store
	key   *backend.TuningKey
}

// For returns the tuner of the devices with a key.
func For(key *backend.TuningKey) Tuner { return Tuner{currentStore(), key} }

// Key returns the key under which the cache stores the choice for a form.
func (u Tuner) Key(f Form) string { return cacheKey(u.key, f) }

// Lock waits until no other process measures with the same cache; see [cache.Cache.Lock].
func (u Tuner) Lock(ctx context.Context, waiting func()) (unlock func(), err error) {
	return u.store.cache.Lock(ctx, waiting)
}

// Keep makes plans of this process and of later ones use a choice. If it returns an error, later
// processes do not use it. A repeated choice has the bits of earlier plans, which need not change.
func (u Tuner) Keep(x Tuned) error {
	u.change(func(choices map[Form]*Tuned) { choices[x.Form] = &x })
	if !x.Repeated {
		changes.Add(1)
	}
	return u.store.cache.Put(u.Key(x.Form), x)
}

// Drop makes plans use the default choice again.
func (u Tuner) Drop(f Form) error {
	u.change(func(choices map[Form]*Tuned) { delete(choices, f) })
	changes.Add(1)
	return u.store.cache.Remove(u.Key(f))
}

// change replaces the choices of the device by a modified copy.
func (u Tuner) change(modify func(map[Form]*Tuned)) {
	in := u.store.slot(u.key)
	old := u.store.table(u.key, in)
	next := &table{maps.Clone(old.choices), old.stale}
	modify(next.choices)
	in.Store(next)
}

// Changes returns a number that grows whenever earlier plans may be out of date: this process has
// stored a choice that tuning found, or removed one.
func Changes() uint64 { return changes.Load() }

// Kept is a tuned choice in the cache.
type Kept struct {
	Tuned
	// Stale reports whether a choice for the CPU was tuned with other kernels or on another CPU. For
	// a GPU this is unknown until the GPU is used.
	Stale bool `json:"stale"`
}

// All lists the choices in the cache, for all devices. The key is that of the CPU.
func All(cpu *backend.TuningKey) []Kept {
	var all []Kept
	currentStore().cache.All(func(entry string, value []byte) {
		var x Tuned
		if json.Unmarshal(value, &x) != nil || !x.valid() {
			return
		}
		_, ours := matches(cpu, entry)
		all = append(all, Kept{x, x.Tile == "" && !ours})
	})
	return all
}

// Clear removes all tuned choices from the cache and returns their number.
func Clear() (int, error) {
	s := currentStore()
	n, err := s.cache.Clear()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, in := range s.slots {
		in.Store(nil)
	}
	changes.Add(1)
	return n, err
}

// Dir returns the directory of the tuned choices, or "" if they are not stored.
func Dir() string { return currentStore().cache.Dir() }

// Notes lists the problems of the cache, one line each: files that could not be read or written,
// and choices that are out of date.
func Notes() []string {
	s := currentStore()
	notes := s.cache.Problems()
	for i, n := range notes {
		notes[i] = "cache: " + n + " (ignored)"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	stale := 0
	for _, in := range s.slots {
		if t := in.Load(); t != nil {
			stale += t.stale
		}
	}
	if stale > 0 {
		notes = append(notes, fmt.Sprintf("cache: tuned choices for other kernels, or another driver, are ignored: "+
			"%d in %s (tune again, or tilework tune --clear)", stale, s.cache.Dir()))
	}
	return notes
}
