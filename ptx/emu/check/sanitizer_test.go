package check

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"testing"

	"tilework/internal/testkit"
	"tilework/ptx/emu"
)

// TestSanitizerRecord checks the tables of the record of compute-sanitizer's answers.
func TestSanitizerRecord(t *testing.T) {
	const record = "../../../docs/results/sanitizer-h100.md"
	faults, counted := [][]string{{"fault", "emulator", "compute-sanitizer"}}, map[string]int{}
	for _, c := range planted {
		faults = append(faults, []string{"`" + c.kernel + "`", c.finding(), cmp.Or(c.sanitizer, "-")})
		counted[c.sanitizer]++
	}
	testkit.CheckPage(t, record, "computed: faults, by ptx/emu/check.TestSanitizerRecord", testkit.Table(faults...))

	const both = "memcheck synccheck"
	counted["memcheck"] += counted[both]
	answers := [][]string{{fmt.Sprintf("answer for the %d faults", len(planted)), "faults"}}
	for _, r := range []struct{ answer, text string }{
		{"racecheck", "racecheck reports an error or a warning"},
		{"memcheck", fmt.Sprintf("memcheck reports an error, in %d of them synccheck too", counted[both])},
		{"synccheck", "synccheck reports an error"},
		{"initcheck", "initcheck reports an error"},
		{"ptxas", "ptxas refuses the kernel"},
		{"hangs", "the kernel hangs until the limit, under each tool, without a report"},
		{"", "no report"},
	} {
		answers = append(answers, []string{r.text, fmt.Sprint(counted[r.answer])})
	}
	testkit.CheckPage(t, record, "computed: answers, by ptx/emu/check.TestSanitizerRecord", testkit.Table(answers...))
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
