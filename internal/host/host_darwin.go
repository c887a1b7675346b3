package host

import "golang.org/x/sys/unix"

func cpuName() string {
	name, _ := unix.Sysctl("machdep.cpu.brand_string")
	return name
}

func clock() float64 { return 0 }

// lastLevelCache returns the size of the L3 cache, or else of the L2 cache of the performance
// cores.
func lastLevelCache() int64 {
	return firstOf("hw.l3cachesize", "hw.perflevel0.l2cachesize", "hw.l2cachesize")
}

func l2Cache() int64 { return firstOf("hw.perflevel0.l2cachesize", "hw.l2cachesize") }

// firstOf returns the first of some system values that is set, or 0.
func firstOf(names ...string) int64 {
	for _, name := range names {
		if n, err := unix.SysctlUint64(name); err == nil && n > 0 {
			return int64(n)
		}
	}
	return 0
}

func physicalMemory() int64 {
	n, _ := unix.SysctlUint64("hw.memsize")
	return int64(n)
}
