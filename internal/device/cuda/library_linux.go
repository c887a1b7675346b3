//go:build !nogpu && (amd64 || arm64)

package cuda

// libraryFiles lists the names of the driver library in search order. The loader finds the first in
// LD_LIBRARY_PATH, in the cache of ldconfig and in its own directories. WSL and NixOS have the
// others, which the loader does not find there.
var libraryFiles = []string{"libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1", "/run/opengl-driver/lib/libcuda.so.1"}

// nvmlFiles lists the names of the NVML library in the same order.
var nvmlFiles = []string{"libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1",
	"/run/opengl-driver/lib/libnvidia-ml.so.1"}
