// Package testrand seeds the random numbers of tests.
//
// Each test draws a new seed and logs it as a setting of the environment variable TILEWORK_SEED,
// which repeats a failure:
//
//	TILEWORK_SEED=123 go test -run '^TestName$' ./package
package testrand

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

const variable = "TILEWORK_SEED"

// New returns a generator with the seed [Seed](t).
func New(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(Seed(t), 0))
}

// Seed returns a seed that depends on the name of the test and on TILEWORK_SEED, or on a random
// number if the variable is empty. It logs the number. If TILEWORK_SEED is set, a second call in
// the same test returns the same seed. If it is no number, Seed fails the test.
func Seed(t testing.TB) uint64 {
	t.Helper()
	number := rand.Uint64()
	if text := os.Getenv(variable); text != "" {
		var err error
		if number, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s=%q: want an integer from 0 to 2^64 - 1", variable, text)
		}
	}
	t.Logf("%s=%d", variable, number)
	name := fnv.New64a()
	name.Write([]byte(t.Name()))
	return rand.NewPCG(number, name.Sum64()).Uint64()
}

// OneIn reports whether seed selects x for a sample of about one in n. Each x is selected with one
// of n seeds on average, so tests with other seeds take other samples.
func OneIn(n, seed uint64, x ...any) bool {
	h := fnv.New64a()
	fmt.Fprintln(h, x...)
	return rand.NewPCG(seed, h.Sum64()).Uint64()%n == 0
}
