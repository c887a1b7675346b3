//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || solaris)

package matio

const canMap = false
