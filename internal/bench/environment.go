package bench

import (
	"runtime"
	"runtime/debug"
	"time"

	"tilework/internal/host"
)

// Environment is where and with what a measurement was made. It names no host.
type Environment struct {
	Date       time.Time `json:"date"`
	OS         string    `json:"os"`
	Arch       string    `json:"arch"`
	CPU        string    `json:"cpu,omitempty"`
	Features   []string  `json:"features,omitempty"` // the instruction sets that matter to products
	Cores      int       `json:"cores"`              // logical processors that the process may use
	GOMAXPROCS int       `json:"gomaxprocs"`
	Cache      int64     `json:"cache_bytes,omitempty"` // the last-level cache
	Memory     int64     `json:"memory_bytes,omitempty"`
	Go         string    `json:"go"`
	Version    string    `json:"version,omitempty"`         // of tilework
	Commit     string    `json:"commit,omitempty"`          // that it was built from
	Modified   bool      `json:"modified,omitempty"`        // there were changes on top of the commit
	GPU        string    `json:"gpu,omitempty"`             // set, with the rest, by whoever measures on one
	GPUCache   int64     `json:"gpu_cache_bytes,omitempty"` // its L2
	Driver     string    `json:"driver,omitempty"`
	// What copies between the host's memory and a device go through: so many threads
	// and so much pinned memory, each way.
	StagingThreads int   `json:"staging_threads,omitempty"`
	StagingBytes   int64 `json:"staging_bytes,omitempty"`
}

// Host describes this process and its machine. What the system does not tell is
// left empty.
func Host() Environment {
	e := Environment{
		Date: time.Now().UTC().Truncate(time.Second),
		OS:   runtime.GOOS, Arch: runtime.GOARCH, CPU: host.Processor(), Features: host.Features(),
		Cores: runtime.NumCPU(), GOMAXPROCS: runtime.GOMAXPROCS(0),
		Cache: host.LastLevelCache(), Memory: host.PhysicalMemory(),
		Go: runtime.Version(),
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		e.Version = info.Main.Version
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				e.Commit = s.Value
			case "vcs.modified":
				e.Modified = s.Value == "true"
			}
		}
	}
	return e
}
