package dispatch

import "time"

// progressPause is the least time between two reports of progress. With the last report, which
// comes at any time, ten fit into a second.
const progressPause = time.Second / 9

// now returns the time. Tests replace it.
var now = time.Now

// pacer forwards reports of progress, but not more than one in progressPause, and that all is done.
type pacer struct {
	report func(done, total int64)
	last   time.Time // of the last report, or the start
}

func (p *pacer) update(done, total int64) {
	if t := now(); done == total || t.Sub(p.last) >= progressPause {
		p.last = t
		p.report(done, total)
	}
}
