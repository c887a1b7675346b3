//go:build !race

package check

const underRaceDetector = false
