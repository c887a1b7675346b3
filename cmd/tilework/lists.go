package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"tilework"
	"tilework/internal/gemm"
	"tilework/internal/host"
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
		return writeList(c.OutOrStdout(), o, []column[tilework.KernelInfo]{
			fixed("KERNEL", func(k tilework.KernelInfo) any { return k.Name }),
			fixed("DEVICE", func(k tilework.KernelInfo) any { return k.Device }),
			fixed("HERE", func(k tilework.KernelInfo) any { return yesNo(k.Available) }),
			wrapped("TYPES", func(k tilework.KernelInfo) any { return strings.Join(k.Types, " ") }),
			wrapped("NEEDS", func(k tilework.KernelInfo) any { return orDash(k.Needs) }),
			wrapped("WHAT IT ADDS", func(k tilework.KernelInfo) any { return k.Adds }),
		}, tilework.Kernels())
	}
	o.addTo(c, listFormats...)
	return c
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
