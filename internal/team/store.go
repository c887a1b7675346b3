package team

import (
	"context"

	"tilework/internal/backend"
	"tilework/internal/device"
	"tilework/internal/device/cuda"
	"tilework/internal/gemm"
)

// store is the memory and the arithmetic of a rank.
//
// Work is in two queues. Copies are in one, and kernels in the other, with uploads, downloads, and
// the allocation of memory. Both execute their work in order, and events order one after the other,
// as with streams of a GPU. A store in the host's memory does everything at once.
type store interface {
	// alloc allocates n bytes for something, for errors. The error is ErrOutOfMemory.
	alloc(n int, what string) (block, error)
	free(b block) error

	// read and write copy the rows of p to and from memory of the host, where rows are pitch bytes
	// apart, in the given queue, and return when they are copied.
	read(ctx context.Context, q queue, dst []byte, pitch int, p part) error
	write(ctx context.Context, q queue, p part, src []byte, pitch int) error
	// copy copies rows in the queue of copies.
	copy(to, from part) error

	// stream returns the stream that is a queue, or nil for a store in the host's memory.
	stream(q queue) device.Stream
	// sync waits for both queues.
	sync(ctx context.Context) error

	// plan plans a whole product, with the choice of another rank unless it is nil.
	plan(ctx context.Context, p *Job, choice *backend.Choice) (planned, error)

	weight() float64 // a number in proportion to the rate
	cuda() *cuda.GPU // the GPU, or nil if there is none
	close() error
}

// queue is a queue of a store.
type queue uint8

const (
	copies queue = iota
	kernels
)

// block is a block of memory of a store.
type block struct {
	host []byte     // of a store in the host's memory
	at   device.Ptr // of a GPU
}

// from returns the block from byte n on.
func (b block) from(n int) block {
	if b.host != nil {
		return block{host: b.host[n:]}
	}
	return block{at: b.at + device.Ptr(n)}
}

// part is a part of a matrix in a block: rows of some bytes that start pitch bytes apart.
type part struct {
	block
	rows, width, pitch int
}

func (p part) bytes() int { return p.rows * p.width }

// contiguous reports whether there are no gaps between the rows.
func (p part) contiguous() bool { return p.rows == 1 || p.pitch == p.width }

// pieces calls f with consecutive pieces of at most n bytes.
func (p part) pieces(n int, f func(part) error) error {
	if p.contiguous() {
		p = part{p.block, 1, p.bytes(), p.bytes()}
	}
	rows := max(n/max(p.width, 1), 1)
	for i := 0; i < p.rows; i += rows {
		for j := 0; j < p.width; j += n {
			piece := part{p.from(i*p.pitch + j), min(rows, p.rows-i), min(n, p.width-j), p.pitch}
			if err := f(piece); err != nil {
				return err
			}
		}
	}
	return nil
}

// planned is a planned product as a whole.
type planned interface {
	choice() backend.Choice
	// order describes the order of the sums. It is empty if only the whole product has its bits.
	order() string
	// seconds predicts the time on this rank.
	seconds() float64
	// cuts returns the number of rows and columns at whose multiples C may be cut, and those at whose
	// multiples tiles begin.
	cuts() (grain, rows, cols int)
	tilesAtOnce() int
	describe() Description // without the device
	// part plans q, the part whose C begins at (row, col).
	part(q *gemm.Problem, row, col int) (task, error)
}

// task is a planned part of a product.
type task interface {
	// scratch returns the bytes of memory that the task needs besides the operands.
	scratch() int
	// run computes the part, in the queue of kernels. operands and scratch are blocks of the store.
	run(ctx context.Context, operands *[gemm.Operands]block, scratch block) error
}

func openStore(d backend.DeviceName) (store, error) {
	if d.IsGPU() {
		return openGPU(d)
	}
	return hostStore{}, checkCPU(d)
}
