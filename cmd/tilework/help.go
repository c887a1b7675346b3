package main

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"tilework/internal/table"
)

const (
	helpWidth  = 100 // columns of a help text
	usageWidth = 70  // columns of the description of a flag
)

// commandGroups lists the groups of commands in the order of the help.
var commandGroups = []*cobra.Group{
	{ID: "multiply", Title: "Multiply:"},
	{ID: "measure", Title: "Measure and check:"},
	{ID: "study", Title: "Study GPU kernels:"},
	{ID: "about", Title: "About this machine and program:"},
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
