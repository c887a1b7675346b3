package multi

import (
	"context"
	"fmt"
	"strings"
	"time"

	"tilework/internal/backend"
	"tilework/internal/gemm"
	"tilework/internal/gpu"
	"tilework/internal/gpu/stream"
	"tilework/internal/program"
	"tilework/internal/split"
)

// CanRunBatch implements [backend.Plan].
func (pl *plan) CanRunBatch() bool { return true }

// RunBatch implements [backend.Plan]. Each GPU computes some of the products, all with the
// kernel and the tile that the first GPU chooses for the whole batch.
func (pl *plan) RunBatch(ctx context.Context, kernel string, all []gemm.Buffers) error {
	if len(all) == 0 {
		return ctx.Err()
	}
	batch, err := pl.members[0].PlanBatch(pl.whole.Host(), gpu.Options(kernel), all)
	if err != nil {
		return err
	}
	parts, err := pl.products(len(all))
	if err != nil {
		return err
	}
	return pl.runParts(ctx, batch, parts, func(ctx context.Context, on *stream.BatchPlan, s program.Span) error {
		return on.Run(ctx, pl.whole.Host(), pl.whole.Limit, all[s.From:s.To])
	})
}

// products divides n products among the GPUs, or leaves those of a short batch to the first.
func (pl *plan) products(n int) ([]program.Span, error) {
	if time.Duration(n)*pl.whole.Predicted() < minDivided {
		return []program.Span{{From: 0, To: n}}, nil
	}
	_, rates, err := onEach(pl.whole, pl.members)
	return split.Products(n, rates), err
}

// Division implements [backend.Plan].
func (pl *plan) Division(n int) string {
	parts, err := pl.products(n)
	if err != nil {
		return err.Error()
	}
	var all []string
	for i, s := range parts {
		if s.Len() > 0 {
			all = append(all, fmt.Sprintf("%v computes products %v", pl.members[i].device, s))
		}
	}
	return strings.Join(all, "; ")
}

// RunGroups implements [backend.Plan]. Each GPU computes some of the groups, as in RunBatch.
func (pl *plan) RunGroups(ctx context.Context, kernel string, b *gemm.Buffers, bs [][]byte, ends []int32) error {
	p := pl.whole.Host()
	batch, err := pl.members[0].PlanGroups(p, gpu.Options(kernel), len(ends))
	if err != nil {
		return err
	}
	parts := []program.Span{{From: 0, To: len(ends)}}
	if pl.whole.Predicted() >= minDivided {
		_, rates, err := onEach(pl.whole, pl.members)
		if err != nil {
			return err
		}
		parts = split.Groups(ends, rates)
	}
	return pl.runParts(ctx, batch, parts, func(ctx context.Context, on *stream.BatchPlan, s program.Span) error {
		first := 0
		if s.From > 0 {
			first = int(ends[s.From-1])
		}
		var mine []int32
		for _, end := range ends[s.From:s.To] {
			mine = append(mine, end-int32(first))
		}
		rows := int(mine[len(mine)-1])
		if rows == 0 { // C may end before the row first
			return nil
		}
		part, memory, err := p.Part(gemm.Area{Row: first, Rows: rows, Cols: p.N}, b)
		if err != nil {
			return err
		}
		c := p.Layouts[gemm.C] // C is not transposed, so its groups are consecutive rows
		memory[gemm.C] = b[gemm.C][c.Type.Bytes(c.Index(first, 0)):]
		part.Layouts[gemm.C].LD = c.LD
		return on.RunGroups(ctx, &part, pl.whole.Limit, memory, bs[s.From:s.To], mine)
	})
}

// runParts calls run for the parts of a batch at the same time, with its plan on their GPUs. The
// first error ends all.
func (pl *plan) runParts(ctx context.Context, batch *stream.BatchPlan, parts []program.Span,
	run func(context.Context, *stream.BatchPlan, program.Span) error) error {
	plans := make([]*stream.BatchPlan, len(parts))
	for i := range parts {
		var err error
		if plans[i], err = batch.On(pl.members[i].Backend); err != nil {
			return fmt.Errorf("device %v: %w", pl.members[i].device, err)
		}
	}
	return Each(ctx, len(parts), func(i int) backend.DeviceName { return pl.members[i].device },
		func(ctx context.Context, i int) error {
			if parts[i].Len() == 0 {
				return nil
			}
			return run(ctx, plans[i], parts[i])
		})
}
