package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"tilework"
	"tilework/internal/gemm"
	"tilework/internal/host"
	"tilework/internal/table"
)

func kernelsCommand() *cobra.Command {
	var o listFlags
	c := &cobra.Command{
		Use:   "kernels",
		Short: "List the kernels, what each adds, and what it needs",
		Example: `  tilework kernels
  tilework kernels --format json`,
		Args: noArgs,
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		kernels := tilework.Kernels()
		if err := writeList(c.OutOrStdout(), o, []column[tilework.KernelInfo]{
			fixed("KERNEL", func(k tilework.KernelInfo) any { return k.Name }),
			fixed("DEVICE", func(k tilework.KernelInfo) any { return k.Device }),
			fixed("HERE", func(k tilework.KernelInfo) any { return yesNo(k.Available) }),
			wrapped("TYPES", func(k tilework.KernelInfo) any { return strings.Join(k.Types, " ") }),
			wrapped("NEEDS", func(k tilework.KernelInfo) any { return orDash(k.Needs) }),
			wrapped("WHAT IT ADDS", func(k tilework.KernelInfo) any { return k.Adds }),
		}, kernels); err != nil || o.format != "table" {
			return err
		}
		fmt.Fprintln(c.OutOrStdout())
		return writeSums(c.OutOrStdout(), o.width(c.OutOrStdout()), kernels)
	}
	o.addTo(c, listFormats...)
	return c
}

// writeSums prints how kernels sum products, in a table of that width, with those that do it alike
// together.
func writeSums(w io.Writer, width int, kernels []tilework.KernelInfo) error {
	same := func(k, l tilework.KernelInfo) bool {
		return slices.EqualFunc(k.Sums, l.Sums, func(a, b tilework.KernelSums) bool {
			return a.How == b.How && a.Precision == b.Precision && slices.Equal(a.Types, b.Types)
		})
	}
	var rows [][]string
	for i, k := range kernels {
		if slices.ContainsFunc(kernels[:i], func(l tilework.KernelInfo) bool { return same(k, l) }) {
			continue
		}
		names := k.Name
		for _, l := range kernels[i+1:] {
			if same(k, l) {
				names += " " + l.Name
			}
		}
		for _, s := range k.Sums {
			rows = append(rows, []string{names, strings.Join(s.Types, " "), s.Precision, s.How})
			names = ""
		}
	}
	return table.Write(w, width, []table.Column{
		{Title: "KERNELS", Wrap: true}, {Title: "TYPES", Wrap: true}, {Title: "PRECISION"}, {Title: "SUMMED", Wrap: true},
	}, rows)
}

// sumsText returns that table for a help text.
func sumsText() string {
	var s strings.Builder
	const helpWidth = 98
	if err := writeSums(&s, helpWidth, tilework.Kernels()); err != nil {
		panic(err) // a strings.Builder returns none
	}
	return s.String()
}

func devicesCommand() *cobra.Command {
	var o listFlags
	c := &cobra.Command{
		Use:   "devices",
		Short: "List the devices that products can be computed on",
		Long: `devices lists the processor, the GPUs that the NVIDIA driver shows, and the emulated
GPU, with the kernels that each can run and on which element types. Where no GPU is
found it says what was looked for.

The driver obeys CUDA_VISIBLE_DEVICES: a list of numbers or UUIDs leaves those GPUs,
numbered anew from 0. --device takes gpu:N, or the beginning of a UUID: gpu:GPU-3f2a.`,
		Example: `  tilework devices
  tilework devices --format json
  CUDA_VISIBLE_DEVICES=1 tilework devices`,
		Args: noArgs,
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		devices, err := tilework.Devices()
		if listErr := writeList(c.OutOrStdout(), o, []column[tilework.DeviceInfo]{
			fixed("DEVICE", func(d tilework.DeviceInfo) any { return d.Name }),
			wrapped("WHAT", func(d tilework.DeviceInfo) any { return d.Title }),
			dropped(1, "ARCH", func(d tilework.DeviceInfo) any { return orDash(d.Arch) }),
			fixed("CORES/SMS", func(d tilework.DeviceInfo) any { return d.Cores }),
			fixed("MEMORY", func(d tilework.DeviceInfo) any { return orDash(memoryOf(d)) }),
			dropped(3, "CLOCKS", func(d tilework.DeviceInfo) any { return orDash(clocks(d)) }),
			dropped(4, "LINK", func(d tilework.DeviceInfo) any { return orDash(d.Link) }),
			dropped(2, "DRIVER", func(d tilework.DeviceInfo) any { return orDash(d.Driver) }),
			wrapped("CAN RUN", func(d tilework.DeviceInfo) any { return abilities(d.Kernels) }),
		}, devices); listErr != nil {
			return listErr
		}
		if err != nil {
			fmt.Fprintln(c.ErrOrStderr(), "no GPU:", strings.TrimPrefix(err.Error(), gemm.ErrNoDevice.Error()+": "))
		}
		return nil
	}
	o.addTo(c, listFormats...)
	return c
}

func memoryOf(d tilework.DeviceInfo) string {
	if d.Memory == 0 {
		return ""
	}
	return host.Bytes(uint64(d.Memory))
}

func clocks(d tilework.DeviceInfo) string {
	if d.Clock == 0 {
		return ""
	}
	return fmt.Sprintf("%d, memory %d MHz", d.Clock, d.MemoryClock)
}

// abilities names the kernels, those with the same types together.
func abilities(kernels []tilework.DeviceKernel) string {
	var groups []string
	for i := 0; i < len(kernels); {
		types := kernels[i].Types
		var names []string
		for ; i < len(kernels) && slices.Equal(kernels[i].Types, types); i++ {
			names = append(names, kernels[i].Name)
		}
		groups = append(groups, strings.Join(names, ", ")+": "+strings.Join(types, " "))
	}
	return strings.Join(groups, "; ")
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
