// Package scaling predicts the time of a product that the GPUs of one or several hosts compute
// together. It needs no GPU.
//
// The GPUs form a grid, and each computes one part of C, the product of some rows of A and some
// columns of B. A and B are spread evenly: each GPU of a grid row has some of the rows of A that
// the grid row needs, and each GPU of a grid column some of the columns of B. A GPU gathers the
// pieces that it lacks while it computes with those that it has. K is never divided, so the sums
// are those of one GPU.
package scaling

import (
	"fmt"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/stream"
	"tilework/internal/ints"
	"tilework/internal/model"
	"tilework/ptx"
)

// Cluster describes equal hosts with equal GPUs.
type Cluster struct {
	GPU     *model.Model
	Hosts   int
	GPUs    int     // of each host
	Peer    float64 // bytes per second that a GPU receives from the others of its host
	Network float64 // bytes per second that a GPU receives from other hosts
}

// NetworkRate is 92 % of a network adapter of 400 Gb/s for each GPU in bytes per second, as in
// NVIDIA's DGX H200 (data sheet). It was not measured.
const NetworkRate = 46e9

// Size returns the number of GPUs.
func (c *Cluster) Size() int { return c.Hosts * c.GPUs }

// Grid divides C into Rows × Cols parts, one for each GPU.
type Grid struct{ Rows, Cols int }

// String returns a string of the form "4×2".
func (g Grid) String() string { return fmt.Sprintf("%d×%d", g.Rows, g.Cols) }

// Workload is a product of row-major matrices.
type Workload struct {
	Type    dtype.Type
	M, N, K int
}

// result returns the element type of C.
func (p Workload) result() dtype.Type { return p.Type.Info().Results[0] }

// Estimate is the predicted time of a product on a cluster. Times are in seconds, because those of
// very large products exceed a [time.Duration].
type Estimate struct {
	Grid Grid // of all GPUs
	Host Grid // of the GPUs of a host, within the other grid
	// Pieces is the number of pieces into which each GPU's share of A and of B is cut.
	Pieces  int
	Single  float64 // on one GPU that has all matrices
	Compute float64 // the kernels of one GPU
	Gather  float64 // the copies to one GPU
	Total   float64 // of copies and kernels that overlap
	// PeerBytes and NetworkBytes are received by one GPU, from its host and from other hosts.
	PeerBytes, NetworkBytes float64
	Memory                  float64 // bytes of a GPU: its part of C and all that it multiplies
}

// Efficiency returns the speedup over one GPU divided by the number of GPUs.
func (e *Estimate) Efficiency() float64 {
	return e.Single / e.Total / float64(e.Grid.Rows*e.Grid.Cols)
}

// Predict returns the estimate of the fastest grid. The error is ErrUnsupported if no kernel
// computes the product, or if there are fewer rows and columns than GPUs.
func Predict(p Workload, c *Cluster) (Estimate, error) {
	if len(p.Type.Info().Results) == 0 {
		return Estimate{}, fmt.Errorf("%w: matrices of %v cannot be multiplied", gemm.ErrUnsupported, p.Type)
	}
	single, err := p.on(c.GPU)
	if err != nil {
		return Estimate{}, err
	}
	var best Estimate
	for _, grid := range grids(c.Size()) {
		if grid.Rows > p.M || grid.Cols > p.N {
			continue
		}
		part := p
		part.M, part.N = ints.CeilDiv(p.M, grid.Rows), ints.CeilDiv(p.N, grid.Cols)
		compute, err := part.on(c.GPU)
		if err != nil {
			return Estimate{}, err
		}
		for _, host := range grids(c.GPUs) {
			if grid.Rows%host.Rows != 0 || grid.Cols%host.Cols != 0 {
				continue
			}
			for pieces := 1; pieces <= mostPieces; pieces *= 2 {
				e := Estimate{Grid: grid, Host: host, Pieces: pieces, Single: single, Compute: compute}
				e.simulate(part, c)
				if best.Total == 0 || e.Total < best.Total {
					best = e
				}
			}
		}
	}
	if best.Total == 0 {
		return best, fmt.Errorf("%w: %d×%d elements of C on %d GPUs: want a part for each", gemm.ErrUnsupported, p.M, p.N,
			c.Size())
	}
	return best, nil
}

// grids returns the grids of n GPUs.
func grids(n int) (all []Grid) {
	for rows := 1; rows <= n; rows++ {
		if n%rows == 0 {
			all = append(all, Grid{rows, n / rows})
		}
	}
	return all
}

