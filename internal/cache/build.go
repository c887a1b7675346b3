package cache

import (
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
)

// Build identifies the build of this program, from the information that the Go toolchain recorded:
// the versions of the modules and the revision of the source. Keys of measurements contain it,
// since another build may have other kernels.
var Build = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown build"
	}
	parts := []string{info.GoVersion, info.Main.Path, info.Main.Version}
	for _, m := range info.Deps {
		if m.Path == "tilework" {
			parts = append(parts, m.Version, m.Sum)
		}
	}
	for _, s := range info.Settings {
		if strings.HasPrefix(s.Key, "vcs.") {
			parts = append(parts, fmt.Sprintf("%s=%s", s.Key, s.Value))
		}
	}
	return strings.Join(parts, " ")
})
