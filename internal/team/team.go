// Package team keeps matrices divided among the ranks of a group, each rank's part in the memory of
// its GPU or of its host, and multiplies them. Every rank computes some rows and columns of C and
// gathers the parts of operands that it lacks, while it computes.
//
// The division is that of package split, which several GPUs of one process use too. The memory and
// the arithmetic of a rank are a [store], and the way between two ranks is a [transport].
package team

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"tilework/internal/backend"
	"tilework/internal/device"
	"tilework/internal/device/cuda"
	"tilework/internal/nccl"
	"tilework/internal/phrase"
	"tilework/internal/sentinel"
	"tilework/internal/split"
	"tilework/ranks"
)

// Team is a group of ranks with a device each. Its methods are safe for concurrent use, but all
// ranks must call those that communicate in the same order.
type Team struct {
	group     *ranks.Group
	name      backend.DeviceName
	store     store
	transport transport
	weights   []float64 // rates of the ranks, to divide matrices
	rate      float64   // usual rate of copies between ranks in bytes per second
	// unit is the number of rows or columns at whose multiples large matrices are divided, and
	// panelBytes limits the panels of gathered operands. Tests make them smaller, and pick a division.
	unit, panelBytes int
	pick             func([]split.Division) int
	drainTimeout     time.Duration // limits drain; tests make it shorter

	mu     sync.Mutex // during each use
	closed bool
	lost   error // why nothing of the device may be used or freed, or nil
	live   map[*Memory]struct{}
	// divisions holds those of recent products, the same ones on all ranks.
	divisions             map[divisionKey]*division
	agreements, exchanges int // so far, for tests
}

// String returns a text of the form "gpu:0 of rank 1 of 4".
func (t *Team) String() string {
	return fmt.Sprintf("%v of rank %d of %d", t.name, t.group.Rank(), t.group.Size())
}

// member describes the device of a rank to the others.
type member struct {
	Kind   string
	GPU    string  // the host and the UUID of a real GPU
	Weight float64 // a number in proportion to the rate
	NCCL   string  // the version, or empty
	Reason string  // why there is no NCCL
}

// The usual size of panels, and the rates of copies that a plan assumes: NCCL between GPUs of a
// host with NVLink, and TCP.
const (
	usualPanelBytes = 64 << 20
	ncclRate        = 250e9
	tcpRate         = 1e9
)

// usualDrainTimeout is the time after which a device hangs that has not ended its work. The kernels
// of the largest products on a GPU take about 10 s.
const usualDrainTimeout = 30 * time.Second

// joinTimeout limits the time in which NCCL connects the ranks.
const joinTimeout = 2 * time.Minute

// Open opens a device at each rank, that of [DeviceOf], and connects them. All ranks call it at the
// same time. The errors are those of the device and of the group, which has ended after an error.
func Open(ctx context.Context, g *ranks.Group, name string) (*Team, error) {
	t := &Team{group: g, unit: split.UsualUnit, panelBytes: usualPanelBytes, drainTimeout: usualDrainTimeout,
		live: map[*Memory]struct{}{}, divisions: map[divisionKey]*division{}}
	if err := t.open(ctx, name); err != nil {
		err = t.failed(err)
		return nil, device.Join(err, t.release())
	}
	return t, nil
}

func (t *Team) open(parent context.Context, name string) (err error) {
	ctx, stop := t.group.Context(parent)
	defer stop()
	if t.name, err = DeviceOf(name, t.group.LocalRank()); err != nil {
		return fmt.Errorf("%w: %w", sentinel.ErrNoDevice, err)
	}
	if t.store, err = openStore(t.name); err != nil {
		return err
	}
	library, mine := t.describe()
	all, err := exchange(ctx, t, "the devices", mine)
	if err != nil {
		return err
	}
	for _, m := range all {
		t.weights = append(t.weights, m.Weight)
	}
	if err := t.agreeOn(ctx, [2]string{"the kind of the device", mine.Kind}); err != nil {
		return err
	}
	return t.connect(ctx, all, library)
}

// DeviceOf returns the device with a name for a rank, whose number on its host is local. "gpu" is
// the GPU with this number, modulo the number of GPUs that the process sees, and "auto" is that GPU
// or, if there is none, the CPU.
func DeviceOf(name string, local int) (backend.DeviceName, error) {
	d, err := backend.ParseDevice(name)
	if err != nil || d.Kind != backend.Auto && name != backend.GPU.String() {
		return d, err
	}
	gpus, _ := cuda.List() // without GPUs, opening one is an error
	switch {
	case len(gpus) > 0:
		return backend.DeviceName{Kind: backend.GPU, Index: local % len(gpus)}, nil
	case d.Kind == backend.Auto:
		return backend.DeviceName{Kind: backend.CPU}, nil
	}
	return d, nil
}

// maxReason is the maximum number of bytes of a text of another rank in a message.
const maxReason = 500

// agreeOn returns an error on every rank unless all have equal values.
func (t *Team) agreeOn(ctx context.Context, values ...[2]string) error {
	t.agreements++
	return t.group.Agree(ctx, values...)
}

