package testkit

import (
	"os"
	"testing"
	"time"
)

// Repeats is how often a test repeats itself: short with -short, long where the
// environment has TILEWORK_LONG, and usual otherwise.
func Repeats(short, usual, long int) int {
	switch {
	case os.Getenv("TILEWORK_LONG") != "":
		return long
	case testing.Short():
		return short
	}
	return usual
}

// Soak is how long a test goes on that looks for what grows: as long as TILEWORK_SOAK
// says ("1h"), or else a second.
func Soak(t testing.TB) time.Duration {
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
