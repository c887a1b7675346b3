package call

import (
	"context"
	"fmt"

	"tilework/internal/backend"
	"tilework/internal/gemm"
	"tilework/internal/program"
	"tilework/internal/split"
)

// Place stores matrices and multiplies them: one GPU, several GPUs or the devices of several ranks.
// [Open] and [OpenRanks] return one. The host, whose matrices are slices of Go, has no Place.
type Place interface {
	fmt.Stringer
	// New allocates a matrix, which GPUs and ranks divide among them, and NewBatch count matrices,
	// one after the other. They return the layout of the first.
	New(l gemm.Layout, by split.By) (Memory, gemm.Layout, error)
	NewBatch(l gemm.Layout, count int, by split.By) (Memory, gemm.Layout, error)
	// Sync waits until all enqueued work is done. Close also frees all matrices.
	Sync(ctx context.Context) error
	Close() error
	// ofRanks reports whether several ranks store each matrix.
	ofRanks() bool
	// toTune returns the device for which products are tuned, if the caller requests one.
	toTune(asked backend.DeviceName) (backend.DeviceName, error)
	// run computes the product, and describe describes its plan. invalid, if not nil, is the error of
	// the operands that they return: other ranks may have to learn of it.
	run(ctx context.Context, k *Call, invalid error) error
	describe(ctx context.Context, k *Call, invalid error) (Description, error)
}

// Memory is memory of a place, which matrices share. Equal values are the same memory.
type Memory interface {
	Place() Place
	// Matrix returns the matrix of layout l that starts offset bytes after the start.
	Matrix(offset int, l gemm.Layout) Stored
	// Size returns the number of bytes in which a batch may have its matrices. CheckPart refuses
	// views of parts of a matrix. The errors are ErrUnsupported.
	Size() (int, error)
	CheckPart() error
	// Close frees the memory as soon as no enqueued work uses it. A second call does nothing.
	Close() error
}

// Stored is a matrix of a place.
type Stored interface {
	// By returns the way in which the matrix is divided, and Part the part that this process stores.
	By() split.By
	Part() program.Rect
	// CopyIn and CopyOut copy that part from and to host memory, where its stored rows have layout l.
	CopyIn(ctx context.Context, host []byte, l gemm.Layout) error
	CopyOut(ctx context.Context, host []byte, l gemm.Layout) error
}

// place returns the place of C, or nil if C is on the host.
func (k *Call) place() Place {
	if m := k.operands[gemm.C].Memory; m != nil {
		return m.Place()
	}
	return nil
}

// checkPlace refuses an operand that is not at the place of C. Options may have operands on the
// host for a product on a device, and vectors for one of several ranks.
func (k *Call) checkPlace(o gemm.Operand) error {
	ofRanks := func(p Place) bool { return p != nil && p.ofRanks() }
	var at Place
	if m := k.operands[o].Memory; m != nil {
		at = m.Place()
	}
	switch c := k.place(); {
	case ofRanks(at) && !ofRanks(c):
		return fmt.Errorf("%w: %s of several ranks and C of one: make both on one device", gemm.ErrUnsupported, o.Phrase())
	case ofRanks(c) && !ofRanks(at) && (o <= gemm.C || at != nil):
		return fmt.Errorf("%w: C of several ranks and %s of one: make both on one device", gemm.ErrUnsupported, o.Phrase())
	case at == nil && c != nil && o <= gemm.C:
		return fmt.Errorf("%w: %s on the host and C on device %v: upload %[2]s or download C", gemm.ErrUnsupported,
			o.Phrase(), c)
	case at != nil && c == nil:
		return fmt.Errorf("%w: %s on device %v and C on the host: download %[2]s or upload C", gemm.ErrUnsupported,
			o.Phrase(), at)
	}
	return nil
}
