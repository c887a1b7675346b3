package dtype

import "testing"

// Replace gives t other properties until the end of the test.
func Replace(tb testing.TB, t Type, in Info) {
	old := table[t]
	tb.Cleanup(func() { table[t] = old })
	table[t] = in
}
