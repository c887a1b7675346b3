//go:build !unix

package regular

// NoWait is zero, because this platform has no named pipes in its folders.
const NoWait = 0

const noFollow = 0 // the check before opening remains
