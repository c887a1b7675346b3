package explain

import (
	"context"
	"math/bits"
	"slices"

	"tilework/internal/gemm"
	"tilework/internal/gpu"
	"tilework/ptx"
	"tilework/ptx/emu"
	"tilework/ptx/emu/check"
)

// Measured is what the emulator counted while the kernel computed a product with
// the emulator's checkers watching.
type Measured struct {
	// The product's sizes: those asked about, or as many whole tiles as give a small
	// one whose rows lie in memory in the same way.
	M int `json:"m"`
	N int `json:"n"`
	K int `json:"k"`

	Instructions uint64         `json:"instructions"` // executed by warps
	Opcodes      []OpcodeCount  `json:"opcodes"`      // the most frequent first
	Flops        int64          `json:"flops"`        // executed by threads, with what finishes C
	Global       []GlobalAccess `json:"global"`
	Shared       []SharedAccess `json:"shared,omitempty"`
	// SectorsRead and SectorsWritten are the different sectors of global memory that
	// were touched: what would be moved if the cache forgot nothing.
	SectorsRead    int64 `json:"sectors_read"`
	SectorsWritten int64 `json:"sectors_written"`
	// Findings is the faults that the checkers saw.
	Findings []string `json:"findings,omitempty"`
}

// OpcodeCount is how often warps executed an instruction.
type OpcodeCount struct {
	Opcode string `json:"opcode"`
	Warps  int64  `json:"warps"`
}

// GlobalAccess is what all loads or stores of one matrix took.
type GlobalAccess struct {
	What     string `json:"what"`     // "load A"
	Requests int64  `json:"requests"` // of warps
	Asked    int64  `json:"asked"`    // bytes, of all threads together
	// Sectors are those that hold the bytes, each once a request, and Ideal those that
	// as many different bytes need at the least.
	Sectors int64 `json:"sectors"`
	Ideal   int64 `json:"ideal"`
	// HalfWarps and Transactions are how it was at compute capability 1.0.
	HalfWarps    int64 `json:"half_warps"`
	Transactions int64 `json:"transactions"`
}

// SharedAccess is what all loads or stores of one array in shared memory took.
type SharedAccess struct {
	What     string `json:"what"`     // "store As"
	Requests int64  `json:"requests"` // of warps
	// Wavefronts are the turns that the 32 banks took, and Ideal those without conflicts.
	Wavefronts int64 `json:"wavefronts"`
	Ideal      int64 `json:"ideal"`
	// Then and ThenIdeal are the same for the 16 banks of compute capability 1.x, which
	// served half-warps.
	Then      int64 `json:"then"`
	ThenIdeal int64 `json:"then_ideal"`
}

// measure runs the kernel on a product like p that is small enough for the emulator.
func measure(ctx context.Context, j *job, p *gemm.Problem) (Measured, error) {
	small, err := j.on(smaller(p, j.config.Shape))
	if err != nil {
		return Measured{}, err
	}
	m, err := small.load(digits(small.problem.A.Type, small.problem.K), backwards(small.problem.B.Type, small.problem.N))
	if err != nil {
		return Measured{}, err
	}
	counts := &counters{machine: m}
	// What the accesses take is shown for each; only faults are findings.
	checks := check.New(check.Options{MaxConflicts: check.Unlimited, MaxScatter: check.Unlimited})
	stats, err := m.run(ctx, counts, checks)
	if err != nil {
		return Measured{}, err
	}
	report := checks.Report(m.program, stats, nil)
	x := Measured{
		M: m.problem.M, N: m.problem.N, K: m.problem.K,
		Instructions: stats.Instructions, Flops: report.Counts.Flops,
		Global: counts.global, Shared: counts.shared,
		SectorsRead: report.SectorsRead, SectorsWritten: report.SectorsWritten,
	}
	for _, o := range report.Counts.Opcodes {
		x.Opcodes = append(x.Opcodes, OpcodeCount{o.Opcode, o.Warps})
	}
	slices.SortStableFunc(x.Opcodes, func(a, b OpcodeCount) int { return int(b.Warps - a.Warps) })
	for _, f := range report.Findings {
		x.Findings = append(x.Findings, f.String())
	}
	return x, nil
}

// ldPeriod is a number of elements that whole lines of the cache have, of every type:
// a leading dimension that is larger by it puts rows at the same places in lines.
const ldPeriod = 128

// smaller is p, or where it is large a product of whole tiles of it. The distance of
// rows is as before, modulo ldPeriod.
func smaller(p *gemm.Problem, s gpu.Shape) *gemm.Problem {
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

// counters is an observer that measures accesses by what they access.
type counters struct {
	machine *machine
	global  []GlobalAccess
	shared  []SharedAccess
}

// Block implements [emu.Observer].
func (c *counters) Block(*emu.BlockInfo) *emu.Hooks {
	return &emu.Hooks{Access: c.access, Bulk: c.bulk}
}

func (c *counters) access(a *emu.Access) {
	first := a.Addr[bits.TrailingZeros32(a.Mask)]
	name, _ := c.machine.place(a.Space, first)
	what := verb(a.Kind) + " " + name
	switch a.Space {
	case ptx.Global:
		x := entry(&c.global, func(x *GlobalAccess) *string { return &x.What }, what)
		t := check.TrafficOf(a.Addr, a.Mask, a.Size)
		halves, transactions := coalescedThen(a.Addr, a.Mask, a.Size)
		x.Requests++
		x.Asked += int64(bits.OnesCount32(a.Mask) * a.Size)
		x.Sectors += t.Sectors
		x.Ideal += t.Ideal
		x.HalfWarps += halves
		x.Transactions += transactions
	case ptx.Shared:
		x := entry(&c.shared, func(x *SharedAccess) *string { return &x.What }, what)
		now, best := check.ModernBanks.Wavefronts(a.Addr, a.Mask, a.Size)
		then, thenBest := check.HistoricBanks.Wavefronts(a.Addr, a.Mask, a.Size)
		x.Requests++
		x.Wavefronts += int64(now)
		x.Ideal += int64(best)
		x.Then += int64(then)
		x.ThenIdeal += int64(thenBest)
	}
}

// bulk counts what the copy engine reads or writes of global memory: whole sectors, but for
// those at the ends of rows.
func (c *counters) bulk(b *emu.Bulk) {
	if b.Space != ptx.Global || len(b.Spans) == 0 {
		return
	}
	name, _ := c.machine.place(b.Space, b.Spans[0].Addr)
	x := entry(&c.global, func(x *GlobalAccess) *string { return &x.What }, verb(b.Kind)+" "+name)
	x.Requests++
	for _, s := range b.Spans {
		x.Asked += int64(s.Size)
		sectors := int64((s.Addr+uint64(s.Size)-1)/sectorBytes - s.Addr/sectorBytes + 1)
		x.Sectors += sectors
		x.Ideal += min(sectors, int64(ceilDiv(s.Size, sectorBytes)))
	}
}

// entry is the row of that name, which is added if there is none.
func entry[T any](rows *[]T, name func(*T) *string, what string) *T {
	i := slices.IndexFunc(*rows, func(x T) bool { return *name(&x) == what })
	if i < 0 {
		i = len(*rows)
		var x T
		*name(&x) = what
		*rows = append(*rows, x)
	}
	return &(*rows)[i]
}

func verb(k emu.AccessKind) string {
	switch k {
	case emu.Read, emu.AsyncRead:
		return "load"
	case emu.Write, emu.AsyncWrite:
		return "store"
	}
	return "change"
}
