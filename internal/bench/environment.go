package bench

import (
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/sys/cpu"
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
	Version    string    `json:"version,omitempty"`  // of tilework
	Commit     string    `json:"commit,omitempty"`   // that it was built from
	Modified   bool      `json:"modified,omitempty"` // there were changes on top of the commit
	GPU        string    `json:"gpu,omitempty"`      // set by whoever measures on one
	Driver     string    `json:"driver,omitempty"`
}

// Host describes this process and its machine. What the system does not tell is
// left empty.
func Host() Environment {
	e := Environment{
		Date: time.Now().UTC().Truncate(time.Second),
		OS:   runtime.GOOS, Arch: runtime.GOARCH, CPU: cpuModel(), Features: features(),
		Cores: runtime.NumCPU(), GOMAXPROCS: runtime.GOMAXPROCS(0),
		Cache: lastLevelCache(), Memory: physicalMemory(),
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

func features() []string {
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
