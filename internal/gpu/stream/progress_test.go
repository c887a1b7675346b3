package stream

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"tilework/dtype"
	"tilework/internal/device/devicetest"
	"tilework/internal/device/emu"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	"tilework/internal/testkit"
	ptxemu "tilework/ptx/emu"
)

// TestRunReported checks that the goroutine of the caller reports progress while a product runs: no
// block but the first starts before the first report. It checks that a panic in a report ends the
// run and reaches the caller.
func TestRunReported(t *testing.T) {
	for _, panics := range []bool{false, true} {
		reported := make(chan struct{})
		d, err := emu.Open(emu.Options{Watch: func(l *ptxemu.Launch) emu.Done {
			l.Observers = append(l.Observers, startObserver(func(block int) {
				if block > 0 {
					<-reported
				}
			}))
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		p := testkit.Product(t, dtype.F32, dtype.F32, 64, 64, 3)
		b := gemm.Buffers{make([]byte, p.A().Bytes()), make([]byte, p.B().Bytes()), make([]byte, p.C().Bytes())}
		backend := New(d)
		pl, err := backend.Plan(p, exec.Options{Kernel: "naive", Tile: "16"})
		if err != nil {
			t.Fatal(err)
		}
		var reports, last int64
		var ended atomic.Bool
		thrown, err := caught(func() error {
			return RunReported(t.Context(), []*Plan{pl}, func(done, total int64) {
				if reports++; reports == 1 {
					defer close(reported)
					if panics {
						panic("in a report")
					}
				}
				if done <= last || done > total || total != 64*64*3 || done == total && !ended.Load() {
					t.Errorf("%d of %d after %d, ended: %v", done, total, last, ended.Load())
				}
				last = done
			}, func(ctx context.Context) error {
				err := pl.Run(ctx, b)
				ended.Store(true)
				return err
			})
		})
		switch {
		case panics && (fmt.Sprint(thrown) != "in a report" || reports != 1 || !ended.Load()):
			t.Errorf("panic %v after %d reports, the run has ended: %v", thrown, reports, ended.Load())
		case !panics && (err != nil || thrown != nil || reports < 2 || last != 64*64*3):
			t.Errorf("error %v, panic %v, %d reports, the last of %d", err, thrown, reports, last)
		}
		if err := errors.Join(backend.Close(), d.Close()); err != nil {
			t.Error(err)
		}
	}
}

// startObserver is an observer that is called with each block that starts.
type startObserver func(block int)

// Block implements [ptxemu.Observer].
func (o startObserver) Block(b *ptxemu.BlockInfo) *ptxemu.Hooks {
	o(b.Linear)
	return nil
}

// caught returns the value of f's panic, or the error of f.
func caught(f func() error) (thrown any, err error) {
	defer func() { thrown = recover() }()
	return nil, f()
}

// TestRunReportedFails checks that a failed run reports no end, and that the error is that of run.
func TestRunReportedFails(t *testing.T) {
	p, b := small(t, 0)
	pl, err := New(devicetest.NewNull()).Plan(p, exec.Options{Kernel: "naive"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err = RunReported(ctx, []*Plan{pl}, func(done, total int64) { t.Errorf("reported %d of %d", done, total) },
		func(ctx context.Context) error { return pl.Run(ctx, b) })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
}
