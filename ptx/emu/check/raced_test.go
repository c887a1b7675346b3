//go:build race

package check

// underRaceDetector: a kernel with a race between blocks is one of Go too when its
// blocks run at once, so the tests run them one after the other.
const underRaceDetector = true
