package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress is a bar on a terminal, for what takes longer than a second.
type progress struct {
	w     io.Writer
	start time.Time
	bar   *progressbar.ProgressBar
}

// newProgress returns a progress that draws on w, or draws nothing if w is no
// terminal.
func newProgress(w io.Writer) *progress {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		w = nil
	}
	return &progress{w: w, start: time.Now()}
}

func (p *progress) update(done, total int64) {
	if p.w == nil || time.Since(p.start) < time.Second {
		return
	}
	p.begin(total, true)
	// Drawing can fail only as writing to the terminal can.
	_ = p.bar.Set64(done)
}

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

// expect shows what is being done and how much time is left, where that is known: the bar
// is then of time, and may lengthen.
func (p *progress) expect(what string, left time.Duration) {
	elapsed := time.Since(p.start)
	if p.w == nil || elapsed < time.Second || left <= 0 {
		return
	}
	total := (elapsed + left).Milliseconds()
	p.begin(total, false)
	p.bar.Describe(fmt.Sprintf("%s, about %v left", what, left.Round(time.Second)))
	p.bar.ChangeMax64(total)
	_ = p.bar.Set64(elapsed.Milliseconds())
}

// clear makes room for a line; the next update draws the bar again.
func (p *progress) clear() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}

// close removes the bar; further calls do nothing.
func (p *progress) close() {
	if p.bar != nil {
		_ = p.bar.Clear()
		p.bar, p.w = nil, nil
	}
}
