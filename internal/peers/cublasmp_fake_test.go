package peers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/device/emu"
)

// fakeMp replaces cuBLASMp and NCCL. It decodes arguments by their order in cublasmp.h, waits for
// all ranks where the library does, and computes products by the definitions of the block-cyclic
// distribution and of a column-major GEMM, independently of this package's types.
type fakeMp struct {
	t     *testing.T
	gpus  []*mpGPU
	texts cStrings

	mu      sync.Mutex
	arrived *sync.Cond
	live    map[uintptr]any // objects by their handle
	next    uintptr
	meeting map[string][]meetingArgs
	rounds  map[string]int // of completed meetings
	aborted bool

	calls, failAt  int
	failed         string // the call that failed
	unregistrable  bool   // whether no workspace can be registered
	version, comms int32  // of cuBLASMp and NCCL
}

// mpGPU is an emulated device that passes for a GPU.
type mpGPU struct {
	device.Device
	index  int
	access []device.Device // the GPUs whose memory it can use
}

func (g *mpGPU) Index() int                                 { return g.index }
func (g *mpGPU) Foreign(f func(stream uintptr) error) error { return f(uintptr(0x100 + g.index)) }

func (g *mpGPU) Access(other device.Device) (bool, error) {
	g.access = append(g.access, other)
	return true, nil
}

// The objects of the library.
type (
	mpComm   struct{ rank int }
	mpHandle struct{ rank int }
	mpGrid   struct{ rank, rows, cols, order int }
	mpMatrix struct {
		rows, cols, blockRows, blockCols, ld int
		typ                                  dtype.Type
		grid                                 mpGrid
	}
	mpDesc      struct{ compute, transA, transB int32 }
	mpMemory    struct{ registered bool }
	meetingArgs struct {
		rank int
		args []uintptr
	}
)

func newFakeMp(t *testing.T, ranks int) (*fakeMp, *CuBLASMp) {
	t.Helper()
	f := &fakeMp{t: t, live: map[uintptr]any{}, next: 0x1000, version: 1000, comms: 23007,
		meeting: map[string][]meetingArgs{}, rounds: map[string]int{}}
	f.arrived = sync.NewCond(&f.mu)
	l := &CuBLASMp{procs: map[string]uintptr{}, run: f.run, limit: time.Minute, patience: 10 * time.Millisecond,
		Path: "libcublasmp.so.0"}
	for i := range ranks {
		d, err := emu.Open(emu.Options{})
		if err != nil {
			t.Fatal(err)
		}
		f.gpus = append(f.gpus, &mpGPU{Device: d, index: 2 * i})
		l.ranks = append(l.ranks, &mpRank{gpu: f.gpus[i]})
	}
	for i, name := range cublasMpProcs {
		l.procs[name] = uintptr(i + 1)
	}
	return f, l
}

// add returns the handle of a new object, and stores it at an address.
func (f *fakeMp) add(object any, to uintptr) {
	f.next += 0x10
	f.live[f.next] = object
	*pointTo[uintptr](to) = f.next
}

// object returns the object of a handle.
func object[T any](f *fakeMp, handle uintptr) T {
	x, ok := f.live[handle].(T)
	if !ok {
		f.t.Errorf("%#x is a %T, want a %T", handle, f.live[handle], x)
	}
	return x
}

// free forgets an object.
func free[T any](f *fakeMp, handle uintptr) {
	object[T](f, handle)
	delete(f.live, handle)
}

// meet waits for the same call of all ranks. The last one calls act. It returns a status.
func (f *fakeMp) meet(rank int, name string, a []uintptr, act func([]meetingArgs)) uintptr {
	f.meeting[name] = append(f.meeting[name], meetingArgs{rank, a})
	round := f.rounds[name]
	if all := f.meeting[name]; len(all) == len(f.gpus) {
		slices.SortFunc(all, func(a, b meetingArgs) int { return a.rank - b.rank })
		act(all)
		f.meeting[name] = nil
		f.rounds[name]++
		f.arrived.Broadcast()
	}
	for f.rounds[name] == round && !f.aborted {
		f.arrived.Wait()
	}
	if f.rounds[name] == round {
		return 6
	}
	return 0
}

