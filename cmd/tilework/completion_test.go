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

// TestCompletionTexts checks that shells show the texts of flags without back quotes, which mark
// the values of flags for the help.
func TestCompletionTexts(t *testing.T) {
	for _, command := range newCommand().Commands() {
		stdout, stderr, code := run(t.Context(), "__complete", command.Name(), "--")
		if code != 0 || strings.Contains(stdout, "`") || !strings.Contains(stdout, "--") {
			t.Errorf("%s: exit code %d, %q, %q", command.Name(), code, stdout, stderr)
		}
	}
	const want = "--dtypes\tcomma-separated element TYPES of A and B\n"
	if stdout, _, _ := run(t.Context(), "__complete", "bench", "--dt"); !strings.Contains(stdout, want) {
		t.Errorf("bench --dt: %q, want %q", stdout, want)
	}
	if stdout, _, _ := run(t.Context(), "bench", "--help"); !strings.Contains(stdout, "--dtypes TYPES") {
		t.Errorf("bench --help: %q, want --dtypes TYPES", stdout)
	}
}
