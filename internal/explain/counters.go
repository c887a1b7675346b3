package explain

import (
	"context"
	"slices"

	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
	"tilework/ptx"
	"tilework/ptx/emu/check"
)

// Measured are the emulator's counters of a product that the kernel computes while the
// checkers watch. [check.Counts] defines them.
type Measured struct {
	// The product's sizes: those asked about, or as many whole tiles as give a small
	// one whose rows lie in memory in the same way.
	M int `json:"m"`
	N int `json:"n"`
	K int `json:"k"`

	Instructions uint64        `json:"instructions"` // executed by warps
	Opcodes      []OpcodeCount `json:"opcodes"`      // the most frequent first
	// Flops is the number of operations of the product, 2·M·N·K, and Issued the number that
	// threads and tensor cores execute for it: with those that fill tiles and finish C.
	// Both are of integers where the product is.
	Flops  int64          `json:"flops"`
	Issued int64          `json:"issued_flops"`
	Global []GlobalAccess `json:"global"`
	Shared []SharedAccess `json:"shared,omitempty"`
	// DistinctSectors is the number of different sectors of global memory that are accessed;
	// SectorsRead and SectorsWritten are those that are read and those that are written.
	DistinctSectors int64 `json:"distinct_sectors"`
	SectorsRead     int64 `json:"sectors_read"`
	SectorsWritten  int64 `json:"sectors_written"`
	// Findings is the faults that the checkers saw.
	Findings []string `json:"findings,omitempty"`
}

// OpcodeCount is the number of times that warps executed an instruction.
type OpcodeCount struct {
	Opcode string `json:"opcode"`
	Warps  int64  `json:"warps"`
}

// GlobalAccess is all loads or stores of one matrix, counted as in [check.GlobalCounts].
type GlobalAccess struct {
	What     string `json:"what"`     // "load A"
	Requests int64  `json:"requests"` // of warps; a bulk copy is one
	Asked    int64  `json:"asked"`    // bytes, of all threads together
	Sectors  int64  `json:"sectors"`  // each once a request
	Ideal    int64  `json:"ideal"`    // the fewest that hold as many different bytes
	// HalfWarps and Transactions are those at compute capability 1.0.
	HalfWarps    int64 `json:"half_warps"`
	Transactions int64 `json:"transactions"`
}

// SharedAccess is all loads or stores of one array in shared memory, counted as in
// [check.SharedCounts].
type SharedAccess struct {
	What       string `json:"what"`       // "store As"
	Requests   int64  `json:"requests"`   // of warps
	Wavefronts int64  `json:"wavefronts"` // of 32 banks; none of atomics
	Ideal      int64  `json:"ideal"`      // without bank conflicts
	// Then and ThenIdeal are the same for the 16 banks of compute capability 1.x, which
	// served half-warps.
	Then      int64 `json:"then"`
	ThenIdeal int64 `json:"then_ideal"`
}

// measure runs the kernel on a product like p that is small enough for the emulator.
func measure(ctx context.Context, j *job, p *gemm.Problem) (Measured, error) {
	small, err := j.on(smaller(p, j.config.Tile))
	if err != nil {
		return Measured{}, err
	}
	m, err := small.load(digits(small.problem.A.Type, small.problem.K), backwards(small.problem.B.Type, small.problem.N))
	if err != nil {
		return Measured{}, err
	}
	// What the accesses take is shown for each; only faults are findings.
	checks := check.New(check.Options{
		MaxConflicts: check.Unlimited, MaxScatter: check.Unlimited, Place: m.placeName, Historic: true,
	})
	stats, err := m.run(ctx, checks)
	if err != nil {
		return Measured{}, err
	}
	return measured(&m.problem, stats.Instructions, checks.Report(m.program, stats, nil)), nil
}

// measured returns the counters of p's launch.
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
			What: g.String(), Requests: g.Requests, Asked: g.RequestedBytes, Sectors: g.Sectors, Ideal: g.Ideal,
			HalfWarps: g.HalfWarps, Transactions: g.Transactions,
		})
	}
	for i := range c.Shared {
		s := &c.Shared[i]
		x.Shared = append(x.Shared, SharedAccess{
			What: s.String(), Requests: s.Requests, Wavefronts: s.Wavefronts, Ideal: s.Ideal,
			Then: s.HistoricWavefronts, ThenIdeal: s.HistoricIdeal,
		})
	}
	for i := range report.Findings {
		x.Findings = append(x.Findings, report.Findings[i].String())
	}
	return x
}

// ldPeriod is a number of elements that whole lines of the cache have, of every type:
// a leading dimension that is larger by it puts rows at the same places in lines.
const ldPeriod = 128

// smaller is p, or where it is large a product of whole tiles of it. The distance of
// rows is as before, modulo ldPeriod.
func smaller(p *gemm.Problem, s kernel.Tile) *gemm.Problem {
	const enough = 64 // elements of a side
	side := func(n, tile int) int {
		if most := max(enough/tile, 1) * tile; n > most {
			return most
		}
		return n
	}
	q := *p
	q.M, q.N, q.K = side(p.M, s.M), side(p.N, s.N), side(p.K, max(s.K, 1))
	resize := func(l *gemm.Layout, rows, cols int) {
		if l.Trans {
			rows, cols = cols, rows
		}
		l.Rows, l.Cols = rows, cols
		l.LD = cols + (l.LD-cols)%ldPeriod
	}
	resize(&q.A, q.M, q.K)
	resize(&q.B, q.K, q.N)
	resize(&q.C, q.M, q.N)
	return &q
}

// moved is how many bytes of sectors were moved for each byte that threads asked for,
// in accesses of that name.
func (x *Measured) moved(what string) float64 {
	for _, a := range x.Global {
		if a.What == what {
			return float64(a.Sectors*sectorBytes) / float64(a.Asked)
		}
	}
	return 0
}

const sectorBytes = 32

// placeName returns the name of the matrix or array at an address.
func (m *machine) placeName(space ptx.Space, addr uint64) string {
	name, _ := m.place(space, addr)
	return name
}
