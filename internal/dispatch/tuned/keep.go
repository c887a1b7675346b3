package tuned

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"tilework/internal/gpu/exec"
)

// Tuner keeps and drops the tuned choices of one device.
type Tuner struct {
	t       *tunings
	setting setting
	put     func(*book) // has plans use another book
	book    func() *book
}

// ProcessorTuner is that of the processor.
func CPUTuner() Tuner {
	t := theTunings()
	return Tuner{t, processorSetting(), t.cpu.Store, t.processor}
}

// GPUTuner is that of a GPU, and of all of its kind.
func GPUTuner(b *exec.Backend) Tuner {
	t, s := theTunings(), gpuSetting(b)
	return Tuner{t, s, func(n *book) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.gpus[s] = n
	}, func() *book { return t.gpu(b) }}
}

// Key returns the key under which the cache has the choice for a form.
func (u Tuner) Key(p Form) string { return u.setting.key(p) }

// Lock waits until no other process measures with the same cache, as [cache.Cache.Lock].
func (u Tuner) Lock(ctx context.Context, waiting func()) (unlock func(), err error) {
	return u.t.shelf.Lock(ctx, waiting)
}

// Keep has plans of this process use a choice from now on, and those of later ones. The
// error says why it could not be kept for those.
func (u Tuner) Keep(x Tuned) error {
	u.change(func(choices map[Form]*Tuned) { choices[x.Form] = &x })
	return u.t.shelf.Put(u.Key(x.Form), x)
}

// Drop has plans make their own choice again.
func (u Tuner) Drop(p Form) error {
	u.change(func(choices map[Form]*Tuned) { delete(choices, p) })
	return u.t.shelf.Remove(u.Key(p))
}

// change has plans use a book that differs in one choice.
func (u Tuner) change(f func(map[Form]*Tuned)) {
	old := u.book()
	next := &book{maps.Clone(old.choices), old.stale}
	f(next.choices)
	u.put(next)
	u.t.changes.Add(1)
}

// TuningChanges is a number that grows whenever this process keeps or drops a choice:
// what was planned before may be planned otherwise.
func Changes() uint64 { return theTunings().changes.Load() }

// Kept is a tuned choice in the cache.
type Kept struct {
	Tuned
	// Stale says that it was tuned with other kernels than the processor has now, or on
	// another processor. Of a GPU that is not known before it is used.
	Stale bool `json:"stale"`
}

// KeptTunings lists what the cache holds, for all devices.
func All() []Kept {
	here := processorSetting()
	var all []Kept
	theTunings().shelf.All(func(key string, value []byte) {
		var x Tuned
		if json.Unmarshal(value, &x) != nil || !x.valid() {
			return
		}
		_, ours := here.ours(key)
		all = append(all, Kept{x, x.Shape == "" && !ours})
	})
	return all
}

// ClearTunings removes all tuned choices from the cache and says how many.
func Clear() (int, error) {
	t := theTunings()
	n, err := t.shelf.Clear()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cpu.Store(nil)
	clear(t.gpus)
	t.changes.Add(1)
	return n, err
}

// TuningDir is where tuned choices are kept, empty if nowhere.
func Dir() string { return theTunings().shelf.Dir() }

// CacheNotes lists what is worth knowing of the cache, in a line each: what of it could
// not be read or written so far, and choices that are not used any more.
func Notes() []string {
	t := theTunings()
	notes := t.shelf.Problems()
	for i, n := range notes {
		notes[i] = "cache: " + n + " (ignored)"
	}
	stale := 0
	if b := t.cpu.Load(); b != nil {
		stale = b.stale
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, b := range t.gpus {
		stale += b.stale
	}
	if stale > 0 {
		notes = append(notes, fmt.Sprintf("cache: tuned choices for other kernels, or another driver, are ignored: %d in %s (tune again, or tilework tune --clear)", stale, t.shelf.Dir()))
	}
	return notes
}
