package main

import (
	"strings"
	"testing"
)

// TestCompletion checks that each shell has a script, and that errors list the shells.
func TestCompletion(t *testing.T) {
	for _, shell := range shellNames() {
		if stdout, stderr, code := run(t.Context(), "completion", shell); code != 0 ||
			!strings.Contains(stdout, "tilework") || stderr != "" {
			t.Errorf("%s: exit code %d, %q, %q", shell, code, stdout, stderr)
		}
	}
	for args, want := range map[string]string{
		"zhs":      `completion: unknown shell "zhs" (did you mean "zsh"?): want one of bash, fish, powershell, zsh`,
		"nushell":  `completion: unknown shell "nushell": want one of bash, fish, powershell, zsh`,
		"":         "completion: want the name of one shell (bash, fish, powershell, zsh)",
		"zsh bash": "completion: want the name of one shell (bash, fish, powershell, zsh)",
	} {
		stdout, stderr, code := run(t.Context(), append([]string{"completion"}, strings.Fields(args)...)...)
		if code != 2 || stderr != want || stdout != "" {
			t.Errorf("%q: exit code %d, %q, %q; want %q", args, code, stdout, stderr, want)
		}
	}
}
