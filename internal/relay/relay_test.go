package relay

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
)

// TestWaitPanics checks that Wait panics with the value of the first panic, after all functions
// have ended, and that the group can be used again.
func TestWaitPanics(t *testing.T) {
	type value struct{ n int }
	want := &value{1}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var ended atomic.Int32
	g := Group{Stop: cancel}
	for range 3 {
		g.Go(func() {
			<-ctx.Done()
			ended.Add(1)
		})
	}
	g.Go(func() { panic(want) })
	if got := recovered(g.Wait); got != want {
		t.Errorf("Wait panics with %v, want %v", got, want)
	}
	if n := ended.Load(); n != 3 {
		t.Errorf("%d functions have ended when Wait panics, want 3", n)
	}
	g.Go(func() {})
	if got := recovered(g.Wait); got != nil {
		t.Errorf("the second Wait panics with %v", got)
	}
}

func recovered(f func()) (value any) {
	defer func() { value = recover() }()
	f()
	return nil
}

// TestEach checks that the first error ends the other functions, and is returned with its number.
func TestEach(t *testing.T) {
	fault := errors.New("fault")
	failed, err := Each(t.Context(), 3, func(ctx context.Context, i int) error {
		if i == 1 {
			return fault
		}
		<-ctx.Done()
		return ctx.Err()
	})
	if failed != 1 || err != fault {
		t.Errorf("function %d failed with %v, want function 1 with %v", failed, err, fault)
	}
	if _, err := Each(t.Context(), 3, func(context.Context, int) error { return nil }); err != nil {
		t.Errorf("no function failed: error %v", err)
	}
}

// TestWaitExits checks that Wait ends its goroutine if a function has ended its own, as
// testing.T.FailNow does.
func TestWaitExits(t *testing.T) {
	ended, after := make(chan any, 1), false
	stopped := make(chan struct{})
	go func() {
		defer func() { ended <- recover() }()
		g := Group{Stop: func() { close(stopped) }}
		g.Go(func() { <-stopped })
		g.Go(runtime.Goexit)
		g.Wait()
		after = true
	}()
	if got := <-ended; got != nil || after {
		t.Errorf("Wait returned %v with panic %v, want neither", after, got)
	}
}

// TestCrashPrintsStack checks that a program that does not recover prints the value and the stack
// of the function that panicked.
func TestCrashPrintsStack(t *testing.T) {
	const name = "TILEWORK_TEST_CRASH"
	if os.Getenv(name) != "" {
		var g Group
		g.Go(crash)
		g.Wait()
	}
	c := exec.Command(os.Args[0], "-test.run=^TestCrashPrintsStack$")
	c.Env = append(os.Environ(), name+"=1")
	out, err := c.CombinedOutput()
	if err == nil {
		t.Fatal("the program with a panic ends without an error")
	}
	for _, want := range []string{"panic: no such tile", "relay.crash"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the program prints no %q:\n%s", want, out)
		}
	}
}

func crash() { panic("no such tile") }
