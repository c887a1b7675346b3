// Command tilework multiplies matrices stored in files, and measures, checks and explains
// the kernels that do it. `tilework --help` lists the commands.
//
// Results go to standard output, progress and messages to standard error. The exit code is 0 on
// success, 1 if a check or another rank failed, 2 for wrong usage, bad input or an output that
// cannot be written, 3 if the requested device does not exist or was lost, and 130 after an
// interruption.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"tilework/internal/gemm"
	"tilework/internal/names"
	"tilework/internal/sentinel"
	"tilework/ranks"
)

func main() {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	// After the first signal the default handling returns: a second one ends the process.
	context.AfterFunc(ctx, stop)
	cobra.EnableCommandSorting = false // the groups order them by use
	exit(execute(ctx, newCommand(), os.Args[1:]))
}

// exit prints err, unless it is nil, and ends the process.
func exit(err error) {
	code, stderr := exitCode(err), &textWriter{file: os.Stderr}
	switch {
	case code == exitInterrupted:
		fmt.Fprintln(stderr, "tilework: interrupted")
	case err != nil:
		fmt.Fprintln(stderr, "tilework:", err)
	}
	os.Exit(code)
}

// execute runs the command with arguments. Its error is also that of a help text: that of writing
// it, and that of an unknown command with --help. Cobra ignores both.
func execute(ctx context.Context, root *cobra.Command, args []string) error {
	root.SetArgs(stdinArgs(root, args))
	var failed error
	help := root.HelpFunc()
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		if c.HasSubCommands() { // an argument is an unknown command
			if failed = noArgs(c, c.Flags().Args()); failed != nil {
				return
			}
		}
		stdout, text := c.OutOrStdout(), new(bytes.Buffer)
		c.SetOut(text)
		help(c, args)
		c.SetOut(stdout)
		_, failed = stdout.Write(text.Bytes())
	})
	err := root.ExecuteContext(ctx)
	return cmp.Or(err, failed) // a call and a variable it sets have no order in one expression
}

// errCheck marks errors that report a failed check.
var errCheck = errors.New("check failed")

const exitInterrupted = 130 // 128 + SIGINT, the convention of shells

// exitCodes lists the exit codes of commands that have not crashed.
var exitCodes = []int{0, 1, 2, 3, exitInterrupted}

// exitCode returns the exit code for err, as listed in the package documentation.
func exitCode(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, gemm.ErrVerify), errors.Is(err, errCheck):
		return 1
	case errors.Is(err, sentinel.ErrNoDevice):
		return 3
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.Is(err, ranks.ErrRank), errors.Is(err, ranks.ErrDisagree), errors.Is(err, ranks.ErrSecret):
		return 1
	}
	return 2
}

func newCommand() *cobra.Command {
	var version bool
	root := &cobra.Command{
		Use:   "tilework",
		Short: "Matrix multiplication, measured and checked",
		Long: `tilework multiplies matrices stored in files, on the CPU, on an NVIDIA GPU or on an
emulated GPU. It also measures its kernels beside other libraries, checks their results,
and shows how its GPU kernels work.`,
		Example: `  tilework mul a.npy b.npy -o c.npy              multiply two files
  tilework mul a.npy b.npy -o c.npy --device gpu multiply them on a GPU
  tilework bench --sizes 256,1024 --peers all    compare with other libraries
  tilework report r.jsonl -o report.html         turn results into charts
  tilework selftest                              check every kernel
  tilework explain tiled --shape 1024x1024x1024  study a GPU kernel
  tilework emulate k.ptx --grid 4 --block 256    run PTX and look for races
  tilework study                                 watch GPU kernels in a browser`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if version {
				return writeVersion(c.OutOrStdout())
			}
			return c.Help()
		},
	}
	root.SetOut(&textWriter{file: os.Stdout})
	root.SetErr(&textWriter{file: os.Stderr})
	root.Flags().BoolVar(&version, "version", false, "print the version, like tilework version")
	root.AddGroup(commandGroups...)
	for i, group := range [][]*cobra.Command{
		{mulCommand(), filesCommand()},
		{benchCommand(), reportCommand(), tuneCommand(), fitCommand(), selftestCommand(), scalingCommand()},
		{studyCommand(), explainCommand(), occupancyCommand(), emulateCommand()},
		{kernelsCommand(), devicesCommand(), versionCommand(), completionCommand()},
	} {
		for _, c := range group {
			c.GroupID = commandGroups[i].ID
		}
		root.AddCommand(group...)
	}
	root.PersistentPreRun = plainCompletions
	root.SetFlagErrorFunc(flagError)
	root.SetHelpCommand(helpCommand())
	root.SetHelpCommandGroupID(commandGroups[len(commandGroups)-1].ID)
	foldHelp(root)
	for _, c := range root.Commands() {
		c.Flags().SortFlags = false // the declarations group them by subject
	}
	return root
}

// noArgs refuses arguments. For a command with subcommands the first argument is an unknown
// subcommand.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if c.HasSubCommands() {
		var known []string
		for _, sub := range c.Commands() {
			known = append(known, sub.Name())
		}
		return fmt.Errorf("%w; see %s --help", names.Unknown("command", args[0], known), c.CommandPath())
	}
	return fmt.Errorf("unexpected argument %q; see %s --help", args[0], c.CommandPath())
}