// on returns the predicted time of the product on one GPU in seconds.
func (p Workload) on(m *model.Model) (float64, error) {
	problem, _, err := gemm.New(1, gemm.Dense(p.Type, p.M, p.K), gemm.Dense(p.Type, p.K, p.N), 0,
		gemm.Dense(p.result(), p.M, p.N), gemm.Epilogue{})
	if err != nil {
		return 0, err
	}
	info := device.Info{Name: m.Device, Target: ptx.Target{SM: m.Arch.SM, Suffix: "a"}, SMs: m.SMs,
		MaxThreads: m.Arch.MaxThreadsPerBlock, MaxShared: m.Arch.SharedPerBlockOptIn}
	best, err := choose.Best(&problem, kernel.Align{}, &info)
	if err != nil {
		return 0, err
	}
	rate := m.ClockHz
	if best.Kernel.TMA {
		rate *= stream.Sustained
	}
	return best.Cycles / rate, nil
}

const (
	// mostPieces limits the launches of a product.
	mostPieces = 8
	// launch is the time of a further launch in seconds: its latency, and the tiles that end together.
	launch = 10e-6
	// copyLatency is the time of a copy of few bytes in seconds. The latencies of copies between GPUs
	// and of the network are about equal, and small beside the pieces that are worth dividing.
	copyLatency = 15e-6
)

// piece is a part of A or B that the GPU needs.
type piece struct {
	ofA           bool
	peer, network float64 // bytes to be received
}

// simulate predicts the time of the kernels and copies of one GPU. part is the product that it
// computes. The GPU fetches pieces one after the other, and computes each pair of a piece of A and
// one of B as soon as it has both. Three sums replace a [tilework/internal/program.Program], which
// would have an op for each copy and each launch: over a million for each of hundreds of grids.
func (e *Estimate) simulate(part Workload, c *Cluster) {
	size := float64(part.Type.Size())
	bytesA, bytesB := float64(part.M)*float64(part.K)*size, float64(part.K)*float64(part.N)*size
	a := pieces(true, bytesA, e.Grid.Cols, e.Host.Cols, e.Pieces)
	b := pieces(false, bytesB, e.Grid.Rows, e.Host.Rows, e.Pieces)
	result := part.result()
	e.Memory = bytesA + bytesB + float64(part.M)*float64(part.N)*float64(result.Size())
	each := e.Compute / float64(len(a)*len(b))
	haveA, haveB := e.Pieces, e.Pieces // the GPU's own
	computed := float64(haveA*haveB) * each
	peer, network := 0., 0. // times at which the copies so far end
	for haveA < len(a) || haveB < len(b) {
		next, blocks := b[min(haveB, len(b)-1)], haveA
		// The next piece is the one that allows more work for its bytes.
		if haveB == len(b) || haveA < len(a) &&
			float64(haveB)*(b[haveB].peer+b[haveB].network) > float64(haveA)*(a[haveA].peer+a[haveA].network) {
			next, blocks = a[haveA], haveB
		}
		if next.ofA {
			haveA++
		} else {
			haveB++
		}
		e.PeerBytes, e.NetworkBytes = e.PeerBytes+next.peer, e.NetworkBytes+next.network
		if next.network > 0 {
			network += copyLatency + next.network/c.Network
		}
		if next.peer > 0 {
			peer += copyLatency + next.peer/c.Peer
		}
		computed = max(computed, peer, network) + float64(blocks)*each + launch
	}
	e.Gather = max(peer, network)
	e.Total = computed
}

// pieces lists the pieces of an operand that n GPUs, onHost of them on one host, share equally: the
// GPU's own pieces, those of its host, and those of other hosts. Each GPU of a host receives a part
// of a piece of another host, and then they exchange the parts.
func pieces(ofA bool, bytes float64, n, onHost, each int) []piece {
	share := bytes / float64(n*each)
	all := make([]piece, 0, n*each)
	for i := range n * each {
		p := piece{ofA: ofA}
		switch {
		case i >= onHost*each:
			p.network = share / float64(onHost)
			p.peer = share - p.network
		case i >= each:
			p.peer = share
		}
		all = append(all, p)
	}
	return all
}

// Smallest returns the number of rows and the estimate of the smallest square product, in multiples
// of unit rows, from which on all sizes up to the next power of two reach the efficiency. The error
// is ErrUnsupported if none with up to most rows does.
func Smallest(t dtype.Type, c *Cluster, efficiency float64, unit, most int) (size int, e Estimate, err error) {
	for size = unit; ; size *= 2 {
		if size > most {
			return 0, e, fmt.Errorf("%w: an efficiency of %v %% on %d GPUs with up to %d rows", gemm.ErrUnsupported,
				100*efficiency, c.Size(), most)
		}
		e, err = Predict(Workload{t, size, size, size}, c)
		if err != nil || e.Efficiency() >= efficiency {
			break
		}
	}
	for err == nil && size > unit {
		next := size - unit
		smaller, err := Predict(Workload{t, next, next, next}, c)
		if err != nil || smaller.Efficiency() < efficiency {
			return size, e, err
		}
		size, e = next, smaller
	}
	return size, e, err
}
