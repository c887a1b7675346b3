package bench

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
	"unicode"

	"tilework/internal/host"
	"tilework/internal/release"
)

// Environment describes the machine and software of a measurement. It does not contain the host's
// name.
type Environment struct {
	Date       time.Time `json:"date"`
	OS         string    `json:"os"`
	Arch       string    `json:"arch"`
	CPU        string    `json:"cpu,omitempty"`
	Features   []string  `json:"features,omitempty"` // instruction sets that affect the kernels
	CPUClock   float64   `json:"cpu_mhz,omitempty"`  // of one core, read before the measurement
	Cores      int       `json:"cores"`              // logical cores available to the process
	GOMAXPROCS int       `json:"gomaxprocs"`
	Cache      int64     `json:"cache_bytes,omitempty"` // the last-level cache
	Memory     int64     `json:"memory_bytes,omitempty"`
	Go         string    `json:"go"`
	Version    string    `json:"version,omitempty"`         // of tilework
	Commit     string    `json:"commit,omitempty"`          // of the build
	Modified   bool      `json:"modified,omitempty"`        // the build had uncommitted changes
	GPU        string    `json:"gpu,omitempty"`             // GPU, GPUCache and Driver are set by the caller
	GPUCache   int64     `json:"gpu_cache_bytes,omitempty"` // its L2
	Driver     string    `json:"driver,omitempty"`
	Command    string    `json:"command,omitempty"` // command line of the measurement, quoted for a shell
	// StagingThreads is the number of threads that copy between the host's memory and a device, and
	// StagingBytes the size of the pinned memory in between, per direction.
	StagingThreads int   `json:"staging_threads,omitempty"`
	StagingBytes   int64 `json:"staging_bytes,omitempty"`
}

// Host describes this process and its machine. Values that the system does not report are empty.
func Host() Environment {
	e := Environment{
		Date: time.Now().UTC().Truncate(time.Second),
		OS:   runtime.GOOS, Arch: runtime.GOARCH, CPU: host.CPUName(), CPUClock: host.Clock(), Features: host.Features(),
		Cores: runtime.NumCPU(), GOMAXPROCS: runtime.GOMAXPROCS(0),
		Cache: host.LastLevelCache(), Memory: host.PhysicalMemory(),
		Go: runtime.Version(), Version: release.Version, Command: commandLine(os.Args),
	}
	if info, ok := debug.ReadBuildInfo(); ok {
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

// equal reports whether two environments are the same.
func (e *Environment) equal(other *Environment) bool { return reflect.DeepEqual(e, other) }

func (e *Environment) isZero() bool { return e.equal(&Environment{}) }

// Build returns the version of tilework, with the commit if the version does not contain it.
func (e *Environment) Build() string {
	text := e.Version
	if short := e.Commit[:min(12, len(e.Commit))]; !strings.Contains(text, short) {
		text = strings.TrimSpace(text + " " + short)
	}
	if e.Modified && !strings.Contains(text, "dirty") {
		text += ", modified"
	}
	return text
}

// String returns a line with the devices, system, versions and date.
func (e *Environment) String() string {
	cpu := cmp.Or(e.CPU, e.Arch)
	if e.CPUClock > 0 {
		cpu += fmt.Sprintf(" at %.0f MHz", e.CPUClock)
	}
	facts := []string{fmt.Sprintf("%s, %d of %d cores", cpu, e.GOMAXPROCS, e.Cores)}
	if e.Cache > 0 {
		facts[0] += fmt.Sprintf(", cache %d MiB", e.Cache>>20)
	}
	if e.GPU != "" {
		facts = append(facts, strings.TrimSuffix(e.GPU+", driver "+e.Driver, ", driver "))
	}
	facts = append(facts, e.OS+"/"+e.Arch)
	if e.Go != "" {
		facts = append(facts, e.Go)
	}
	if build := e.Build(); build != "" {
		facts = append(facts, "tilework "+build)
	}
	return strings.Join(append(facts, e.Date.UTC().Format(time.DateOnly)), "; ")
}

// commandLine returns the shell command for args, with the base name of the program.
func commandLine(args []string) string {
	words := slices.Clone(args)
	for i, w := range words {
		if i == 0 {
			w = filepath.Base(w)
		}
		if w == "" || strings.ContainsFunc(w, needsQuotes) {
			w = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
		words[i] = w
	}
	return strings.Join(words, " ")
}

// needsQuotes reports whether c may have a special meaning in a shell.
func needsQuotes(c rune) bool {
	return !unicode.IsLetter(c) && !unicode.IsDigit(c) && !strings.ContainsRune("-_=+,.:/@%", c)
}
