package gemmtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"tilework/internal/gemm"
	"tilework/internal/ref"
)

// callers is the number of concurrent goroutines.
const callers = 4

// concurrent calls Gemm from several goroutines on different products.
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
			errs[i] = wants[i].Exactly(o.of[gemm.C].bytes())
		}
		if errs[i] != nil {
			return fmt.Errorf("caller %d of %d, %s: %w", i+1, callers, describe(&o.p), errs[i])
		}
	}
	return nil
}

// cancelLimit is the maximum time between cancellation and return. It is generous, so that the
// check passes on a loaded machine.
const cancelLimit = 5 * time.Second

// watchTime is the time for which the check looks for writes after a cancelled product has
// returned.
const watchTime = 2 * time.Millisecond

// cancel cancels the context before or during a product.
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
		return errors.New("got no error with a cancelled context, want the context's error")
	case err != nil && (ctx.Err() == nil || !errors.Is(err, context.Canceled)):
		return fmt.Errorf("got error %w, want the context's error", err)
	}
	select {
	case at := <-cancelled:
		if late := returned.Sub(at); late > cancelLimit {
			return fmt.Errorf("returned %v after cancellation, want at most %v", late, cancelLimit)
		}
	default: // the product completed before the cancellation
	}
	if err == nil {
		return want.Exactly(o.of[gemm.C].bytes())
	}
	o.of[gemm.C].remember()
	time.Sleep(watchTime)
	if err := o.of[gemm.C].checkUntouched(false); err != nil {
		return fmt.Errorf("after a cancelled product returned: %w", err)
	}
	return nil
}