func (f *fakeMp) run(proc uintptr, a ...uintptr) uintptr {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := cublasMpProcs[proc-1]
	switch name {
	case mpStatusString, ncclErrorString:
		return f.texts.add(fmt.Sprintf("status %d", a[0]))
	case ncclLastError:
		return f.texts.add("no cable")
	case ncclAbort:
		f.aborted = true
		f.arrived.Broadcast()
		free[mpComm](f, a[0])
		return 0
	}
	if f.calls++; f.calls == f.failAt {
		f.failed = name
		if strings.Contains(name, "Destroy") || name == ncclMemFree {
			delete(f.live, a[0])
		}
		return 4
	}
	switch name {
	case mpGetVersion:
		*pointTo[int32](a[0]) = f.version
	case ncclGetVersion:
		*pointTo[int32](a[0]) = f.comms
	case ncclInitAll:
		for i := range a[1] {
			if number := unsafe.Slice(pointTo[int32](a[2]), a[1])[i]; number != int32(2*i) {
				f.t.Errorf("rank %d is GPU %d", i, number)
			}
			if len(f.gpus[i].access) != len(f.gpus)-1 || slices.Contains(f.gpus[i].access, device.Device(f.gpus[i])) {
				f.t.Errorf("rank %d has access to the memory of %v", i, f.gpus[i].access)
			}
			f.add(mpComm{int(i)}, a[0]+8*i)
		}
	case ncclDestroy:
		free[mpComm](f, a[0])
	case ncclMemAlloc:
		f.add(mpMemory{}, a[0])
	case ncclMemFree:
		if object[mpMemory](f, a[0]).registered {
			f.t.Error("registered memory is freed")
		}
		delete(f.live, a[0])
	case mpCreate:
		f.add(mpHandle{int(a[1]-0x100) / 2}, a[0])
	case mpDestroy:
		free[mpHandle](f, a[0])
	case mpGridCreate:
		g := mpGrid{object[mpComm](f, a[3]).rank, int(a[0]), int(a[1]), int(a[2])}
		if g.rows*g.cols != len(f.gpus) {
			f.t.Errorf("a grid of %d×%d for %d ranks", g.rows, g.cols, len(f.gpus))
		}
		f.add(g, a[4])
		return f.meet(g.rank, name+fmt.Sprint(g.rows), a, func([]meetingArgs) {})
	case mpGridDestroy:
		g := object[mpGrid](f, a[0])
		delete(f.live, a[0])
		return f.meet(g.rank, name+fmt.Sprint(g.rows), a, func([]meetingArgs) {})
	case mpRegister, mpDeregister:
		g := object[mpGrid](f, a[0])
		if f.unregistrable {
			return mpNotSupported
		}
		if m := object[mpMemory](f, a[1]); m.registered != (name == mpDeregister) || name == mpRegister && a[2] != 4096 {
			f.t.Errorf("%s of %d bytes of %+v", name, a[2], m)
		}
		f.live[a[1]] = mpMemory{name == mpRegister}
		return f.meet(g.rank, name, a, func([]meetingArgs) {})
	case mpMatrixCreate:
		f.add(mpMatrix{int(a[0]), int(a[1]), int(a[2]), int(a[3]), int(a[6]),
			map[uintptr]dtype.Type{0: dtype.F32, 1: dtype.F64, 2: dtype.F16, 14: dtype.BF16}[a[7]],
			object[mpGrid](f, a[8])}, a[9])
	case mpMatrixDestroy:
		free[mpMatrix](f, a[0])
	case mpDescCreate:
		f.add(mpDesc{compute: int32(a[1])}, a[0])
	case mpDescSet:
		d := object[mpDesc](f, a[0])
		*map[uintptr]*int32{0: &d.transA, 1: &d.transB}[a[1]] = *pointTo[int32](a[2])
		if a[3] != 4 {
			f.t.Errorf("an attribute of %d bytes", a[3])
		}
		f.live[a[0]] = d
	case mpDescDestroy:
		free[mpDesc](f, a[0])
	case mpBufferSize:
		f.check(a)
		*pointTo[uintptr](a[23]), *pointTo[uintptr](a[24]) = 4096, 16
	case mpMatmul:
		f.check(a)
		object[mpMemory](f, a[23])
		if a[24] != 4096 || a[25] == 0 || a[26] != 16 {
			f.t.Errorf("workspaces of %d and %d bytes", a[24], a[26])
		}
		return f.meet(object[mpHandle](f, a[0]).rank, name, a, f.multiply)
	}
	return 0
}

// check checks the arguments of a product against the rules in cublasmp.h.
func (f *fakeMp) check(a []uintptr) {
	object[mpHandle](f, a[0])
	d := object[mpDesc](f, a[1])
	m, n, k := int(a[2]), int(a[3]), int(a[4])
	ma, mb, md := object[mpMatrix](f, a[9]), object[mpMatrix](f, a[13]), object[mpMatrix](f, a[22])
	if d.transA != 0 {
		ma.rows, ma.cols, ma.blockRows, ma.blockCols = ma.cols, ma.rows, ma.blockCols, ma.blockRows
	}
	if d.transB != 0 {
		mb.rows, mb.cols, mb.blockRows, mb.blockCols = mb.cols, mb.rows, mb.blockCols, mb.blockRows
	}
	switch {
	case ma.rows != m || ma.cols != k || mb.rows != k || mb.cols != n || md.rows != m || md.cols != n:
		f.t.Errorf("%d×%d×%d of %+v, %+v and %+v", m, n, k, ma, mb, md)
	case ma.blockCols != mb.blockRows || ma.blockRows != md.blockRows || mb.blockCols != md.blockCols:
		f.t.Errorf("blocks of %+v, %+v and %+v", ma, mb, md)
	case (a[15] == 0) != (a[18] == 0) || a[15] != 0 && (a[15] != a[19] || a[18] != a[22]):
		f.t.Errorf("C is %#x and %#x, D %#x and %#x", a[15], a[18], a[19], a[22])
	}
	for _, at := range []int{7, 8, 11, 12, 16, 17, 20, 21} {
		if a[at] != 1 {
			f.t.Errorf("argument %d is %d, want 1", at, a[at])
		}
	}
}

