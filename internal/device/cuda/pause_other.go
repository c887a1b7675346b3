//go:build !linux

package cuda

import "time"

// pause sleeps for at least d.
func pause(d time.Duration) { time.Sleep(d) }
