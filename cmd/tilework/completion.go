package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// completionScripts write the scripts for shells by their names.
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

// completionCommand replaces cobra's own, which answers an unknown shell with help and success.
func completionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print the script that completes commands and flags in a shell",
		Long: `completion prints the script that completes the commands, flags and values of tilework in
` + strings.Join(shellNames(), ", ") + `. Load it in the file that the shell reads at its start.`,
		Example: `  source <(tilework completion bash)                              in ~/.bashrc
  source <(tilework completion zsh)                               in ~/.zshrc, after compinit
  tilework completion fish | source                               in ~/.config/fish/config.fish
  tilework completion powershell | Out-String | Invoke-Expression in $PROFILE`,
		ValidArgs: shellNames(),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("completion: want the name of one shell (%s)", strings.Join(shellNames(), ", "))
			}
			i := slices.Index(shellNames(), args[0])
			if i < 0 {
				return fmt.Errorf("completion: unknown shell %q%s (want %s)", args[0], meant(args[0], shellNames()), strings.Join(shellNames(), ", "))
			}
			return completionScripts[i].write(c.Root(), c.OutOrStdout())
		},
	}
}
