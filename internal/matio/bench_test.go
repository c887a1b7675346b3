package matio

import (
	"path/filepath"
	"testing"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// The benchmarks measure bytes of the matrix, not of the file.

func BenchmarkWrite(b *testing.B) {
	for name, l := range layouts(dtype.F32, 1000, 1000) {
		data := fill(l)
		for _, f := range Formats() {
			b.Run(f.Ext[1:]+"/"+name, func(b *testing.B) {
				spec := filepath.Join(b.TempDir(), "m"+f.Ext)
				b.SetBytes(4 * 1000 * 1000)
				for b.Loop() {
					if err := Write(b.Context(), spec, l, data, replace); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkRead reads matrices without conversion and converts them to float64.
func BenchmarkRead(b *testing.B) {
	l := gemm.Dense(dtype.F32, 1000, 1000)
	data := fill(l)
	for _, f := range Formats() {
		spec := filepath.Join(b.TempDir(), "m"+f.Ext)
		if err := Write(b.Context(), spec, l, data, replace); err != nil {
			b.Fatal(err)
		}
		for _, t := range []dtype.Type{dtype.F32, dtype.F64} {
			b.Run(f.Ext[1:]+"/"+t.Info().Short, func(b *testing.B) {
				b.SetBytes(4 * 1000 * 1000)
				for b.Loop() {
					if _, err := Read(b.Context(), spec, ReadOptions{Type: t}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
