//go:build race

package check

// underRaceDetector makes tests run blocks sequentially. A kernel with a race between blocks that
// run concurrently would also be a data race in the Go program.
const underRaceDetector = true
