package explain

import (
	"context"
	"slices"

	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
	"tilework/ptx"
	"tilework/ptx/emu/check"
)

// Measured holds the emulator's counters of a product that runs with all checkers. [check.Counts]
// defines the counters.
type Measured struct {
	// M, N and K are the sizes of the explained product, or for a large one those of a few whole
	// tiles with rows that are aligned in the same way.
	M int `json:"m"`
	N int `json:"n"`
	K int `json:"k"`

	Instructions uint64        `json:"instructions"` // warp instructions
	Opcodes      []OpcodeCount `json:"opcodes"`      // in order of decreasing count
	// Flops is the number of operations of the product, 2·M·N·K. Issued is the number of operations
	// that threads and tensor cores execute, including zero padding and the epilogue. Both count
	// integer operations if the product has integers.
	Flops  int64          `json:"flops"`
	Issued int64          `json:"issued_flops"`
	Global []GlobalAccess `json:"global"`
	Shared []SharedAccess `json:"shared,omitempty"`
	// DistinctSectors is the number of different sectors of global memory that are accessed.
	// SectorsRead and SectorsWritten count those that are read and those that are written.
	DistinctSectors int64 `json:"distinct_sectors"`
	SectorsRead     int64 `json:"sectors_read"`
	SectorsWritten  int64 `json:"sectors_written"`
	// Findings lists the faults that the checkers found.
	Findings []string `json:"findings,omitempty"`
}

// OpcodeCount is the number of warp instructions with an opcode.
type OpcodeCount struct {
	Opcode string `json:"opcode"`
	Warps  int64  `json:"warps"`
}

// GlobalAccess counts the loads or stores of one matrix, as defined by [check.GlobalCounts].
type GlobalAccess struct {
	What           string `json:"what"`     // "load A"
	Requests       int64  `json:"requests"` // by warps; a TMA copy is one request
	RequestedBytes int64  `json:"asked"`    // summed over all threads
	Sectors        int64  `json:"sectors"`  // each counted once per request
	Ideal          int64  `json:"ideal"`    // least number that holds the different bytes of each request
	// HalfWarps and Transactions are the counts by the rules of compute capability 1.0.
	HalfWarps    int64 `json:"half_warps"`
	Transactions int64 `json:"transactions"`
}

// SharedAccess counts the loads or stores of one array in shared memory, as defined by
// [check.SharedCounts].
type SharedAccess struct {
	What       string `json:"what"`       // "store As"
	Requests   int64  `json:"requests"`   // by warps
	Wavefronts int64  `json:"wavefronts"` // passes over the 32 banks; 0 for atomics
	Ideal      int64  `json:"ideal"`      // wavefronts without bank conflicts
	// Historic and HistoricIdeal are the wavefronts on the 16 banks of compute capability 1.x,
	// which served half-warps.
	Historic      int64 `json:"then"`
	HistoricIdeal int64 `json:"then_ideal"`
}

// measure runs the kernel on a product like p that is small enough for the emulator.
func measure(ctx context.Context, j *job, p *gemm.Problem) (Measured, error) {
	small, err := j.withProblem(smaller(p, j.config.Tile))
	if err != nil {
		return Measured{}, err
	}
	m, err := small.loadDigits()
	if err != nil {
		return Measured{}, err
	}
	// Inefficient accesses are counted and not findings.
	checks := m.Checkers(check.Options{MaxConflicts: check.Unlimited, MaxScatter: check.Unlimited})
	stats, err := m.Run(ctx, checks)
	if err != nil {
		return Measured{}, err
	}
	counters, _ := m.Report(checks, stats, nil)
	return counters, nil
}

// measured returns the counters of the launch for p.
func measured(p *gemm.Problem, instructions uint64, report *check.Report) Measured {
	c := &report.Counts
	x := Measured{
		M: p.M, N: p.N, K: p.K,
		Instructions: instructions, Flops: int64(p.Flops()), Issued: c.Operations(p.Accum().Info().Integer),
		DistinctSectors: c.DistinctSectors, SectorsRead: c.SectorsRead, SectorsWritten: c.SectorsWritten,
	}
	for _, o := range c.Opcodes {
		x.Opcodes = append(x.Opcodes, OpcodeCount{o.Opcode, o.Warps})
	}
	slices.SortStableFunc(x.Opcodes, func(a, b OpcodeCount) int { return int(b.Warps - a.Warps) })
	for i := range c.Global {
		g := &c.Global[i]
		x.Global = append(x.Global, GlobalAccess{
			What: g.String(), Requests: g.Requests, RequestedBytes: g.RequestedBytes, Sectors: g.Sectors, Ideal: g.Ideal,
			HalfWarps: g.HalfWarps, Transactions: g.Transactions,
		})
	}
	for i := range c.Shared {
		s := &c.Shared[i]
		x.Shared = append(x.Shared, SharedAccess{
			What: s.String(), Requests: s.Requests, Wavefronts: s.Wavefronts, Ideal: s.Ideal,
			Historic: s.HistoricWavefronts, HistoricIdeal: s.HistoricIdeal,
		})
	}
	for i := range report.Findings {
		x.Findings = append(x.Findings, report.Findings[i].String())
	}
	return x
}

// ldPeriod is a number of elements that fills whole cache lines for every type. Increasing a
// leading dimension by a multiple of it does not change the alignment of the rows.
const ldPeriod = 128

// smaller returns p, or for a large p a product of a few whole tiles. Leading dimensions change by
// multiples of ldPeriod only, and rows that are at least ldPeriod elements apart stay so: such rows
// have no cache line in common.
func smaller(p *gemm.Problem, s kernel.Tile) *gemm.Problem {
	const maxSide = 64 // elements
	side := func(n, tile int) int {
		if n <= maxSide {
			return n
		}
		return min(n, max(maxSide/tile, 1)*tile)
	}
	q := *p
	q.M, q.N, q.K = side(p.M, s.M), side(p.N, s.N), side(p.K, max(s.K, 1))
	resize := func(l *gemm.Layout, rows, cols int) {
		if l.Trans {
			rows, cols = cols, rows
		}
		l.Rows, l.Cols = rows, cols
		if gap := l.LD - cols; gap >= 2*ldPeriod {
			l.LD = cols + ldPeriod + gap%ldPeriod
		}
	}
	resize(&q.Layouts[gemm.A], q.M, q.K)
	resize(&q.Layouts[gemm.B], q.K, q.N)
	resize(&q.Layouts[gemm.C], q.M, q.N)
	return &q
}

// moved returns the bytes of sectors per requested byte, for the accesses with the given name.
func (x *Measured) moved(name string) float64 {
	for _, a := range x.Global {
		if a.What == name {
			return float64(a.Sectors*sectorBytes) / float64(a.RequestedBytes)
		}
	}
	return 0
}

const sectorBytes = 32

// rangeName returns the name of the matrix or array at an address.
func (m *Machine) rangeName(space ptx.Space, addr uint64) string {
	name, _ := m.locate(space, addr)
	return name
}
