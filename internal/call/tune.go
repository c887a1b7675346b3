package call

import (
	"context"
	"fmt"
	"time"

	"tilework/internal/dispatch/tuned"
	"tilework/internal/gemm"
	"tilework/internal/tune"
)

// Tune measures for about the given time which choice computes such products fastest, and keeps it;
// see [tune.Run]. It reads and writes no element. The outcome is nil if nothing was measured.
func (k *Call) Tune(ctx context.Context, limit time.Duration) (*tune.Outcome, error) {
	if err := k.check(); err != nil {
		return nil, err
	}
	if k.grouped() || k.batched() || k.operands[gemm.B].Kind == Packed {
		return nil, fmt.Errorf("%w: tuning of batches, groups or a packed matrix: tune the product of plain "+
			"matrices", gemm.ErrUnsupported)
	}
	var problem gemm.Problem
	if _, err := k.complete(&problem, &k.Layouts); err != nil {
		return nil, err
	}
	device := k.Device
	if p := k.place(); p != nil {
		var err error
		if device, err = p.toTune(device); err != nil {
			return nil, err
		}
	}
	outcomes, err := tune.Run(ctx, []tuned.Form{tuned.FormOf(&problem)},
		tune.Options{Device: device, Threads: k.Threads, Time: limit})
	if len(outcomes) == 0 {
		return nil, err
	}
	return &outcomes[0], err
}
