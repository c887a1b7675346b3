package gemmtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"tilework/internal/ref"
)

// callers is how many goroutines call at once.
const callers = 4

func (t *trial) concurrent() error {
	trials := make([]*operands, callers)
	wants := make([]*ref.Result, callers)
	for i := range trials {
		o, err := t.product(kind{nonempty: true})
		if err != nil {
			return err
		}
		t.fillExact(o)
		trials[i], wants[i] = o, ref.Values(&o.p, o.buffers())
	}
	errs := make([]error, callers)
	var wg sync.WaitGroup
	for i, o := range trials {
		wg.Go(func() { errs[i] = t.call(t.ctx, o) })
	}
	wg.Wait()
	for i, o := range trials {
		if errs[i] == nil {
			errs[i] = wants[i].Exactly(o.c.bytes())
		}
		if errs[i] != nil {
			return fmt.Errorf("caller %d of %d, %s: %w", i+1, callers, describe(&o.p), errs[i])
		}
	}
	return nil
}

// soon is how long a product may go on after its context is cancelled: far more
// than it should take, as a loaded machine must not fail it.
const soon = 5 * time.Second

// watched is how long the memory is watched once a cancelled product has returned.
const watched = 2 * time.Millisecond

func (t *trial) cancel() error {
	o, err := t.product(kind{large: true})
	if err != nil {
		return err
	}
	t.fillExact(o)
	want := ref.Values(&o.p, o.buffers())
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	already := t.n%2 == 0
	cancelled := make(chan time.Time, 1)
	if already {
		cancel()
		cancelled <- time.Now()
	} else {
		delay := time.Duration(t.rng.IntN(500)) * time.Microsecond
		timer := time.AfterFunc(delay, func() { cancelled <- time.Now(); cancel() })
		defer timer.Stop()
	}
	err = t.call(ctx, o)
	returned := time.Now()
	switch {
	case err == nil && already:
		return errors.New("a context that was cancelled beforehand gave no error")
	case err != nil && (ctx.Err() == nil || !errors.Is(err, context.Canceled)):
		return fmt.Errorf("answered with %w, want the context's error", err)
	}
	select {
	case at := <-cancelled:
		if late := returned.Sub(at); late > soon {
			return fmt.Errorf("returned %v after it was cancelled", late)
		}
	default: // it was done first
	}
	if err == nil {
		return want.Exactly(o.c.bytes())
	}
	o.c.remember()
	time.Sleep(watched)
	if err := o.c.untouched(false); err != nil {
		return fmt.Errorf("after a cancelled product had returned: %w", err)
	}
	return nil
}
