//go:build !race

package tilework

const raceEnabled = false
