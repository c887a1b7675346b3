package bench

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// cpuModel is the first "model name" of /proc/cpuinfo, which ARM systems lack.
func cpuModel() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// lastLevelCache is the largest cache that sysfs lists for the first processor,
// in bytes ("36608K"), or 0.
func lastLevelCache() int64 {
	files, _ := filepath.Glob("/sys/devices/system/cpu/cpu0/cache/index*/size")
	var largest int64
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		if kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(string(text)), "K"), 10, 32); err == nil {
			largest = max(largest, kib<<10)
		}
	}
	return largest
}

// physicalMemory is in bytes, or 0.
func physicalMemory() int64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return int64(info.Totalram) * int64(info.Unit)
}
