// Command tilework multiplies matrices in files, and measures and checks what
// multiplies them. `tilework --help` lists the verbs.
//
// Results go to standard output, progress and messages to standard error. The
// exit code is 0 when all is well, 1 when a check failed, 2 for wrong usage, bad
// input or an output that cannot be written, 3 when there is no such device, and
// 130 after an interruption.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tilework/internal/gemm"
	"tilework/internal/table"
)

func main() {
	ending := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup
		ending = append(ending, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ending...)
	// A second interruption ends the process at once.
	context.AfterFunc(ctx, stop)
	err := newCommand().ExecuteContext(ctx)
	code := exitCode(err)
	switch {
	case code == interrupted:
		fmt.Fprintln(os.Stderr, "tilework: interrupted")
	case err != nil:
		fmt.Fprintln(os.Stderr, "tilework:", err)
	}
	os.Exit(code)
}

// errCheck marks an error that says that a check failed.
var errCheck = errors.New("check failed")

const interrupted = 130 // 128 + SIGINT, as shells have it

func exitCode(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, gemm.ErrVerify), errors.Is(err, errCheck):
		return 1
	case errors.Is(err, gemm.ErrNoDevice):
		return 3
	case errors.Is(err, context.Canceled):
		return interrupted
	}
	return 2
}

// usageWidth is the width of the flags' descriptions, which are printed beside their names.
const usageWidth = 70

func newCommand() *cobra.Command {
	var version bool
	root := &cobra.Command{
		Use:   "tilework",
		Short: "Matrix multiplication, measured and checked",
		Long: `tilework multiplies matrices in files, on the processor, on an NVIDIA GPU or on an
emulated one; it measures and checks what multiplies them, and explains GPU kernels to
whoever writes or studies them.`,
		Example: `  tilework mul a.npy b.npy -o c.npy              multiply two files
  tilework mul a.npy b.npy -o c.npy --device gpu the same on a GPU
  tilework bench --sizes 256,1024 --peers all    measure beside other libraries
  tilework report r.jsonl -o report.html         what bench measured, as a page
  tilework selftest                              check every kernel on this machine
  tilework explain tiled --shape 1024x1024x1024  study a GPU kernel
  tilework emulate k.ptx --grid 4 --block 256    run PTX with race checkers`,
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
	root.Flags().BoolVar(&version, "version", false, "print the version, as tilework version does")
	root.AddCommand(
		mulCommand(), filesCommand(), benchCommand(), tuneCommand(), reportCommand(), selftestCommand(),
		explainCommand(), occupancyCommand(), emulateCommand(),
		kernelsCommand(), devicesCommand(), versionCommand(), completionCommand(),
	)
	root.SuggestionsMinimumDistance = 2
	root.SetFlagErrorFunc(flagError)
	root.SetHelpCommand(helpCommand())
	for _, c := range root.Commands() {
		c.Flags().VisitAll(func(f *pflag.Flag) { f.Usage = table.Fold(f.Usage, usageWidth) })
	}
	return root
}

// helpCommand is cobra's own, but for a mistake, which that answers with a page and with success.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "Help about any command",
		RunE: func(c *cobra.Command, args []string) error {
			about, rest, err := c.Root().Find(args)
			if err != nil { // of the root's alone, which says it in two lines
				about, rest = c.Root(), args
			}
			if err := noArgs(about, rest); err != nil {
				return err
			}
			return about.Help()
		},
	}
}

// flagError says what is wrong with a flag. The flags of a verb that there is not are
// unknown, and it is the verb that is told.
func flagError(c *cobra.Command, err error) error {
	if c.HasSubCommands() && c.Flags().NArg() > 0 {
		return noArgs(c, c.Flags().Args())
	}
	var value *pflag.InvalidValueError
	if errors.As(err, &value) {
		if want, known := wants[value.GetFlag().Value.Type()]; known {
			return fmt.Errorf("--%s %s: want %s (see %s --help)", value.GetFlag().Name, value.GetValue(), want, c.CommandPath())
		}
	}
	return fmt.Errorf("%w (see %s --help)", err, c.CommandPath())
}

// wants are flags' types in words.
var wants = map[string]string{
	"int": "a whole number", "uint": "a whole number from 0 on", "uint64": "a whole number from 0 on", "float64": "a number",
	"bool": "true or false", "duration": "a time with its unit, as in 200ms or 5s",
}

// exclusive refuses two flags of which only one can be given.
func exclusive(c *cobra.Command, one, other string) {
	before := c.PreRunE
	c.PreRunE = func(c *cobra.Command, args []string) error {
		if c.Flags().Changed(one) && c.Flags().Changed(other) {
			return fmt.Errorf("--%s and --%s: give one or the other", one, other)
		}
		if before != nil {
			return before(c, args)
		}
		return nil
	}
}

// noArgs refuses arguments; an unknown verb arrives here too.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if c.HasSubCommands() {
		msg := fmt.Sprintf("unknown command %q", args[0])
		if near := c.SuggestionsFor(args[0]); len(near) > 0 {
			msg += fmt.Sprintf(" (did you mean %q?)", near[0])
		}
		return fmt.Errorf("%s; see %s --help", msg, c.CommandPath())
	}
	return fmt.Errorf("unexpected argument %q; see %s --help", args[0], c.CommandPath())
}
