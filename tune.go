package tilework

import (
	"context"
	"time"

	"tilework/internal/backend"
	"tilework/internal/dispatch"
	"tilework/internal/dispatch/tuned"
	"tilework/internal/gemm"
	"tilework/internal/tune"
)

// Tuning is what [TuneGemm] found.
type Tuning struct {
	// Default is what [Gemm] computes such a product with unless something was tuned for
	// it, and Best the fastest that was measured: a kernel and its parameters, in words.
	Default, Best string
	// Gain is how many times faster the best was, measured in turns with the default.
	Gain float64
	// Kept says that later products use the best: it was faster by more than chance.
	Kept bool
	Why  string // it is kept or not
}

// TuneGemm measures, for about that long (0 is 10 s), which kernel and which parameters
// compute [Gemm] of such matrices fastest, and has later products use them: products of
// the same shape, types and transposes, of matrices without gaps between their rows,
// whatever their factors and their epilogue. [PlanGemm] then says so. No element is read
// or written.
//
// The choice holds for this process at once, for products whose kernel is not named, and
// for later ones, as it is kept in the cache that [WithDevice] speaks of. On a GPU it
// holds for all of its model. Another choice may sum in another order, and so give other
// bits; equal calls have equal bits as long as nobody tunes.
//
// Name the device: of the options [WithDevice] ("cpu" or "gpu") and [WithThreads] count.
// The errors are ErrUnsupported, for "auto" and for an emulated GPU, which has no times,
// ErrNoDevice, ErrShape, ErrVerify for a kernel that is wrong, and the context's.
func TuneGemm[I, O Element](ctx context.Context, a, b Matrix[I], c Matrix[O], limit time.Duration, opts ...Option) (Tuning, error) {
	var cfg config
	cfg.configure(new(dispatch.Request), opts)
	if err := firstErr(a.err, b.err, c.err, cfg.err); err != nil {
		return Tuning{}, err
	}
	problem, _, err := gemm.New(1, a.layout(), b.layout(), 0, c.layout(), cfg.Epilogue)
	if err != nil {
		return Tuning{}, err
	}
	device := cfg.request.Device
	if device == (backend.Device{}) {
		device.Kind = "auto"
	}
	outcomes, err := tune.Run(ctx, []tuned.Form{tuned.FormOf(&problem)}, tune.Options{Device: device, Threads: cfg.request.Threads, Time: limit})
	if len(outcomes) == 0 {
		return Tuning{}, err
	}
	x := outcomes[0]
	return Tuning{Default: x.Default.String(), Best: x.Best.String(), Gain: x.Gain.Speed, Kept: x.Kept, Why: x.Why}, err
}
