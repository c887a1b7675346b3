// Command kernel writes a GPU kernel in Go, runs it on the emulator with every checker
// watching, and prints what they found: no GPU, no CUDA.
//
//	go run ./examples/kernel                    a transposition, without a finding
//	go run ./examples/kernel -barrier=false     what a missing barrier is: a race
//	go run ./examples/kernel -pad 0             what a column of a tile costs: bank conflicts
//	go run ./examples/kernel -ptx               its text, as NVIDIA's driver takes it
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

// tile is the side of what a block transposes, a warp of 32 threads for each row.
const tile = 32

// transpose writes a kernel: out, of cols×rows, becomes in, of rows×cols, with rows and
// columns exchanged. A tile passes through shared memory, so that neighbouring threads
// read neighbours in memory and write neighbours, too.
//
// This is Go that runs when the kernel is written: pad and barrier choose between texts.
func transpose(pad int, barrier bool) (*ptx.Module, error) {
	k := build.New("transpose")
	k.LineInfo() // so that findings are told with the lines of this file
	k.Threads(tile, tile, 1)
	rows, cols := k.Param("rows", ptx.U32), k.Param("cols", ptx.U32)
	in := k.Matrix(k.Pointer("in", ptx.F32).ReadOnly(), rows, cols, cols)
	out := k.Matrix(k.Pointer("out", ptx.F32), cols, rows, rows)
	staged := k.Shared("staged", ptx.F32, tile, tile+pad)
	tx, ty := k.ThreadIdx(build.X), k.ThreadIdx(build.Y)
	row0, col0 := k.Mul(k.BlockIdx(build.Y), tile), k.Mul(k.BlockIdx(build.X), tile)

	staged.Store(ty, tx, in.LoadOr0(k.Add(row0, ty), k.Add(col0, tx)))
	if barrier {
		k.Barrier() // all of the tile is there
	}
	row, col := k.Add(col0, ty), k.Add(row0, tx)
	k.If(out.InBounds(row, col), func() {
		out.At(row, col).Store(staged.Load(tx, ty)) // down a column: 32 banks, or one
	})
	return k.Build()
}

func main() {
	log.SetFlags(0)
	pad := flag.Int("pad", 1, "elements that a row of the tile is longer than 32")
	barrier := flag.Bool("barrier", true, "wait until all of the tile is there")
	text := flag.Bool("ptx", false, "print the kernel's text")
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

// run runs the kernel on a matrix of rows×cols, prints what the checkers found, and looks at
// the result.
func run(ctx context.Context, m *ptx.Module, rows, cols int, w io.Writer) error {
	program, err := emu.Load(m)
	if err != nil {
		return err
	}
	memory := emu.NewMemory(emu.MemoryOptions{TrackWrites: true}) // or reads of what nobody wrote are not seen
	data := make([]byte, 4*rows*cols)
	for i := range rows * cols {
		binary.LittleEndian.PutUint32(data[4*i:], uint32(i)) // any 32 bits: they are only moved
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
	fmt.Fprintf(w, "instructions of warps: %d, findings: %d\n", stats.Instructions, len(report.Findings))
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
