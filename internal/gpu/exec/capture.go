package exec

import (
	"context"

	"tilework/internal/device"
	"tilework/internal/gpu/kernel"
)

// Capture is the list of launches of a plan on matrices at fixed addresses. Enqueuing it again
// encodes no arguments.
type Capture struct {
	on  device.Stream
	all []captured
}

type captured struct {
	function device.Function
	launch   device.Launch
}

// capturer is a stream that keeps launches instead of enqueuing them.
type capturer struct {
	device.Stream
	*Capture
}

// Launch implements [device.Stream].
func (r capturer) Launch(_ context.Context, f device.Function, l device.Launch) error {
	r.all = append(r.all, captured{f, l})
	return nil
}

// Capture compiles the kernels of the plan and returns its launches. The plan must have its scratch
// memory, if it uses any, from [Plan.InScratch]. The errors are those of [Plan.Enqueue].
func (pl *Plan) Capture(ctx context.Context, m kernel.Memory) (*Capture, error) {
	r := &Capture{on: pl.launcher()}
	capturing := *pl
	capturing.stream = capturer{r.on, r}
	if err := capturing.Enqueue(ctx, m); err != nil {
		return nil, err
	}
	return r, nil
}

// Enqueue enqueues the launches. The errors are those of [Plan.Enqueue].
func (r *Capture) Enqueue(ctx context.Context) error {
	for _, x := range r.all {
		if err := r.on.Launch(ctx, x.function, x.launch); err != nil {
			return Sentinel(err)
		}
	}
	return nil
}
