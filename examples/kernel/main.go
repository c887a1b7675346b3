// Command kernel builds a GPU kernel in Go, runs it on the emulator with all checkers, and
// prints their findings. It needs neither a GPU nor CUDA.
//
//	go run ./examples/kernel                    transpose a matrix, without findings
//	go run ./examples/kernel -barrier=false     omit the barrier: the checkers find a race
//	go run ./examples/kernel -pad 0             omit the padding: they find bank conflicts
//	go run ./examples/kernel -ptx               print the PTX of the kernel
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"

	"tilework/ptx"
	"tilework/ptx/build"
	"tilework/ptx/emu"
	"tilework/ptx/emu/check"
)

// tile is the side of the square that a block transposes. A warp of 32 threads moves each row.
const tile = 32

// transpose builds a kernel that writes the transpose of the rows×cols matrix in to out. Each block
// copies a tile through shared memory, so that both its reads and its writes of global memory are
// coalesced. Each row of the tile in shared memory has pad additional elements.
//
// The Go code runs when the kernel is built: pad and barrier change the generated PTX.
func transpose(pad int, barrier bool) (*ptx.Module, error) {
	k := build.New("transpose")
	k.LineInfo() // findings refer to lines of this file
	k.Threads(tile, tile, 1)
	rows, cols := k.Param("rows", ptx.U32), k.Param("cols", ptx.U32)
	in := k.Matrix(k.Pointer("in", ptx.F32).ReadOnly(), rows, cols, cols)
	out := k.Matrix(k.Pointer("out", ptx.F32), cols, rows, rows)
	staged := k.Shared("staged", ptx.F32, tile, tile+pad)
	tx, ty := k.ThreadIdx(build.X), k.ThreadIdx(build.Y)
	row0, col0 := k.Mul(k.BlockIdx(build.Y), tile), k.Mul(k.BlockIdx(build.X), tile)

	staged.Store(ty, tx, in.LoadOr0(k.Add(row0, ty), k.Add(col0, tx)))
	if barrier {
		k.Barrier() // the tile is complete
	}
	row, col := k.Add(col0, ty), k.Add(row0, tx)
	k.If(out.InBounds(row, col), func() {
		// A warp reads a column of the tile: from 32 banks with padding, and from one without.
		out.At(row, col).Store(staged.Load(tx, ty))
	})
	return k.Build()
}

func main() {
	log.SetFlags(0)
	pad := flag.Int("pad", 1, "number of elements of padding in each row of the tile")
	barrier := flag.Bool("barrier", true, "wait until the tile is complete")
	text := flag.Bool("ptx", false, "print the PTX of the kernel")
	flag.Parse()
	m, err := transpose(*pad, *barrier)
	if err != nil {
		log.Fatal(err)
	}
	if *text {
		fmt.Print(m)
		return
	}
	if err := run(context.Background(), m, 100, 70, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run runs the kernel on a rows×cols matrix, prints the findings of the checkers, and checks the
// result.
func run(ctx context.Context, m *ptx.Module, rows, cols int, w io.Writer) error {
	program, err := emu.Load(m)
	if err != nil {
		return err
	}
	memory := emu.NewMemory(emu.MemoryOptions{TrackWrites: true}) // to find reads of uninitialized memory
	data := make([]byte, 4*rows*cols)
	for i := range rows * cols {
		binary.LittleEndian.PutUint32(data[4*i:], uint32(i)) // any bit pattern works, the kernel only moves elements
	}
	in, err := memory.Alloc(len(data))
	if err != nil {
		return err
	}
	out, err := memory.Alloc(len(data))
	if err != nil {
		return err
	}
	if err := memory.Write(in, data); err != nil {
		return err
	}
	params, err := program.Pack("transpose", uint32(rows), uint32(cols), in, out)
	if err != nil {
		return err
	}
	checks := check.New(check.Options{})
	stats, err := program.Run(ctx, memory, emu.Launch{
		Entry: "transpose", Params: params,
		Grid:      emu.Dim3{X: (cols + tile - 1) / tile, Y: (rows + tile - 1) / tile, Z: 1},
		Block:     emu.Dim3{X: tile, Y: tile, Z: 1},
		Observers: []emu.Observer{checks},
	})
	if err != nil {
		return err
	}
	report := checks.Report(program, stats, nil)
	fmt.Fprint(w, report)
	fmt.Fprintf(w, "warp instructions: %d, findings: %d\n", stats.Instructions, len(report.Findings))
	if report.Errors() > 0 {
		return errors.New("the kernel is wrong")
	}
	got := make([]byte, len(data))
	if err := memory.Read(out, got); err != nil {
		return err
	}
	for i := range rows {
		for j := range cols {
			if v := binary.LittleEndian.Uint32(got[4*(j*rows+i):]); v != uint32(i*cols+j) {
				return fmt.Errorf("element %d,%d of the result is %d, want %d", j, i, v, i*cols+j)
			}
		}
	}
	return nil
}
