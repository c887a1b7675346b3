package study

import (
	"fmt"

	"tilework/internal/explain"
	"tilework/internal/model"
)

// Measured is the rate of a rung on a GPU, from docs/results/study-h200.tsv, for a product of
// float32 with N×N matrices.
type Measured struct {
	GPU  string  `json:"gpu"`
	N    int     `json:"n"`
	Tile string  `json:"tile"`
	Rate float64 `json:"rate"` // operations per second
	// Read is the number of bytes that the kernel reads from memory, of docs/results/ncu-h200.tsv. It
	// is 0 if they were not counted.
	Read float64 `json:"read,omitempty"`
}

// intensity returns the operations per byte of memory. Without a count of the bytes it is that of a
// kernel that moves each matrix once.
func (m *Measured) intensity() float64 {
	n, read := float64(m.N), m.Read
	const float32Bytes = 4
	if read == 0 {
		read = 2 * n * n * float32Bytes
	}
	return 2 * n * n * n / (read + n*n*float32Bytes)
}

// Bounds places a rung in the roofline of a GPU. The bytes that its threads load bound the rate
// only if caches serve no load. The bytes that come from memory always do.
type Bounds struct {
	// Requested is the number of operations per byte that the threads request, and Least the number
	// per byte if each matrix moves once.
	Requested float64 `json:"requested"`
	Least     float64 `json:"least"`
	// Rate is the measured rate, and Memory the operations per byte of memory at that rate. Both are
	// 0 without a measurement of the tile on the GPU.
	Rate   float64 `json:"rate,omitempty"`
	Memory float64 `json:"memory,omitempty"`
	Text   string  `json:"text"`
}

// bounds returns the place of a rung in the roofline of x, or nil if there is no roofline.
func (r *Rung) bounds(x *explain.Explanation) *Bounds {
	if x.Roof == nil {
		return nil
	}
	attain := func(intensity float64) string { return rate(min(x.Roof.Peak, intensity*x.Roof.Bandwidth)) }
	b := &Bounds{Requested: x.Phase.Intensity, Least: x.Traffic[0].Intensity}
	b.Text = fmt.Sprintf("%s does %.3g operations per byte that its threads load. ", r.Name, b.Requested)
	if b.Requested < x.Roof.Ridge {
		b.Text += fmt.Sprintf("Without caches, with every load served by memory, that allows %s.", attain(b.Requested))
	} else {
		b.Text += fmt.Sprintf("Even without caches its loads allow the peak, %s.", attain(b.Requested))
	}
	m := r.Measured
	if m == nil || m.GPU != x.GPU || x.Tile != r.Tile && x.Tile != m.Tile {
		b.Text += fmt.Sprintf(" With caches, memory moves each matrix at least once: this product has at most %.3g "+
			"operations per byte, which allow %s.", b.Least, attain(b.Least))
		return b
	}
	b.Rate, b.Memory = m.Rate, m.intensity()
	with := ""
	if x.Tile != m.Tile {
		with = ", with tile " + m.Tile
	}
	served := "Caches serve repeated loads there: if memory moves each matrix once, %.3g operations per byte allow %s."
	if m.Read > 0 {
		served = "Caches serve most loads there: a byte of memory serves %.3g operations, which allow %s."
	}
	b.Text += fmt.Sprintf(" Measured at %d³%s: %s. "+served, m.N, with, rate(m.Rate), b.Memory, attain(b.Memory))
	return b
}

// rate formats operations per second: "8.1 TFLOP/s".
func rate(flops float64) string { return fmt.Sprintf("%.3g TFLOP/s", flops/1e12) }

// limitsOf returns a sentence on the limits of a GPU for each arithmetic of the rungs.
func limitsOf(m *model.Model) map[string]string {
	all := map[string]string{}
	for arithmetic, r := range map[string]model.Rate{plainArithmetic: model.FP32, tensorArithmetic: model.TF32} {
		if all[arithmetic] = fmt.Sprintf("%s has no %s.", m.Device, arithmetic); m.Peak[r] > 0 {
			all[arithmetic] = fmt.Sprintf("%s: at most %s in %s and %.0f GB/s of memory, so %.3g operations per byte of memory "+
				"keep its arithmetic busy.", m.Device, rate(m.Peak[r]), arithmetic, m.MemBandwidth/1e9, m.Peak[r]/m.MemBandwidth)
		}
	}
	return all
}
