//go:build !nogpu && (amd64 || arm64)

package cuda

// libraryFiles lists the names of the driver library in search order. The second is used by WSL.
var libraryFiles = []string{"libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"}

// nvmlFiles lists the names of the NVML library in search order.
var nvmlFiles = []string{"libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1"}
