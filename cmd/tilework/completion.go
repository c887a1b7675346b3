package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tilework/internal/names"
)

// completionScripts lists the shells, with the functions that write their completion scripts.
var completionScripts = []struct {
	shell string
	write func(root *cobra.Command, w io.Writer) error
}{
	{"bash", func(root *cobra.Command, w io.Writer) error { return root.GenBashCompletionV2(w, true) }},
	{"fish", func(root *cobra.Command, w io.Writer) error { return root.GenFishCompletion(w, true) }},
	{"powershell", (*cobra.Command).GenPowerShellCompletionWithDesc},
	{"zsh", (*cobra.Command).GenZshCompletion},
}

func shellNames() []string {
	var names []string
	for _, s := range completionScripts {
		names = append(names, s.shell)
	}
	return names
}

// completionCommand returns a completion command that fails for an unknown shell. Cobra's own
// prints help and succeeds.
func completionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print the completion script for a shell",
		Long: `completion prints a script that makes a shell complete tilework's commands, flags and values.
SHELL is one of ` + strings.Join(shellNames(), ", ") + `. Load the script in your shell's startup file.`,
		Example: `  ~/.bashrc:                   source <(tilework completion bash)
  ~/.zshrc, after compinit:    source <(tilework completion zsh)
  ~/.config/fish/config.fish:  tilework completion fish | source
  $PROFILE of PowerShell:      tilework completion powershell | Out-String | iex`,
		ValidArgs: shellNames(),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("completion: want the name of one shell (%s)", strings.Join(shellNames(), ", "))
			}
			i := slices.Index(shellNames(), args[0])
			if i < 0 {
				return fmt.Errorf("completion: %w", names.Unknown("shell", args[0], shellNames()))
			}
			return completionScripts[i].write(c.Root(), c.OutOrStdout())
		},
	}
}

// plainCompletions removes the back quotes around the values of flags from the texts that shells
// show, if c completes a command line. Help texts need them.
func plainCompletions(c *cobra.Command, _ []string) {
	if c.Name() != cobra.ShellCompRequestCmd {
		return
	}
	for _, command := range append(c.Root().Commands(), c.Root()) {
		command.Flags().VisitAll(func(f *pflag.Flag) { f.Usage = strings.ReplaceAll(f.Usage, "`", "") })
	}
}
