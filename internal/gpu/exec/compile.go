package exec

import (
	"context"
	"runtime"
	"slices"
	"time"

	"tilework/internal/relay"
)

// kernels returns the kernels that the plan launches, each once.
func (pl *Plan) kernels() (all []kernelKey) {
	for _, s := range pl.record().steps {
		if !slices.Contains(all, s.kernelKey) {
			all = append(all, s.kernelKey)
		}
	}
	return all
}

// Compile compiles the kernels of the plan that are not in the cache. The errors are those of
// [Plan.Enqueue].
func (pl *Plan) Compile(ctx context.Context) error {
	for _, key := range pl.kernels() {
		if _, err := pl.backend.Function(ctx, key.kernel, key.config); err != nil {
			return err
		}
	}
	return nil
}

// Precompile compiles the kernels of the plan that are not in the cache, so that [Plan.Compile]
// does not delay calls of other goroutines. It reports whether it has compiled all; see
// [device.Device].
func (pl *Plan) Precompile() bool {
	for _, key := range pl.kernels() {
		if pl.backend.isCompiled(key) {
			continue
		}
		source, err := sourceOf(key)
		if err != nil || !pl.backend.Device.Precompile(source) {
			return false
		}
	}
	return true
}

// CompileAll compiles plans, several at a time, and returns the error of each. It skips nil.
func CompileAll(ctx context.Context, plans []*Plan) []error {
	errs := make([]error, len(plans))
	var all relay.Group
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i, pl := range plans {
		if pl == nil {
			continue
		}
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			errs[i] = pl.Compile(ctx)
		})
	}
	all.Wait()
	return errs
}

// CompileTime returns the time to generate and compile the kernels of the plan, by whichever plan
// used them first. It is 0 if none is compiled yet.
func (pl *Plan) CompileTime() time.Duration {
	total := time.Duration(0)
	for _, key := range pl.kernels() {
		entry := pl.backend.entry(key)
		entry.mu.Lock()
		total += entry.took
		entry.mu.Unlock()
	}
	return total
}
