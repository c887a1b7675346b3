package exec

import (
	"context"

	"tilework/internal/device"
	"tilework/internal/gpu/kernel"
)

// Recording is the list of launches of a plan on matrices at fixed addresses. Enqueuing it again
// encodes no arguments.
type Recording struct {
	on  device.Stream
	all []recorded
}

type recorded struct {
	function device.Function
	launch   device.Launch
}

// recorder is a stream that keeps launches instead of enqueuing them.
type recorder struct {
	device.Stream
	*Recording
}

// Launch implements [device.Stream].
func (r recorder) Launch(_ context.Context, f device.Function, l device.Launch) error {
	r.all = append(r.all, recorded{f, l})
	return nil
}

// Record compiles the kernels of the plan and returns its launches. The plan must have its scratch
// memory, if it uses any, from [Plan.InScratch]. The errors are those of [Plan.Enqueue].
func (pl *Plan) Record(ctx context.Context, m kernel.Memory) (*Recording, error) {
	r := &Recording{on: pl.launcher()}
	recording := *pl
	recording.stream = recorder{r.on, r}
	if err := recording.Enqueue(ctx, m); err != nil {
		return nil, err
	}
	return r, nil
}

// Enqueue enqueues the launches. The errors are those of [Plan.Enqueue].
func (r *Recording) Enqueue(ctx context.Context) error {
	for _, x := range r.all {
		if err := r.on.Launch(ctx, x.function, x.launch); err != nil {
			return Sentinel(err)
		}
	}
	return nil
}
