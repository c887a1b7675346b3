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

// Splitter is a [Subject] that can measure the time that its GPUs compute, copy and wait.
type Splitter interface {
	// Splits computes the most recently prepared product and returns the split of its time on each
	// GPU, or nil if it has none.
	Splits(ctx context.Context, b gemm.Buffers) ([]timeline.Split, error)
}

// splits records the splits of the time of each subject. The products that are timed lack the
// events for that.
func (m *measurement) splits(ctx context.Context) {
	for i, r := range m.runs {
		if r.err == nil && len(r.times) > 0 && ctx.Err() == nil {
			r.err = failure(ctx, m.split(ctx, i, r))
		}
	}
}

// split measures some products, or one slow product, and records the splits of the median one.
func (m *measurement) split(ctx context.Context, i int, r *run) error {
	products := 5
	if r.best >= m.o.MaxTime/4 {
		products = 1
	}
	var all [][]timeline.Split
	for range products {
		s, err := m.site.splits(ctx, i)
		if err != nil || s == nil {
			return err
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b []timeline.Split) int { return cmp.Compare(a[0].Seconds, b[0].Seconds) })
	r.record.Splits = all[len(all)/2]
	return nil
}

// checkSplits returns an error unless the times of each GPU add up to that of the product.
func (r *Record) checkSplits() error {
	for _, s := range r.Splits {
		sum := s.Compute + s.Copies + s.Waiting
		if !(min(s.Compute, s.Copies, s.Waiting, s.Overlapped) >= 0) || math.Abs(sum-s.Seconds) > 1e-6*s.Seconds {
			return fmt.Errorf("times of %s, %+v: want compute, copies and waiting that add up to seconds", s.Device, s)
		}
	}
	return nil
}

// splitList returns a column value with the values of all GPUs, separated by spaces.
func splitList(value func(*timeline.Split) any) func(*Record) any {
	return func(r *Record) any {
		var all []string
		for i := range r.Splits {
			all = append(all, plain(value(&r.Splits[i])))
		}
		return strings.Join(all, " ")
	}
}

// splitColumns are the columns of the table of splits.
var splitColumns = []struct {
	table.Column
	text func(*timeline.Split) string
}{
	{table.Column{Title: "time"}, func(s *timeline.Split) string { return Duration(s.Seconds) }},
	{table.Column{Title: "computing"}, func(s *timeline.Split) string { return share(s.Compute, s) }},
	{table.Column{Title: "of it with copies"}, func(s *timeline.Split) string { return share(s.Overlapped, s) }},
	{table.Column{Title: "only copying"}, func(s *timeline.Split) string { return share(s.Copies, s) }},
	{table.Column{Title: "waiting"}, func(s *timeline.Split) string { return share(s.Waiting, s) }},
	{table.Column{Title: "from host", Drop: 1}, func(s *timeline.Split) string { return copied(s.FromHost) }},
	{table.Column{Title: "to host", Drop: 1}, func(s *timeline.Split) string { return copied(s.ToHost) }},
	{table.Column{Title: "from GPUs", Drop: 1}, func(s *timeline.Split) string { return copied(s.FromGPUs) }},
}

// share formats a part of the time of a product.
func share(part float64, s *timeline.Split) string {
	return fmt.Sprintf("%s (%.0f%%)", Duration(part), 100*part/s.Seconds)
}

func copied(bytes int) string { return host.Bytes(uint64(bytes)) }

// splitTable returns the table of the splits of all records, with one row for each GPU.
func splitTable(records []Record) (columns []table.Column, rows [][]string) {
	columns = []table.Column{{Title: "subject"}, {Title: "GPU"}, {Title: "type", Drop: 2}, {Title: "M×N×K"}}
	for _, c := range splitColumns {
		columns = append(columns, c.Column)
	}
	for i := range records {
		r := &records[i]
		for j := range r.Splits {
			s := &r.Splits[j]
			row := []string{r.Subject, s.Device, r.Types(), r.shape()}
			for _, c := range splitColumns {
				row = append(row, c.text(s))
			}
			rows = append(rows, row)
		}
	}
	return columns, rows
}
