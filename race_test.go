//go:build race

package tilework

const raceEnabled = true
