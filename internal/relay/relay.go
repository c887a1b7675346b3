// Package relay runs functions on goroutines and relays their panics to the goroutine that waits
// for them. A panic on any other goroutine ends the process, even if the caller recovers.
package relay

import (
	"context"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// Panics keeps the first panic of several goroutines. The zero value has none.
type Panics struct{ first atomic.Pointer[thrown] }

// thrown is a panic, or a call of [runtime.Goexit].
type thrown struct {
	value any
	stack []byte
	exit  bool
}

// Catch calls f and reports whether it returned. It keeps a panic of f, and a call of
// [runtime.Goexit], which ends the goroutine.
func (p *Panics) Catch(f func()) (returned bool) {
	defer func() {
		if returned {
			return
		}
		value := recover()
		p.first.CompareAndSwap(nil, &thrown{value, debug.Stack(), value == nil})
	}()
	f()
	return true
}

// Raise panics with the value of the panic that was kept, or calls [runtime.Goexit] if a goroutine
// did. Otherwise it does nothing. Nothing is kept afterwards. If the caller does not
// recover, the program also prints the stack of the goroutine that panicked first.
func (p *Panics) Raise() {
	switch t := p.first.Swap(nil); {
	case t == nil:
	case t.exit:
		runtime.Goexit()
	default:
		defer panic(t.value) // replaces the panic with the stack, but a crash prints both
		panic("on another goroutine: " + string(t.stack))
	}
}

// Group is a [sync.WaitGroup] whose Wait raises the first panic of its functions. The zero value is
// an empty group.
type Group struct {
	// Stop, unless nil, is called on the goroutine of each function that does not return, so that
	// the other functions can end.
	Stop func()

	all    sync.WaitGroup
	panics Panics
}

// Go calls f on a new goroutine.
func (g *Group) Go(f func()) {
	g.all.Go(func() {
		returned := false
		defer func() {
			if !returned && g.Stop != nil {
				g.Stop()
			}
		}()
		returned = g.panics.Catch(f)
	})
}

// Wait waits for all functions, and then panics if one of them did.
func (g *Group) Wait() {
	g.all.Wait()
	g.panics.Raise()
}

// Each calls f for 0 to n-1 at the same time. The first error ends the context of the others, and
// is returned with its number.
func Each(ctx context.Context, n int, f func(ctx context.Context, i int) error) (failed int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var once sync.Once
	all := Group{Stop: cancel}
	for i := range n {
		all.Go(func() {
			if e := f(ctx, i); e != nil {
				once.Do(func() { failed, err = i, e })
				cancel()
			}
		})
	}
	all.Wait()
	return failed, err
}