// global is a matrix that is collected from all ranks, or distributed to them.
type global struct {
	f     *fakeMp
	parts []mpMatrix // of the ranks
	at    []uintptr
	local [][]byte
}

// collect returns the matrix whose address and descriptor are arguments of the ranks.
func (f *fakeMp) collect(all []meetingArgs, address, descriptor int) *global {
	g := &global{f: f}
	for i, x := range all {
		m := object[mpMatrix](f, x.args[descriptor])
		_, col := m.grid.coordinates(i)
		cols := 0
		for j := range m.cols {
			if j/m.blockCols%m.grid.cols == col {
				cols++
			}
		}
		local := make([]byte, m.typ.Bytes(m.ld*cols))
		f.copy(f.gpus[i].CopyOut(context.Background(), local, device.Ptr(x.args[address]), device.Whole(len(local))), local)
		g.parts, g.at, g.local = append(g.parts, m), append(g.at, x.args[address]), append(g.local, local)
	}
	return g
}

// copy reports a failed copy, except one of nothing.
func (f *fakeMp) copy(err error, local []byte) {
	if err != nil && len(local) > 0 {
		f.t.Error(err)
	}
}

// coordinates returns the row and the column of a rank.
func (g mpGrid) coordinates(rank int) (row, col int) {
	if g.order == 0 {
		return rank % g.rows, rank / g.rows
	}
	return rank / g.cols, rank % g.cols
}

// place returns the rank and the index of an element.
func (g *global) place(i, j int) (rank, index int) {
	for rank, m := range g.parts {
		row, col := m.grid.coordinates(rank)
		bi, bj := i/m.blockRows, j/m.blockCols
		if bi%m.grid.rows == row && bj%m.grid.cols == col {
			return rank, bi/m.grid.rows*m.blockRows + i%m.blockRows + m.ld*(bj/m.grid.cols*m.blockCols+j%m.blockCols)
		}
	}
	panic("no rank has the element")
}

func (g *global) get(i, j int) float64 {
	rank, index := g.place(i, j)
	return g.parts[rank].typ.At(g.local[rank], index)
}

// multiply computes a product from the arguments of all ranks.
func (f *fakeMp) multiply(all []meetingArgs) {
	args := all[0].args
	d := object[mpDesc](f, args[1])
	a, b, c := f.collect(all, 6, 9), f.collect(all, 10, 13), f.collect(all, 19, 22)
	alpha, beta := float64(*pointTo[float32](args[5])), float64(*pointTo[float32](args[14]))
	if want := map[bool]int32{false: 68, true: 70}[a.parts[0].typ == dtype.F64]; d.compute != want {
		f.t.Errorf("%v with the compute type %d, want %d", a.parts[0].typ, d.compute, want)
	}
	if d.compute == 70 {
		alpha, beta = *pointTo[float64](args[5]), *pointTo[float64](args[14])
	}
	if args[15] == 0 && beta != 0 {
		f.t.Errorf("β is %v, without C", beta)
	}
	for i := range int(args[2]) {
		for j := range int(args[3]) {
			var sum float64
			for q := range int(args[4]) {
				x, y := [2]int{i, q}, [2]int{q, j}
				if d.transA != 0 {
					x = [2]int{q, i}
				}
				if d.transB != 0 {
					y = [2]int{j, q}
				}
				sum += a.get(x[0], x[1]) * b.get(y[0], y[1])
			}
			v := alpha * sum
			if beta != 0 {
				v += beta * c.get(i, j)
			}
			rank, index := c.place(i, j)
			c.parts[rank].typ.Set(c.local[rank], index, v)
		}
	}
	for i, local := range c.local {
		f.copy(f.gpus[i].CopyIn(context.Background(), device.Ptr(c.at[i]), local, device.Whole(len(local))), local)
	}
}

// left counts the objects of the library, and the bytes on the GPUs, that have not been freed.
func (f *fakeMp) left() (objects int, bytes int64) {
	for _, g := range f.gpus {
		bytes += g.Device.(interface{ Used() int64 }).Used()
	}
	return len(f.live), bytes
}
