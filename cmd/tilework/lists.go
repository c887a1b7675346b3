package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"tilework/internal/backend"
	"tilework/internal/cpu"
	"tilework/internal/host"
	"tilework/internal/sentinel"
	"tilework/internal/table"
)

func kernelsCommand() *cobra.Command {
	var o listFlags
	c := &cobra.Command{
		Use:   "kernels",
		Short: "List the kernels with their techniques and element types",
		Long: `kernels lists the kernels for CPUs and GPUs: whether this machine can run them, the element
types of A and B, the hardware that they need, and the technique that each adds to the previous
kernel. HERE is "emulated" for a kernel that only the emulator (--device emu) can run here. A second
table shows the order and precision in which they sum products.

The environment variable ` + cpu.EnvISA + ` names the fastest kernel that may be chosen automatically
on the CPU. The others stay available by name.`,
		Example: `  tilework kernels
  tilework kernels --format json`,
		Args: noArgs,
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := cpu.CheckEnv(); err != nil {
			return err
		}
		kernels := listKernels()
		devices, _ := listDevices() // without a GPU, the other devices
		if err := writeList(c.OutOrStdout(), o, []column[kernelInfo]{
			fixed("KERNEL", func(k kernelInfo) any { return k.Name }),
			fixed("DEVICE", func(k kernelInfo) any { return k.Device }),
			fixed("HERE", func(k kernelInfo) any { return here(k, devices) }),
			wrapped("TYPES", func(k kernelInfo) any { return strings.Join(k.Types, " ") }),
			wrapped("NEEDS", func(k kernelInfo) any { return orDash(k.Needs) }),
			wrapped("WHAT IT ADDS", func(k kernelInfo) any { return k.Adds }),
		}, kernels); err != nil || o.format != "table" {
			return err
		}
		fmt.Fprintln(c.OutOrStdout())
		return writeSums(c.OutOrStdout(), o.width(c.OutOrStdout()), kernels)
	}
	o.addTo(c, listFormats...)
	return c
}

// here returns whether one of the devices of this machine runs k: "yes", "no", or "emulated" if
// only the emulator does, which is the last device.
func here(k kernelInfo, devices []deviceInfo) string {
	for _, d := range devices {
		runs := func(on deviceKernel) bool { return on.Name == k.Name }
		switch {
		case !slices.ContainsFunc(d.Kernels, runs):
		case d.Name == backend.Emulator.String():
			return "emulated"
		default:
			return "yes"
		}
	}
	return "no"
}

// writeSums prints a table of the order and precision in which kernels sum products. Kernels that
// sum in the same way share a row.
func writeSums(w io.Writer, width int, kernels []kernelInfo) error {
	same := func(k, l kernelInfo) bool {
		return slices.EqualFunc(k.Sums, l.Sums, func(a, b sumsInfo) bool {
			return a.How == b.How && a.Precision == b.Precision && slices.Equal(a.Types, b.Types)
		})
	}
	var rows [][]string
	for i, k := range kernels {
		if slices.ContainsFunc(kernels[:i], func(l kernelInfo) bool { return same(k, l) }) {
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
		{Title: "KERNELS", Wrap: true}, {Title: "TYPES", Wrap: true},
		{Title: "PRECISION"}, {Title: "SUMMED", Wrap: true},
	}, rows)
}

func devicesCommand() *cobra.Command {
	var o listFlags
	c := &cobra.Command{
		Use:   "devices",
		Short: "List the CPU, the GPUs and the emulated GPU with their kernels",
		Long: `devices lists the CPU, the GPUs that the NVIDIA driver reports, and the emulated GPU. For each
it lists the kernels that it can run, with their element types. If there is no GPU, a message
gives the reason, such as a driver library that was not found.

If the environment variable CUDA_VISIBLE_DEVICES has a list of numbers or UUIDs, the driver hides
all other GPUs, and numbers those in the list from 0. --device takes gpu:N, or gpu: and the
beginning of a UUID, such as gpu:GPU-3f2a.`,
		Example: `  tilework devices
  tilework devices --format json
  CUDA_VISIBLE_DEVICES=1 tilework devices`,
		Args: noArgs,
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := cpu.CheckEnv(); err != nil {
			return err
		}
		devices, err := listDevices()
		if listErr := writeList(c.OutOrStdout(), o, []column[deviceInfo]{
			fixed("DEVICE", func(d deviceInfo) any { return d.Name }),
			wrapped("WHAT", func(d deviceInfo) any { return d.Title }),
			dropped(1, "ARCH", func(d deviceInfo) any { return orDash(d.Arch) }),
			fixed("CORES/SMS", func(d deviceInfo) any { return d.Cores }),
			fixed("MEMORY", func(d deviceInfo) any { return orDash(memoryOf(d)) }),
			dropped(3, "CLOCKS", func(d deviceInfo) any { return orDash(clocks(d)) }),
			dropped(4, "LINK", func(d deviceInfo) any { return orDash(d.Link) }),
			dropped(2, "DRIVER", func(d deviceInfo) any { return orDash(d.Driver) }),
			wrapped("CAN RUN", func(d deviceInfo) any { return abilities(d.Kernels) }),
		}, devices); listErr != nil {
			return listErr
		}
		if err != nil {
			fmt.Fprintln(c.ErrOrStderr(), "no GPU:", strings.TrimPrefix(err.Error(), sentinel.ErrNoDevice.Error()+": "))
		}
		return nil
	}
	o.addTo(c, listFormats...)
	return c
}

func memoryOf(d deviceInfo) string {
	if d.Memory == 0 {
		return ""
	}
	return host.Bytes(uint64(d.Memory))
}

func clocks(d deviceInfo) string {
	if d.Clock == 0 {
		return ""
	}
	return fmt.Sprintf("%d, memory %d MHz", d.Clock, d.MemoryClock)
}

// abilities formats the kernels of a device with their element types. Consecutive kernels with the
// same types are grouped.
func abilities(kernels []deviceKernel) string {
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
