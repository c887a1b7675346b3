package tilework

import (
	"context"
	"fmt"

	"tilework/internal/backend"
	"tilework/internal/device"
	"tilework/internal/dispatch"
	"tilework/internal/gemm"
	"tilework/internal/resident"
)

// Device is a GPU, real or emulated, on which matrices stay. Its methods, and all
// functions that take it or matrices on it, may be called from any number of
// goroutines at once.
//
// A Device does one thing after the other, in the order in which it is asked. [MulOn]
// and [GemmOn] only ask. An upload returns once the host's memory has been read, a
// download once it has been written, which is after all that was asked for before.
// Goroutines that use one matrix, one of them writing, must agree on who asks first, as
// with Go's memory.
type Device struct{ d *resident.Device }

// Open begins to use a device: "gpu", "gpu:N", "emu" or "emu:MODEL". The errors are
// ErrNoDevice and ErrUnsupported. Close it in the end.
func Open(name string) (*Device, error) {
	parsed, err := backend.ParseDevice(name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoDevice, err)
	}
	d, err := resident.Open(parsed)
	if err != nil {
		return nil, err
	}
	return &Device{d}, nil
}

// String is the name by which the device was opened.
func (d *Device) String() string {
	if d == nil || d.d == nil {
		return "no device"
	}
	return d.d.String()
}

// Sync waits until all that the device was asked for is done. The error says what
// failed, if nothing else has said so already; it wraps ErrLaunch, ErrDeviceLost or
// ErrClosed, or is the context's.
func (d *Device) Sync(ctx context.Context) error {
	if err := d.check(); err != nil {
		return err
	}
	return d.d.Sync(ctx)
}

// Close waits for what is under way, gives back the matrices that are still on the
// device, and ends its use: their methods then return ErrClosed. The error is that of
// Sync. A second time it does nothing.
func (d *Device) Close() error {
	if err := d.check(); err != nil {
		return err
	}
	return d.d.Close()
}

func (d *Device) check() error {
	if d == nil || d.d == nil {
		return fmt.Errorf("%w: a Device that Open did not make", ErrNoDevice)
	}
	return nil
}

// MulOn is the product A·B of an m×k and a k×n matrix, as a new m×n matrix on their
// device. It returns when the product is asked for, as [GemmOn] does.
func MulOn[T Float](ctx context.Context, a, b DeviceMatrix[T], opts ...Option) (DeviceMatrix[T], error) {
	if err := firstErr(a.err, b.err, a.there("A")); err != nil {
		return DeviceMatrix[T]{}, err
	}
	c, err := NewOn[T](&Device{a.m.Memory.Device()}, a.Rows(), b.Cols())
	if err != nil {
		return c, err
	}
	if err := GemmOn(ctx, 1, a, b, 0, c, opts...); err != nil {
		return DeviceMatrix[T]{}, device.Join(err, c.Close())
	}
	return c, nil
}

// GemmOn is [Gemm] on a device: C ← α·A·B + β·C, for matrices that are all there. It
// returns when the device has been asked, usually before it begins; only the first
// product of a kind takes longer, while its kernel is compiled, and so does one with a
// bias of the host's, which is uploaded ([WithColBiasOn] takes one of the device's).
//
// What the device refuses is this function's error. What fails later is that of the
// next download or Sync, ErrLaunch or ErrDeviceLost; C then holds anything. Matrices of
// different devices are ErrUnsupported. With [WithVerify] it waits for the product, whose
// matrices are checked on the device; what is not linear, an activation or a gated product,
// and scales of rows and columns and a residual are ErrUnsupported then. [WithThreads] and [WithProgress] concern the processor alone.
func GemmOn[I, O Element](ctx context.Context, alpha float64, a, b DeviceMatrix[I], beta float64, c DeviceMatrix[O], opts ...Option) error {
	p, err := product(alpha, a, b, beta, c, opts)
	if err != nil {
		return err
	}
	return resident.Gemm(ctx, p)
}

// PlanGemmOn is what [GemmOn] would run for these matrices and options.
func PlanGemmOn[I, O Element](a, b DeviceMatrix[I], c DeviceMatrix[O], opts ...Option) (Plan, error) {
	return planOn(product(1, a, b, 0, c, opts))
}

// planOn is what a device would run for a product.
func planOn(p *resident.Product, err error) (Plan, error) {
	if err != nil {
		return Plan{}, err
	}
	found, err := resident.PlanOf(p)
	if err != nil {
		return Plan{}, err
	}
	pl := planFor(found.Problem())
	pl.Device, pl.Kernel, pl.Compile = p.Operands[gemm.C].On.Memory.Device().String(), found.Kernel.Name, found.CompileTime()
	pl.Detail, pl.Why = found.Config.String(), found.Why
	return pl, nil
}

// product turns a call into what the device is asked.
func product[I, O Element](alpha float64, a, b DeviceMatrix[I], beta float64, c DeviceMatrix[O], opts []Option) (*resident.Product, error) {
	var cfg config
	cfg.configure(new(dispatch.Request), opts)
	if err := firstErr(a.err, b.err, c.err, cfg.err, a.there("A"), b.there("B"), c.there("C")); err != nil {
		return nil, err
	}
	if err := cfg.checkOn(c.m.Memory.Device()); err != nil {
		return nil, err
	}
	if err := cfg.checkBias(&c.m.Layout); err != nil {
		return nil, err
	}
	if cfg.extras != nil {
		q, swapped, err := gemm.New(alpha, a.m.Layout, b.m.Layout, beta, c.m.Layout, cfg.Epilogue)
		if err == nil {
			err = cfg.checkExtras(&q, swapped)
		}
		if err != nil {
			return nil, err
		}
	}
	p := &resident.Product{
		Alpha: alpha, Beta: beta, Epilogue: cfg.Epilogue, Kernel: cfg.request.Kernel, Precision: cfg.precision,
		Verify: cfg.request.Verify, Within: cfg.request.Within,
	}
	if cfg.extras != nil {
		for o, x := range cfg.extras {
			p.Operands[o] = resident.Operand{On: x.on, Host: x.host, Layout: x.layout}
		}
	}
	for o, m := range [...]resident.Matrix{a.m, b.m, c.m} {
		p.Operands[o].On = m
	}
	bias := resident.Operand{On: cfg.biasOn, Host: cfg.bias}
	if cfg.Bias != gemm.BiasNone && bias.On.Memory == nil {
		bias.Layout = gemm.Dense(cfg.biasOf, 1, cfg.biasLen)
	}
	p.Operands[gemm.Bias] = bias
	return p, nil
}