// exchange returns the value of each rank.
func exchange[T any](ctx context.Context, t *Team, name string, mine T) ([]T, error) {
	data, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	t.exchanges++
	texts, err := t.group.Gather(ctx, name, data)
	if err != nil {
		return nil, err
	}
	all := make([]T, len(texts))
	for r, text := range texts {
		if err := json.Unmarshal(text, &all[r]); err != nil {
			return nil, fmt.Errorf("%s of rank %d: %s", name, r, phrase.Printable(err.Error(), maxReason))
		}
	}
	return all, nil
}

// describe describes the device, and opens NCCL if it is a real GPU and there are several ranks.
func (t *Team) describe() (*nccl.Library, member) {
	m := member{Kind: t.name.Kind.String(), Weight: t.store.weight()}
	gpu := t.store.cuda()
	if gpu == nil || t.group.Size() == 1 {
		m.Reason = "there is no GPU"
		return nil, m
	}
	host, _ := os.Hostname()
	m.GPU = host + " " + gpu.Details().UUID
	library, err := nccl.Open("")
	if err != nil {
		m.Reason = err.Error()
		return nil, m
	}
	m.NCCL = library.Version.String()
	return library, m
}

// connect connects the ranks: with NCCL if each has a GPU of its own and NCCL, and else with TCP.
func (t *Team) connect(ctx context.Context, all []member, library *nccl.Library) error {
	if reason := whyNoNCCL(all); reason != "" {
		connections, err := t.group.Connect(ctx)
		if err != nil {
			return err
		}
		t.transport, t.rate = newTCP(t.store, connections, reason), tcpRate
		return nil
	}
	if err := t.agreeOn(ctx, [2]string{"the version of NCCL", library.Version.String()}); err != nil {
		return err
	}
	var id nccl.ID
	var err error
	if t.group.Rank() == 0 {
		if id, err = library.NewID(); err != nil {
			return err
		}
	}
	text, err := t.group.Broadcast(ctx, "the id of NCCL", 0, id[:])
	if err != nil {
		return err
	}
	copy(id[:], text)
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	t.transport, err = joinNCCL(ctx, t.store, library, id, t.group.Rank(), t.group.Size())
	t.rate = ncclRate
	return err
}

// whyNoNCCL returns the reason for which the ranks do not use NCCL, or the empty string.
func whyNoNCCL(all []member) string {
	seen := map[string]int{}
	for r, m := range all {
		other, shared := seen[m.GPU]
		switch {
		case m.NCCL == "":
			return fmt.Sprintf("rank %d: %s", r, phrase.Printable(m.Reason, maxReason))
		case shared:
			return fmt.Sprintf("ranks %d and %d share a GPU", other, r)
		}
		seen[m.GPU] = r
	}
	return ""
}

// grace is the time in which the group tells which rank has failed. A connection to it may break
// before.
const grace = 2 * time.Second

// failed ends the group because of err and returns the error of this rank: the failure of another
// one if err may be its consequence.
func (t *Team) failed(err error) error {
	if broken := (*brokenError)(nil); errors.As(err, &broken) {
		ctx, stop := t.group.Context(context.Background())
		defer stop()
		select {
		case <-ctx.Done():
		case <-time.After(grace):
		}
	}
	if failure := t.group.Err(); failure != nil {
		return failure
	}
	t.group.Fail(err)
	return err
}

// use calls f while no other call uses the team. The error is ErrClosed, or the reason for the end
// of the group.
func (t *Team) use(f func() error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
		return fmt.Errorf("%w: a device of several ranks", sentinel.ErrClosed)
	case t.group.Err() != nil:
		return t.group.Err()
	}
	return f()
}

// drain waits until the device has ended all work. A device that needs longer than drainTimeout
// hangs, and may still use its memory later. It is lost: the team leaves its memory and streams
// alone.
func (t *Team) drain() error {
	ctx, cancel := context.WithTimeout(context.Background(), t.drainTimeout)
	defer cancel()
	err := t.store.sync(ctx)
	if err != nil && ctx.Err() != nil {
		t.lost = fmt.Errorf("%w: %v has not ended its work within %v", device.ErrLost, t, t.drainTimeout)
		return t.lost
	}
	return err
}

// free frees memory of the device, unless the device is lost.
func (t *Team) free(b block) error {
	if t.lost != nil {
		return t.lost
	}
	return t.store.free(b)
}

// Close frees the matrices, and closes the device and the connections. It waits for the products of
// the other ranks. The group continues. A second call does nothing. The error is ErrNoDevice if the
// device hangs.
func (t *Team) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	t.closed = true
	var errs []error
	if t.lost == nil {
		errs = append(errs, t.drain())
	}
	for m := range t.live {
		errs = append(errs, t.free(m.block))
	}
	clear(t.live)
	return device.Join(append(errs, t.release())...)
}

// release closes the connections and the device.
func (t *Team) release() error {
	if t.lost != nil {
		return t.lost
	}
	var errs []error
	if t.transport != nil {
		ctx, stop := t.group.Context(context.Background())
		if err := t.transport.close(ctx); t.group.Err() == nil {
			errs = append(errs, err)
		}
		stop()
	}
	if t.store != nil {
		errs = append(errs, t.store.close())
	}
	return device.Join(errs...)
}
