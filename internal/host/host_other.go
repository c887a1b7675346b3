//go:build !linux && !darwin

package host

func cpuName() string       { return "" }
func clock() float64        { return 0 }
func lastLevelCache() int64 { return 0 }
func l2Cache() int64        { return 0 }
func physicalMemory() int64 { return 0 }
