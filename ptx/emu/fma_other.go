//go:build !amd64

package emu

func fmaLanes(d, a, b, c *[lanes]float32) { fmaLanesGo(d, a, b, c) }
