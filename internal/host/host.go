// Package host returns properties of the machine as reported by the operating system. Functions
// return 0, an empty string or false for unknown properties.
package host

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/cpu"
)

// Bytes formats a number of bytes with a suitable unit: "1.5 GiB".
func Bytes(n uint64) string {
	const units = "KMGTPE"
	if n < 1<<10 {
		return fmt.Sprintf("%d bytes", n)
	}
	v, u := float64(n)/(1<<10), 0
	for ; v >= 1024 && u < len(units)-1; u++ {
		v /= 1024
	}
	if v >= 999.5 { // %.3g would print an exponent
		return fmt.Sprintf("%.0f %ciB", v, units[u])
	}
	return fmt.Sprintf("%.3g %ciB", v, units[u])
}

// CPUName returns the model name of the CPU, or the architecture if the name is unknown.
func CPUName() string {
	if name := cpuName(); name != "" {
		return name
	}
	return runtime.GOARCH
}

// Clock returns the current clock frequency of the first core, in MHz.
func Clock() float64 { return clock() }

// LastLevelCache returns the size of the largest CPU cache in bytes, or 0 if it is unknown.
func LastLevelCache() int64 { return lastLevelCache() }

// L2Cache returns the size of the first core's L2 cache in bytes, or 0 if it is unknown.
func L2Cache() int64 { return l2Cache() }

// PhysicalMemory returns the size of the machine's memory, in bytes.
func PhysicalMemory() int64 { return physicalMemory() }

// Features returns the instruction sets of the CPU that are relevant to matrix multiplication.
func Features() []string {
	var found []string
	for _, f := range []struct {
		name string
		has  bool
	}{
		{"avx", cpu.X86.HasAVX},
		{"avx2", cpu.X86.HasAVX2},
		{"fma", cpu.X86.HasFMA},
		{"f16c", cpu.X86.HasF16C},
		{"avxvnni", cpu.X86.HasAVXVNNI},
		{"avx512f", cpu.X86.HasAVX512F},
		{"avx512bw", cpu.X86.HasAVX512BW},
		{"avx512dq", cpu.X86.HasAVX512DQ},
		{"avx512vl", cpu.X86.HasAVX512VL},
		{"avx512vnni", cpu.X86.HasAVX512VNNI},
		{"avx512bf16", cpu.X86.HasAVX512BF16},
		{"amxtile", cpu.X86.HasAMXTile},
		{"amxint8", cpu.X86.HasAMXInt8},
		{"amxbf16", cpu.X86.HasAMXBF16},
		{"asimd", cpu.ARM64.HasASIMD},
		{"asimdhp", cpu.ARM64.HasASIMDHP},
		{"asimddp", cpu.ARM64.HasASIMDDP},
		{"i8mm", cpu.ARM64.HasI8MM},
		{"sve", cpu.ARM64.HasSVE},
		{"sve2", cpu.ARM64.HasSVE2},
	} {
		if f.has {
			found = append(found, f.name)
		}
	}
	return found
}
