// Command data writes the files in examples/data:
//
//	a.npy, b.npy       256×512 and 512×128, float32 in [-1, 1)
//	x.csv, y0.csv      4×8 and 4×6, small whole numbers
//	model.safetensors  w1 of 8×6, gate and up of 6×8, bias of 6, float32
//	broken.ptx         nvcc's tiled kernel without its first barrier
//
// It runs in its own folder: go generate ./examples/data.
package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"tilework"
	"tilework/matfile"
	"tilework/ptx"
)

//go:generate go run .

// compiled is the path of nvcc's output for matmul.cu, relative to this folder.
const compiled = "../../ptx/testdata/nvcc/matmul.sm_90.lineinfo.ptx"

func main() {
	text, err := os.ReadFile(compiled)
	if err == nil {
		err = write(string(text), ".")
	}
	if err != nil {
		log.Fatal(err)
	}
}

// write writes the files into a folder. The argument text is the content of the file compiled.
func write(text, folder string) error {
	at := func(name string) string { return filepath.Join(folder, name) }
	fraction := func(r *rand.Rand) float32 { return 2*r.Float32() - 1 }
	digit := func(r *rand.Rand) float32 { return float32(r.IntN(9) - 4) }
	broken, err := withoutBarrier(text)
	return errors.Join(err,
		writeMatrix(at("a.npy"), 256, 512, fraction), writeMatrix(at("b.npy"), 512, 128, fraction),
		writeMatrix(at("x.csv"), 4, 8, digit), writeMatrix(at("y0.csv"), 4, 6, digit),
		os.WriteFile(at("model.safetensors"), model(digit), 0o644),
		os.WriteFile(at("broken.ptx"), []byte(broken), 0o644))
}

func writeMatrix(path string, rows, cols int, value func(*rand.Rand) float32) error {
	rng := rand.New(rand.NewPCG(uint64(rows), uint64(cols)))
	data := make([]float32, rows*cols)
	for i := range data {
		data[i] = value(rng)
	}
	return matfile.Write(context.Background(), path, tilework.FromSlice(rows, cols, data))
}

// model returns a safetensors file: the length of the header, the header and the elements.
func model(value func(*rand.Rand) float32) []byte {
	type tensor struct {
		Type    string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	tensors := map[string]tensor{}
	var elements []byte
	rng := rand.New(rand.NewPCG(1, 0))
	for _, t := range []struct {
		name  string
		shape []int
	}{{"w1", []int{8, 6}}, {"gate", []int{6, 8}}, {"up", []int{6, 8}}, {"bias", []int{6}}} {
		start, n := len(elements), 1
		for _, size := range t.shape {
			n *= size
		}
		for range n {
			elements = binary.LittleEndian.AppendUint32(elements, math.Float32bits(value(rng)))
		}
		tensors[t.name] = tensor{"F32", t.shape, [2]int{start, len(elements)}}
	}
	header, err := json.Marshal(tensors)
	if err != nil {
		log.Fatal(err)
	}
	text := string(header) + strings.Repeat(" ", (8-len(header)%8)%8)
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), elements...)
}

// withoutBarrier returns the PTX of the tiled kernel with tiles of 16, without its first barrier.
func withoutBarrier(text string) (string, error) {
	m, err := ptx.Parse(compiled, text)
	if err != nil {
		return "", err
	}
	var decls []ptx.Decl
	for _, d := range m.Decls {
		switch d := d.(type) {
		case *ptx.File:
			decls = append(decls, d)
		case *ptx.Func:
			if strings.Contains(d.Name, "tiledIfLi16E") && removeBarrier(d.Body) {
				decls = append(decls, d)
			}
		}
	}
	m.Decls = decls
	return m.String(), nil
}

// removeBarrier removes the first bar.sync of a function body. It reports whether it found one.
func removeBarrier(b *ptx.Block) bool {
	for i, s := range b.Stmts {
		switch s := s.(type) {
		case *ptx.Instr:
			if s.Op == "bar" {
				b.Stmts = append(b.Stmts[:i], b.Stmts[i+1:]...)
				return true
			}
		case *ptx.Block:
			if removeBarrier(s) {
				return true
			}
		}
	}
	return false
}
