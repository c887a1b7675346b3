package testkit

import (
	"os"
	"testing"
	"time"
)

// Repeats returns the number of repetitions of a test: long if the environment variable
// TILEWORK_LONG is set, else short with -short, and usual otherwise.
func Repeats(short, usual, long int) int {
	switch {
	case os.Getenv("TILEWORK_LONG") != "":
		return long
	case testing.Short():
		return short
	}
	return usual
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
