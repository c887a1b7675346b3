package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/dispatch"
	"tilework/internal/gemm"
	"tilework/internal/names"
)

// flagError returns the error for a wrong flag. After an unknown command every flag is
// unknown, and the error is about the command.
func flagError(c *cobra.Command, err error) error {
	if c.HasSubCommands() && c.Flags().NArg() > 0 {
		return noArgs(c, c.Flags().Args())
	}
	var value *pflag.InvalidValueError
	if errors.As(err, &value) {
		if want, known := typeDocs[value.GetFlag().Value.Type()]; known {
			return fmt.Errorf("--%s %s: want %s (see %s --help)",
				value.GetFlag().Name, value.GetValue(), want, c.CommandPath())
		}
	}
	if missing, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		f := missing.GetFlag()
		value, _ := pflag.UnquoteUsage(f)
		return fmt.Errorf("--%s without a value: want --%s %s (see %s --help)", f.Name, f.Name, value, c.CommandPath())
	}
	hint := ""
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		var known []string
		c.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
		if similar := names.Similar(unknown.GetSpecifiedName(), known); similar != "" {
			hint = fmt.Sprintf("did you mean --%s? ", similar)
		}
	}
	return fmt.Errorf("%w (%ssee %s --help)", err, hint, c.CommandPath())
}

// typeDocs describes the types of flags in error messages.
var typeDocs = map[string]string{
	"int": "a whole number", "uint": "a whole number, 0 or more", "uint64": "a whole number, 0 or more",
	"float64": "a number",
	"bool":    "true or false", "duration": "a time with its unit, such as 200ms or 5s",
}

// parsePercent parses a percentage with or without the sign: it returns 0.05 for "5%" and "5".
func parsePercent(s string) (fraction float64, ok bool) {
	x, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(s, "%")), 64)
	return x / 100, err == nil
}

// exclusive makes c refuse two flags given together.
func exclusive(c *cobra.Command, one, other string) {
	before := c.PreRunE
	c.PreRunE = func(c *cobra.Command, args []string) error {
		if c.Flags().Changed(one) && c.Flags().Changed(other) {
			return fmt.Errorf("--%s and --%s exclude each other: want only one", one, other)
		}
		if before != nil {
			return before(c, args)
		}
		return nil
	}
}

// shapeFlag adds the flag --shape to c. --shapes is the same flag.
func shapeFlag(c *cobra.Command, shapes *string, usage string) {
	fl := c.Flags()
	fl.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "shapes" {
			name = "shape"
		}
		return pflag.NormalizedName(name)
	})
	fl.StringVar(shapes, "shape", "", usage)
}

// formatFlag adds the flag --format to c. The first format is the default.
func formatFlag(c *cobra.Command, format *string, formats ...string) {
	c.Flags().StringVar(format, "format", formats[0], "the output `FORMAT`: "+strings.Join(formats, ", "))
	complete(c, "format", formats...)
	old := c.PreRunE
	c.PreRunE = func(c *cobra.Command, args []string) error {
		switch {
		case !slices.Contains(formats, *format):
			return fmt.Errorf("--format: %w", names.Unknown("format", *format, formats))
		case old != nil:
			return old(c, args)
		}
		return nil
	}
}

// forceUsage describes --force. It is the rule of every command that writes files.
const forceUsage = "replace existing files (default: an existing file is an error)"

// forceFlag adds the flag --force to c.
func forceFlag(c *cobra.Command, force *bool) {
	c.Flags().BoolVar(force, "force", false, forceUsage)
}

// complete makes shell completion offer the values for a flag.
func complete(c *cobra.Command, flag string, values ...string) {
	// It fails only if the flag does not exist, or already has values.
	completions := cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
	if err := c.RegisterFlagCompletionFunc(flag, completions); err != nil {
		panic(err)
	}
}

// choice is the value of a flag that is true, false or not given.
type choice struct{ set, value bool }

func (c *choice) String() string { return strconv.FormatBool(c.value) }

func (c *choice) Type() string { return "bool" }

func (c *choice) Set(text string) (err error) {
	c.set = true
	c.value, err = strconv.ParseBool(text)
	return err
}

func (c *choice) addTo(fl *pflag.FlagSet, name, about string) {
	fl.Var(c, name, about)
	fl.Lookup(name).NoOptDefVal = "true"
}

// replace sets b to the value of the flag, if it was given.
func (c *choice) replace(b *bool) {
	if c.set {
		*b = c.value
	}
}

const rowInvariantDoc = "make each row of C independent of the other rows, to the last bit: in every batch, layout " +
	"and tile, and on all GPUs of an architecture"

func kernelNames() []string {
	var names []string
	for _, k := range dispatch.Kernels(backend.DeviceName{}) {
		names = append(names, k.Name)
	}
	return names
}

func typeNames() []string { return texts(dtype.All()) }

func precisionNames() []string { return texts(gemm.Precisions()) }

// texts returns the text of each value.
func texts[T fmt.Stringer](values []T) (all []string) {
	for _, v := range values {
		all = append(all, v.String())
	}
	return all
}

// precisionDocs returns the names of the precisions with their meanings.
func precisionDocs() string {
	var docs []string
	for _, p := range gemm.Precisions() {
		docs = append(docs, fmt.Sprintf("%v (%s)", p, p.Info().Doc))
	}
	return strings.Join(docs, ", ")
}
