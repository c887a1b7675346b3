package testkit

import (
	"os"
	"testing"
	"time"
)

// Full reports whether the environment variable TILEWORK_FULL is set. A test over a long list, such
// as the tiles of the GPU kernels, takes a representative part of the list unless Full is true.
func Full() bool { return os.Getenv("TILEWORK_FULL") != "" }

// Long reports whether the environment variable TILEWORK_LONG is set, which repeats randomised
// tests for hours.
func Long() bool { return os.Getenv("TILEWORK_LONG") != "" }

// Cases returns full if Full is true, else usual: the number of cases of a test, or the n of a
// sample of one in n.
func Cases(usual, full int) int {
	if Full() {
		return full
	}
	return usual
}

// Repeats returns the number of repetitions of a test: long if Long is true, else Short(usual).
func Repeats(usual, long int) int {
	if Long() {
		return long
	}
	return Short(usual)
}

// Short returns a tenth of n, but at least 1, with -short, and n otherwise. This is the only
// effect of -short: it is for tests that run many times slower than usual, such as under the race
// detector.
func Short(n int) int {
	if testing.Short() {
		return max(n/10, 1)
	}
	return n
}

// SoakTime returns the duration of a test that looks for leaks: the value of the environment
// variable TILEWORK_SOAK, such as "1h", or one second.
func SoakTime(t testing.TB) time.Duration {
	t.Helper()
	text := os.Getenv("TILEWORK_SOAK")
	if text == "" {
		return time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		t.Fatalf("TILEWORK_SOAK=%s: want a duration, such as 1h", text)
	}
	return d
}
