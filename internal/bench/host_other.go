//go:build !linux && !darwin

package bench

// What these would tell is unknown here.

func cpuModel() string      { return "" }
func lastLevelCache() int64 { return 0 }
func physicalMemory() int64 { return 0 }
