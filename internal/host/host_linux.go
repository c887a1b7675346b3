package host

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func cpuName() string { return field("/proc/cpuinfo", "model name") }

func clock() float64 {
	mhz, _ := strconv.ParseFloat(field("/proc/cpuinfo", "cpu MHz"), 64)
	return mhz
}

// field returns the value of the first line "key: value" in a file, or "".
func field(path, key string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if k, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// number reads a file that contains one number.
func number(path string) (uint64, bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil // the text may be "max"
}

// lastLevelCache returns the size of the largest cache of the first core.
func lastLevelCache() int64 {
	var largest int64
	for _, bytes := range cacheSizes() {
		largest = max(largest, bytes)
	}
	return largest
}

func l2Cache() int64 { return cacheSizes()[2] }

// cacheSizes returns the sizes by level of the caches that sysfs lists for the first core. The
// files contain sizes such as "36608K".
func cacheSizes() map[uint64]int64 {
	dirs, _ := filepath.Glob("/sys/devices/system/cpu/cpu0/cache/index*")
	sizes := map[uint64]int64{}
	for _, dir := range dirs {
		level, known := number(filepath.Join(dir, "level"))
		text, err := os.ReadFile(filepath.Join(dir, "size"))
		if !known || err != nil {
			continue
		}
		if kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(string(text)), "K"), 10, 32); err == nil {
			sizes[level] = max(sizes[level], kib<<10)
		}
	}
	return sizes
}

func physicalMemory() int64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return int64(info.Totalram) * int64(info.Unit)
}
