package bench

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"tilework/internal/device/timeline"
	"tilework/internal/gemm"
	"tilework/internal/host"
	"tilework/internal/table"
)

// BreakdownRunner is a [Subject] that can measure the time that its GPUs compute, copy and wait.
type BreakdownRunner interface {
	// RunBreakdown computes the most recently prepared product and returns the breakdown of its time
	// on each GPU, or nil if it has none.
	RunBreakdown(ctx context.Context, b gemm.Buffers) ([]timeline.Breakdown, error)
}

// breakdowns records the breakdowns of the time of each subject. The products that are timed lack
// the events for that.
func (m *measurement) breakdowns(ctx context.Context) {
	for i, r := range m.runs {
		if r.err == nil && len(r.times) > 0 && ctx.Err() == nil {
			r.err = failure(ctx, m.breakdown(ctx, i, r))
		}
	}
}

// breakdown measures the products of five timings, or of one slow timing, and records the breakdown
// of the median.
func (m *measurement) breakdown(ctx context.Context, i int, r *run) error {
	timings := 5
	if r.best >= m.o.MaxTime/4 {
		timings = 1
	}
	var all [][]timeline.Breakdown
	for range timings {
		s, err := m.site.breakdown(ctx, i, r.batch)
		if err != nil || s == nil {
			return err
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b []timeline.Breakdown) int { return cmp.Compare(a[0].Seconds, b[0].Seconds) })
	r.record.Breakdown = all[len(all)/2]
	return nil
}

// checkBreakdown returns an error unless the times of each GPU add up to that of the product.
func (r *Record) checkBreakdown() error {
	for _, s := range r.Breakdown {
		sum := s.Compute + s.Copies + s.Waiting
		if !(s.Seconds > 0 && min(s.Compute, s.Copies, s.Waiting, s.Overlapped) >= 0) ||
			math.Abs(sum-s.Seconds) > 1e-6*s.Seconds {
			return fmt.Errorf("times of %s, %+v: want compute, copies and waiting that add up to seconds", s.Device, s)
		}
		if s.Overlapped > s.Compute {
			return fmt.Errorf("times of %s, %+v: want at most compute overlapped", s.Device, s)
		}
	}
	return nil
}

// breakdownList returns a column value with the values of all GPUs, separated by spaces.
func breakdownList(value func(*timeline.Breakdown) any) func(*Record) any {
	return func(r *Record) any {
		var all []string
		for i := range r.Breakdown {
			all = append(all, plain(value(&r.Breakdown[i])))
		}
		return strings.Join(all, " ")
	}
}

// breakdownColumns are the columns of the table of breakdowns.
var breakdownColumns = []textColumn[timeline.Breakdown]{
	{table.Column{Title: "time"}, func(s *timeline.Breakdown) string { return Duration(s.Seconds) }},
	{table.Column{Title: "computing"}, func(s *timeline.Breakdown) string { return share(s.Compute, s) }},
	{table.Column{Title: "of it with copies"}, func(s *timeline.Breakdown) string { return share(s.Overlapped, s) }},
	{table.Column{Title: "only copying"}, func(s *timeline.Breakdown) string { return share(s.Copies, s) }},
	{table.Column{Title: "waiting"}, func(s *timeline.Breakdown) string { return share(s.Waiting, s) }},
	{table.Column{Title: "from host", Drop: 1}, func(s *timeline.Breakdown) string { return copied(s.FromHost) }},
	{table.Column{Title: "to host", Drop: 1}, func(s *timeline.Breakdown) string { return copied(s.ToHost) }},
	{table.Column{Title: "from GPUs", Drop: 1}, func(s *timeline.Breakdown) string { return copied(s.FromGPUs) }},
}

// share formats a part of the time of a product.
func share(part float64, s *timeline.Breakdown) string {
	return fmt.Sprintf("%s (%.0f%%)", Duration(part), 100*part/s.Seconds)
}

func copied(bytes int) string { return host.Bytes(uint64(bytes)) }

// breakdownTable returns the table of the breakdowns of all records, with one row for each GPU.
func breakdownTable(records []Record) (columns []table.Column, rows [][]string) {
	columns = []table.Column{{Title: "subject"}, {Title: "GPU"}, {Title: "type", Drop: 2}, {Title: "M×N×K"}}
	for _, c := range breakdownColumns {
		columns = append(columns, c.Column)
	}
	for i := range records {
		r := &records[i]
		for j := range r.Breakdown {
			s := &r.Breakdown[j]
			row := []string{r.Subject, s.Device, r.Types(), r.shape()}
			for _, c := range breakdownColumns {
				row = append(row, c.text(s))
			}
			rows = append(rows, row)
		}
	}
	return columns, rows
}
