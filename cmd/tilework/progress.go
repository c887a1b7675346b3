package main

import (
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// barDelay is the time after which a progress bar appears.
const barDelay = time.Second

// progress is a progress bar on a terminal. It appears after barDelay.
type progress struct {
	w     io.Writer
	start time.Time
	bar   *progressbar.ProgressBar
}

// newProgress returns a progress that draws on w if w is a terminal, and otherwise draws nothing.
func newProgress(w io.Writer) *progress {
	p := &progress{start: time.Now()}
	if isTerminal(w) {
		p.w = fileOf(w)
	}
	return p
}

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	f := fileOf(w)
	return f != nil && term.IsTerminal(int(f.Fd()))
}

// update sets the fraction of the work that is done.
func (p *progress) update(done, total int64) {
	if p.w == nil || time.Since(p.start) < barDelay {
		return
	}
	p.begin(total, true)
	_ = p.bar.Set64(done) // fails only if writing to the terminal fails
}

// begin creates the bar unless it exists. With predict it shows the estimated remaining time.
func (p *progress) begin(total int64, predict bool) {
	if p.bar == nil {
		p.bar = progressbar.NewOptions64(total,
			progressbar.OptionSetWriter(p.w),
			progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionSetPredictTime(predict),
			progressbar.OptionClearOnFinish(),
			progressbar.OptionSetWidth(40))
	}
}

// expect describes the current work, and shows the estimated remaining time. The bar then shows
// time, and its total changes with the estimate. A left of 0 means that there is no estimate.
func (p *progress) expect(work string, left time.Duration) {
	elapsed := time.Since(p.start)
	if p.w == nil || elapsed < barDelay || left <= 0 {
		return
	}
	total := (elapsed + left).Milliseconds()
	p.begin(total, false)
	p.bar.Describe(fmt.Sprintf("%s, about %v left", work, left.Round(time.Second)))
	p.bar.ChangeMax64(total)
	_ = p.bar.Set64(elapsed.Milliseconds())
}

// clear removes the bar to make room for a message. The next update draws it again.
func (p *progress) clear() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}

// close removes the bar. Later calls of all methods do nothing.
func (p *progress) close() {
	if p.bar != nil {
		_ = p.bar.Clear()
		p.bar, p.w = nil, nil
	}
}
