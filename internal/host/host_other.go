//go:build !linux

package host

func available() (uint64, bool) { return 0, false }

func processor() string { return "" }
