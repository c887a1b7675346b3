package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"tilework"
	"tilework/internal/bench"
)

func kernelsCommand() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use:   "kernels",
		Short: "List the kernels, what each adds, and what it needs",
		Example: `  tilework kernels
  tilework kernels --format json`,
		Args: noArgs,
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		return writeList(c.OutOrStdout(), format, []column[tilework.KernelInfo]{
			{"KERNEL", func(k tilework.KernelInfo) any { return k.Name }},
			{"DEVICE", func(k tilework.KernelInfo) any { return k.Device }},
			{"HERE", func(k tilework.KernelInfo) any { return yesNo(k.Available) }},
			{"TYPES", func(k tilework.KernelInfo) any { return strings.Join(k.Types, " ") }},
			{"NEEDS", func(k tilework.KernelInfo) any { return orDash(k.Needs) }},
			{"WHAT IT ADDS", func(k tilework.KernelInfo) any { return k.Adds }},
		}, tilework.Kernels())
	}
	formatFlag(c, &format, listFormats...)
	return c
}

func devicesCommand() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use:     "devices",
		Short:   "List the devices that products can be computed on",
		Example: `  tilework devices`,
		Args:    noArgs,
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		devices, err := tilework.Devices()
		if err != nil {
			fmt.Fprintf(c.ErrOrStderr(), "no GPU: %v\n", err)
		}
		return writeList(c.OutOrStdout(), format, []column[tilework.DeviceInfo]{
			{"DEVICE", func(d tilework.DeviceInfo) any { return d.Name }},
			{"WHAT", func(d tilework.DeviceInfo) any { return d.Title }},
			{"CORES/SMS", func(d tilework.DeviceInfo) any { return d.Cores }},
			{"MEMORY", func(d tilework.DeviceInfo) any { return orDash(d.Memory) }},
			{"DETAILS", func(d tilework.DeviceInfo) any { return orDash(d.Details) }},
			{"CAN USE", func(d tilework.DeviceInfo) any { return strings.Join(d.Features, ", ") }},
		}, devices)
	}
	formatFlag(c, &format, listFormats...)
	return c
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, the commit and the Go release it was built with",
		Args:  noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			e := bench.Host()
			v := cmp.Or(e.Version, "(devel)")
			if e.Commit != "" {
				v += " " + e.Commit[:min(12, len(e.Commit))]
			}
			if e.Modified {
				v += " modified"
			}
			_, err := fmt.Fprintf(c.OutOrStdout(), "tilework %s %s %s/%s\n", v, e.Go, e.OS, e.Arch)
			return err
		},
	}
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
