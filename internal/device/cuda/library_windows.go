//go:build !nogpu && (amd64 || arm64)

package cuda

// libraryFiles lists the names of the driver library.
var libraryFiles = []string{"nvcuda.dll"}

// nvmlFiles lists the names of the NVML library.
var nvmlFiles = []string{"nvml.dll"}
