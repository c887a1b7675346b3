package host

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// systemBudgets returns the kernel's estimate of the memory that is available without swapping, and
// the unused parts of the limits of control groups.
func systemBudgets() []budget {
	var all []budget
	if free, ok := kilobytes("/proc/meminfo", "MemAvailable"); ok {
		all = append(all, budget{free: free, of: "free"})
	}
	for _, group := range controlGroups() {
		if free, ok := group.free(); ok {
			all = append(all, budget{free: free, of: "left of the control group's limit"})
		}
	}
	return all
}

// processBudgets returns the unused parts of the limits of the process.
func processBudgets() []budget {
	var all []budget
	for _, l := range limits() {
		if used, ok := kilobytes("/proc/self/status", l.used); ok {
			started := threads()
			all = append(all, budget{
				free: less(l.most, used+runtimeReserve(started)),
				of:   fmt.Sprintf("left of %s of %s besides the reserve of the Go runtime", Bytes(l.most), l.name),
				raise: func(bytes uint64) string {
					most := l.enough(used, started, bytes)
					return fmt.Sprintf("%s of %s (ulimit %s %d)", Bytes(most), l.name, l.flag, (most+1023)>>10)
				},
			})
		}
	}
	return all
}

// limit is a limit of the process, in bytes.
type limit struct {
	resource         int // of getrlimit
	most             uint64
	used, name, flag string // used is a key of /proc/self/status, flag one of the shell's ulimit
	// start is the use of a process without a limit at its start, besides its threads. Under a limit a
	// process uses less, because the Go runtime and glibc do without some of their reservations.
	start uint64
}

// enough returns a limit with which bytes more can be allocated by a process that uses the given
// number of bytes and has started the given number of threads.
func (l *limit) enough(used, started, bytes uint64) uint64 {
	return bytes + max(used+runtimeReserve(started), l.start+runtimeReserve(0))
}

// limits returns the limits of the process, which are read at the first call.
var limits = sync.OnceValue(func() []limit {
	var all []limit
	for _, l := range []limit{addressSpace, dataSegment} {
		var r unix.Rlimit
		if unix.Getrlimit(l.resource, &r) == nil && r.Cur != unix.RLIM_INFINITY {
			l.most = r.Cur
			all = append(all, l)
		}
	}
	return all
})

// The limits of a process. With Go 1.26 and glibc on amd64, a process starts with 1,252 MiB of
// address space besides its threads.
var (
	addressSpace = limit{resource: unix.RLIMIT_AS, used: "VmSize", name: "address space", flag: "-v", start: 1280 << 20}
	dataSegment  = limit{resource: unix.RLIMIT_DATA, used: "VmData", name: "data segment", flag: "-d"}
)

// limited reports whether the process has a memory limit.
func limited() bool { return len(limits()) > 0 }

// runtimeReserve returns the number of bytes that the runtime may map in addition to an allocation:
// the rest of the last arena of the Go heap, one more arena for small objects, and for each thread
// besides those that have started, its stack and the arena of glibc's malloc.
func runtimeReserve(started uint64) uint64 {
	const (
		heapArena   = 64 << 20 // heapArenaBytes on 64-bit Linux
		mallocArena = 64 << 20 // HEAP_MAX_SIZE; malloc briefly maps twice as much to align an arena
		others      = 8        // threads of the runtime, and threads in system calls
	)
	var stack unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_STACK, &stack) != nil || stack.Cur == unix.RLIM_INFINITY {
		stack.Cur = 8 << 20
	}
	return 2*heapArena + mallocArena + less(uint64(runtime.GOMAXPROCS(0))+others, started)*(stack.Cur+mallocArena)
}

// threads returns the number of threads of the process, or 0 if it is unknown.
func threads() uint64 {
	n, err := strconv.ParseUint(field("/proc/self/status", "Threads"), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// controlGroup is a control group with a memory limit. The fields limit and used are names of
// files, and cache is the key in memory.stat of the reclaimable file cache, which counts as used.
type controlGroup struct{ folder, limit, used, cache string }

// controlGroups returns the control groups of the process and their ancestors, for versions 1 and
// 2.
func controlGroups() []controlGroup { return groupsIn("/proc/self/cgroup", "/sys/fs/cgroup") }

// groupsIn reads the control groups of a process from the file list. They are mounted at root.
func groupsIn(list, root string) []controlGroup {
	text, err := os.ReadFile(list)
	if err != nil {
		return nil
	}
	var all []controlGroup
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) < 3 {
			continue
		}
		g := controlGroup{limit: "memory.max", used: "memory.current", cache: "inactive_file"}
		at := root
		switch {
		case parts[0] == "0" && parts[1] == "": // version 2
		case parts[1] == "memory": // version 1
			g = controlGroup{
				limit: "memory.limit_in_bytes", used: "memory.usage_in_bytes", cache: "total_inactive_file",
			}
			at = filepath.Join(root, "memory")
		default:
			continue
		}
		for path := filepath.Clean(parts[2]); ; path = filepath.Dir(path) {
			g.folder = filepath.Join(at, path)
			all = append(all, g)
			if path == "/" || path == "." {
				break
			}
		}
	}
	return all
}

// free returns the unused part of the group's limit in bytes. It returns false if the group has no
// limit.
func (g controlGroup) free() (uint64, bool) {
	most, ok := number(filepath.Join(g.folder, g.limit))
	if !ok || most >= math.MaxInt64&^0xffff { // version 1 uses such a number for no limit
		return 0, false
	}
	used, ok := number(filepath.Join(g.folder, g.used))
	if !ok {
		return 0, false
	}
	var cache uint64
	if text, err := os.ReadFile(filepath.Join(g.folder, "memory.stat")); err == nil {
		for line := range strings.Lines(string(text)) {
			if value, ok := strings.CutPrefix(line, g.cache+" "); ok {
				cache, _ = strconv.ParseUint(strings.TrimSpace(value), 10, 64)
			}
		}
	}
	return less(most, less(used, cache)), true
}

// kilobytes returns the value in bytes of a field such as "MemAvailable: 20 kB".
func kilobytes(path, key string) (uint64, bool) {
	kib, err := strconv.ParseUint(strings.TrimSuffix(field(path, key), " kB"), 10, 64)
	return kib << 10, err == nil
}

func fileSystemOf(folder string) (FileSystem, bool) {
	var s unix.Statfs_t
	if unix.Statfs(folder, &s) != nil || s.Blocks == 0 { // ramfs, for example, reports no size
		return FileSystem{}, false
	}
	f := FileSystem{Free: s.Bavail * uint64(s.Bsize)}
	if memory, ok := tightest(systemBudgets()); ok && s.Type == unix.TMPFS_MAGIC {
		f.InMemory, f.Memory = true, memory.free
	}
	return f, true
}
