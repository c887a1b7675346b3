package check

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"tilework/ptx/emu"
)

// TestSanitizerRecord checks that the record of compute-sanitizer's answers lists the planted
// faults, and prints the table that it must have.
func TestSanitizerRecord(t *testing.T) {
	const record = "../../../docs/results/sanitizer-h100.md"
	text, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	for _, c := range planted {
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", c.kernel, c.finding(), cmp.Or(c.sanitizer, "-"))
	}
	if !strings.Contains(string(text), table.String()) {
		t.Errorf("%s does not contain the table\n%s", record, table.String())
	}
}

// finding describes the finding that the kernel must give.
func (c *compiled) finding() string {
	var found []string
	for _, checker := range strings.Fields(c.want) {
		if !strings.HasSuffix(checker, "?") {
			found = append(found, checker)
		}
	}
	for _, e := range []struct {
		err  error
		name string
	}{
		{emu.ErrDeadlock, "deadlock"}, {emu.ErrMisuse, "misuse"}, {emu.ErrAssert, "assertion"}, {emu.ErrTrap, "trap"},
		{emu.ErrLaunch, "refused launch"},
	} {
		if c.err != nil && errors.Is(c.err, e.err) {
			found = append(found, e.name)
		}
	}
	return cmp.Or(strings.Join(found, ", "), "advice")
}
