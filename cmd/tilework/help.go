package main

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"tilework/internal/table"
)

// helpWidth is the number of columns of a help text.
const helpWidth = 80

// commandGroups lists the groups of commands in the order of the help.
var commandGroups = []*cobra.Group{
	{ID: "multiply", Title: "Multiply:"},
	{ID: "measure", Title: "Measure and check:"},
	{ID: "study", Title: "Study GPU kernels:"},
	{ID: "about", Title: "About this machine and program:"},
}

// foldHelp formats the help of the commands for helpWidth columns.
func foldHelp(root *cobra.Command) {
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages",
		fmt.Sprint(".FlagUsagesWrapped ", helpWidth)))
	for _, c := range append(root.Commands(), root) {
		c.Long, c.Example = foldText(c.Long), foldExamples(c.Example)
	}
}

// foldText folds the paragraphs of a text. Indented lines, such as those of a list, stay as they
// are.
func foldText(text string) string {
	var folded, paragraph []string
	end := func() {
		if paragraph != nil {
			folded = append(folded, table.Fold(strings.Join(paragraph, " "), helpWidth))
			paragraph = nil
		}
	}
	for line := range strings.SplitSeq(text, "\n") {
		if line != "" && line[0] != ' ' {
			paragraph = append(paragraph, line)
			continue
		}
		end()
		folded = append(folded, line)
	}
	end()
	return strings.Join(folded, "\n")
}

// foldExamples breaks long command lines before a flag or an operator, as a shell allows.
func foldExamples(text string) string {
	const next = " \\\n     "
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		if utf8.RuneCountInString(line) > helpWidth {
			var b strings.Builder
			at := 0
			for part := range strings.SplitSeq(breakable.ReplaceAllString(line, "\n$1"), "\n") {
				width := utf8.RuneCountInString(part)
				if at > 0 && at+1+width+len(" \\") > helpWidth {
					b.WriteString(next)
					at = len(next) - len(" \\\n")
				}
				if at > 0 {
					b.WriteByte(' ')
					at++
				}
				b.WriteString(part)
				at += width
			}
			line = b.String()
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// breakable matches the start of a flag or an operator of the shell, with the space before it.
var breakable = regexp.MustCompile(` (-|\||&&)`)

// plural returns word, in the plural unless n is 1.
func plural(word string, n int) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

// definition is a term with its meaning.
type definition struct{ term, meaning string }

// definitions formats a list for a help text. The meanings start after width characters, and those
// of longer terms on a line of their own.
func definitions(width int, list []definition) string {
	indent := "\n" + strings.Repeat(" ", width+3)
	var b strings.Builder
	for _, d := range list {
		meaning := strings.ReplaceAll(table.Fold(d.meaning, helpWidth-width-3), "\n", indent)
		if utf8.RuneCountInString(d.term) > width {
			meaning = indent[1:] + meaning
			fmt.Fprintf(&b, "  %s\n%s\n", d.term, meaning)
			continue
		}
		fmt.Fprintf(&b, "  %-*s %s\n", width, d.term, meaning)
	}
	return strings.TrimRight(b.String(), "\n")
}

// helpCommand returns a help command that fails for an unknown command. Cobra's own prints
// the root's help and succeeds.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "Help about any command",
		RunE: func(c *cobra.Command, args []string) error {
			about, rest, err := c.Root().Find(args)
			if err != nil { // an unknown command of the root: noArgs reports it in one line
				about, rest = c.Root(), args
			}
			if err := noArgs(about, rest); err != nil {
				return err
			}
			return about.Help()
		},
	}
}
