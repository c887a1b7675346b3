package testrand

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// recorder is a testing.TB with the given name that keeps its messages. Fatalf ends the
// goroutine.
type recorder struct {
	testing.TB
	name, logged, fatal string
}

func (r *recorder) Helper()      {}
func (r *recorder) Name() string { return r.name }

func (r *recorder) Logf(format string, args ...any) { r.logged += fmt.Sprintf(format, args...) }

func (r *recorder) Fatalf(format string, args ...any) {
	r.fatal += fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// seedOf returns the result of Seed for a test of the given name, with its log.
func seedOf(t *testing.T, name string) (seed uint64, r *recorder) {
	t.Helper()
	r = &recorder{TB: t, name: name}
	done := make(chan struct{})
	go func() {
		defer close(done)
		seed = Seed(r)
	}()
	<-done
	return seed, r
}

// TestSeed checks that seeds differ between tests and between runs, and that the logged number
// repeats them.
func TestSeed(t *testing.T) {
	t.Setenv(variable, "")
	one, log := seedOf(t, "TestA")
	if two, _ := seedOf(t, "TestA"); one == two {
		t.Errorf("two runs have the seed %d", one)
	}
	value, found := strings.CutPrefix(log.logged, variable+"=")
	if !found {
		t.Fatalf("logged %q, want %s=…", log.logged, variable)
	}
	t.Setenv(variable, value)
	if again, log := seedOf(t, "TestA"); again != one || log.logged != variable+"="+value {
		t.Errorf("seed %d, logged %q: want %d and %s=%s", again, log.logged, one, variable, value)
	}
	if other, _ := seedOf(t, "TestA/case"); other == one {
		t.Errorf("a test and its subtest have the seed %d", one)
	}
	n, err := strconv.ParseUint(value, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(variable, strconv.FormatUint(n+1, 10))
	if next, _ := seedOf(t, "TestA"); next == one {
		t.Errorf("two values of %s give the seed %d", variable, one)
	}
}

// TestInvalidSeed checks that a test fails if TILEWORK_SEED is not an integer of 64 bits.
func TestInvalidSeed(t *testing.T) {
	for _, value := range []string{"x", "-1", "1.5", "0x10", "18446744073709551616"} {
		t.Setenv(variable, value)
		_, log := seedOf(t, "TestA")
		if want := fmt.Sprintf("%s=%q: want an integer from 0 to 2^64 - 1", variable, value); log.fatal != want {
			t.Errorf("%s=%s failed the test with %q, want %q", variable, value, log.fatal, want)
		}
	}
}

// TestOneIn checks that samples have about the wanted size and differ between seeds, and that a few
// seeds select everything.
func TestOneIn(t *testing.T) {
	const n, size, seeds = 4, 1000, 60
	drawn, both := 0, 0
	for x := range size {
		times := 0
		for seed := range uint64(seeds) {
			if OneIn(n, seed, "x", x) {
				times++
			}
		}
		if times == 0 {
			t.Errorf("none of %d seeds selects %d", seeds, x)
		}
		drawn += times
		if OneIn(n, 1, "x", x) && OneIn(n, 2, "x", x) {
			both++
		}
	}
	if want := size * seeds / n; drawn < want*9/10 || drawn > want*11/10 {
		t.Errorf("%d seeds selected %d of %d, want about %d", seeds, drawn, size*seeds, want)
	}
	if want := size / n / n; both < want/2 || both > want*2 {
		t.Errorf("two seeds selected %d of %d, want about %d", both, size, want)
	}
}
