// Package study runs the GPU kernels of the ladder for a student: on any product that a browser can
// emulate, checked and counted, sound or with a planted fault. `tilework study` compiles it to
// WebAssembly. [Call] is its interface in JSON.
package study

import (
	"cmp"
	"fmt"
	"slices"

	"tilework/dtype"
	"tilework/internal/explain"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/sm90"
	"tilework/internal/model"
	"tilework/internal/names"
	"tilework/internal/phrase"
)

// Rung is a kernel of the ladder with a tile.
type Rung struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Title string `json:"title"`
	// Idea explains the kernel in three sentences.
	Idea []string `json:"idea"`
	// Limit states the bottleneck on any GPU. Figures has figures of it at 4096×4096×4096 on the GPU
	// of Measured, from docs/study.md and docs/results/ncu-h200.tsv.
	Limit    string    `json:"limit"`
	Figures  string    `json:"figures,omitempty"`
	Measured *Measured `json:"measured,omitempty"`
	// Sizes is the default product.
	Sizes Sizes `json:"sizes"`
	// Intensity is the number of operations per byte that the threads request.
	Intensity float64 `json:"intensity"`
	// Arithmetic is the arithmetic of the multiplication, such as "TF32 on tensor cores".
	Arithmetic string `json:"arithmetic"`
	Tile       string `json:"tile"`
	// Tiles lists the tiles of the kernel, from the smallest.
	Tiles []string `json:"tiles"`
	// Small is the tile for Watch and for planted mistakes: Tile, or a smaller one whose elements can
	// be told apart. Watched is the default product of Watch.
	Small   string `json:"small"`
	Watched Sizes  `json:"watched"`

	// Kernel is the name in the list of kernels.
	Kernel    string `json:"kernel"`
	precision gemm.Precision
	sources   []string // the Go files that write the kernel
}

// Sizes are the sizes of a product: C is M×N, and K is the length of a sum.
type Sizes struct {
	M int `json:"m"`
	N int `json:"n"`
	K int `json:"k"`
}

// Limits of a product. The emulator runs about two million multiply-adds per second in a browser.
const (
	MaxSide = 256
	MaxWork = 1 << 22 // multiply-adds
)

func (s Sizes) check() error {
	for _, side := range []struct {
		name string
		n    int
	}{{"M", s.M}, {"N", s.N}, {"K", s.K}} {
		if side.n < 1 || side.n > MaxSide {
			return fmt.Errorf("%s is %d: want 1 to %d", side.name, side.n, MaxSide)
		}
	}
	if work := s.M * s.N * s.K; work > MaxWork {
		return fmt.Errorf("%d×%d×%d is %s multiply-adds: want at most %s in a browser, such as 160×160×160", s.M, s.N, s.K,
			phrase.Commas(work), phrase.Commas(MaxWork))
	}
	return nil
}

// large is a product of a whole tile of the upper rungs.
var large = Sizes{128, 128, 128}

// plainArithmetic and tensorArithmetic are the values of [Rung.Arithmetic].
const plainArithmetic, tensorArithmetic = "float32", "TF32 on tensor cores"

// onH200 returns a rate of the study. read is the number of bytes that come from memory, or 0 if
// they were not counted.
func onH200(tile string, rate, read float64) *Measured {
	return &Measured{GPU: "h200", N: 4096, Tile: tile, Rate: rate, Read: read}
}

// rungs lists the ladder from the bottom up.
var rungs = func() []Rung {
	list := []Rung{{
		ID: "naive", Name: "naive", Title: "One thread per element", Kernel: "naive", Tile: "16",
		Watched: Sizes{4, 4, 4},
		Idea: []string{
			"Each thread computes one element of C: it walks along a row of A and down a column of B.",
			"For every multiply-add it loads two numbers from global memory, so 8 bytes buy 2 operations.",
			"Neighbouring threads read the same rows and columns again and again, and share nothing.",
		},
		Limit: "The two loads of a multiply-add keep the pipe that serves loads busy, and the multiply-add units wait.",
		Figures: "On an H200 they take three cycles, in which the SM could start twelve multiply-adds: 5.4 of 66.9 " +
			"TFLOP/s, although memory is used to 7 % only.",
		Measured: onH200("16", 5.405e12, 7963e6),
		sources:  []string{"naive.go"},
	}}
	for _, t := range []struct {
		tile    int
		watched Sizes
		title   string
		idea    []string
		limit   string
		figures string
		rate    *Measured
	}{
		{2, Sizes{4, 4, 4}, "Tiles of 2×2, to follow by hand", []string{
			"A block of four threads loads a 2×2 tile of A and one of B into shared memory, waits, and multiplies from there.",
			"Each loaded number serves two threads, which halves the traffic.",
			"Two barriers per phase keep the threads together: no thread reads before all have stored, and none overwrites " +
				"before all have read.",
		}, "A warp executes 32 threads, and this block has four: seven eighths of each instruction are unused.", "", nil},
		{8, Sizes{16, 16, 16}, "Tiles of 8×8", []string{
			"With 8×8 tiles each loaded number serves eight threads.",
			"A block has 64 threads, two warps, and the barrier now really makes one warp wait for the other.",
			"A row of a tile is 32 bytes: exactly one sector, the unit in which memory moves.",
		}, "A requested byte serves 2 operations, so most requests depend on the caches.", "", nil},
		{16, Sizes{32, 32, 32}, "Tiles of 16×16", []string{
			"The textbook's tile: 256 threads, 2 KB of shared memory, 4 operations per requested byte.",
			"In each phase a block makes 512 loads and 4,096 multiply-adds.",
			"Every multiply-add still reads two numbers, but now from shared memory.",
		}, "These reads use the same pipe as loads from global memory, and the multiply-add units wait for it.",
			"With the stores of the tiles an H200 needs 1.91 cycles of the pipe for a multiply-add of a warp, and 0.25 would " +
				"keep the SM busy: 8.1 of 66.9 TFLOP/s.", onH200("16", 8.113e12, 16887e6)},
		{32, Sizes{32, 32, 64}, "Tiles of 32×32", []string{
			"The largest tile with one thread per element: a block cannot have more than 1,024 threads.",
			"It requests half as many bytes as 16×16.",
			"An SM with room for 2,048 threads holds two blocks: one can work while the other waits at a barrier.",
		}, "The reads from shared memory are as many as before: a number in a register is used for one multiply-add only.",
			"On an H200 they take 1.64 cycles of the pipe with the stores: 8.7 of 66.9 TFLOP/s, 7 % more than 16×16.",
			onH200("32", 8.677e12, 8398e6)},
	} {
		list = append(list, Rung{
			ID: fmt.Sprint("tiled-", t.tile), Name: fmt.Sprint("tiled ", t.tile), Title: t.title, Idea: t.idea,
			Limit: t.limit, Figures: t.figures, Measured: t.rate, Kernel: "tiled", Tile: fmt.Sprint(t.tile),
			Watched: t.watched, sources: []string{"tiled.go"},
		})
	}
	list = append(list, Rung{
		ID: "blocked", Name: "blocked", Title: "Many elements per thread", Kernel: "blocked", Tile: "128x128x8/16x8/3",
		Small: "32x32x16/4x4/4", Watched: Sizes{32, 32, 48},
		Sizes: large,
		Idea: []string{
			"The same idea one level down: a thread keeps a 16×8 block of C in registers.",
			"24 numbers from shared memory now serve 128 multiply-adds, where tiled reads 256.",
			"While the threads multiply, cp.async already copies the tiles of the next steps.",
		},
		Limit: "The multiply-add units are now the busiest part. Only other units are faster.",
		Figures: "On an H200 they are busy for 80 % of the cycles, and the pipe for loads for 51 %: 53.1 of 66.9 TFLOP/s, " +
			"as fast as cuBLASLt.",
		Measured: onH200("128x256x8/16x8/3", 53.09e12, 342e6),
		sources:  []string{"blocked.go", "panel.go"},
	}, Rung{
		ID: "mma", Name: "mma", Title: "Tensor cores", Kernel: "mma", precision: gemm.TF32, Tile: "128x128x16/8x8/4",
		Small: "32x32x32/2x4/4", Watched: Sizes{32, 32, 64},
		Sizes: large,
		Idea: []string{
			"One instruction of a warp multiplies whole fragments: 16×8 elements of C, 8 along K, 2,048 operations.",
			"The 32 threads hold the fragments together, a few elements each, and load them from shared memory first.",
			"The tensor cores take TF32: float32 with 10 bits of fraction, so real products lose some accuracy.",
		},
		Limit:    "The fragments pass through registers, so warps load and wait while the tensor cores could work.",
		Figures:  "An H200 reaches 160 of 495 TFLOP/s.",
		Measured: onH200("128x256x16/8x16/4", 160.3e12, 0),
		sources:  []string{"mma.go", "panel.go"},
	}, Rung{
		ID: "wgmma", Name: "wgmma", Title: "Tensor cores that read shared memory", Kernel: "wgmma", precision: gemm.TF32,
		Tile: "128x256x32/2x64/4t", Sizes: large,
		Small: "64x16x32/2x4/12t", Watched: Sizes{16, 64, 64},
		Idea: []string{
			"Four warps issue one asynchronous instruction that reads its operand straight from shared memory.",
			"A producer thread fills a ring of stages with TMA, and mbarriers tell the consumers when a stage is full.",
			"No thread waits at a block barrier in the main loop: loading and multiplying overlap all the time.",
		},
		Limit: "The tensor cores are busy nearly all the time, and there are no faster units.",
		Figures: "On an H200 they are busy for 91 % of the cycles, and the power limit lowers the clock from 1.98 to 1.65 " +
			"GHz: 351 of 495 TFLOP/s.",
		Measured: onH200("256x128x32/4x32/4", 351.3e12, 0),
		sources:  []string{"wgmma.go", "producer.go", "consumer.go", "mainloop.go", "swapab.go", "epilogue.go", "store.go"},
	})
	for i := range list {
		r := &list[i]
		if r.Arithmetic = plainArithmetic; r.Sizes == (Sizes{}) {
			r.Sizes = Sizes{64, 64, 64}
		}
		if r.Small == "" {
			r.Small = r.Tile
		}
		if r.precision != gemm.Native {
			r.Arithmetic = tensorArithmetic
		}
	}
	return list
}()

// Rungs returns the ladder from the bottom up.
func Rungs() []Rung { return rungs }

// findRung returns the rung with the given ID and the one below it, or nil for the lowest.
func findRung(id string) (r, below *Rung, err error) {
	i, err := names.Find("rung", id, rungs, func(r *Rung) string { return r.ID })
	switch {
	case err != nil:
		return nil, nil, err
	case i > 0:
		below = &rungs[i-1]
	}
	return &rungs[i], below, nil
}

// launch returns the kernel of r, its tile and the product of the given sizes.
func (r *Rung) launch(s Sizes, tileName string) (*kernel.Kernel, kernel.Tile, *gemm.Problem, error) {
	k, err := choose.Find(r.Kernel)
	if err != nil {
		return nil, kernel.Tile{}, nil, err
	}
	tile, err := k.ParseTile(tileName)
	if err != nil {
		return nil, tile, nil, err
	}
	p, _, err := gemm.New(1, gemm.Dense(dtype.F32, s.M, s.K), gemm.Dense(dtype.F32, s.K, s.N), 0,
		gemm.Dense(dtype.F32, s.M, s.N), gemm.Epilogue{})
	if err != nil {
		return nil, tile, nil, err
	}
	p, err = p.WithPrecision(r.precision)
	return k, tile, &p, err
}

// tiles returns the tiles with which the kernel can multiply float32, from the smallest.
func (r *Rung) tiles() ([]string, error) {
	k, _, p, err := r.launch(r.Sizes, r.Tile)
	if err != nil {
		return nil, err
	}
	m, err := model.Lookup("h200") // which runs every rung
	if err != nil {
		return nil, err
	}
	tiles, err := explain.Tiles(k, p, m)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(tiles, func(a, b kernel.Tile) int { return cmp.Compare(a.M*a.N, b.M*b.N) })
	var names []string
	for _, t := range tiles {
		names = append(names, t.String())
	}
	return names, nil
}

// goFile returns the text of a Go file that writes kernels.
func goFile(name string) (string, error) {
	text, err := kernel.Sources.ReadFile(name)
	if err != nil {
		text, err = sm90.Sources.ReadFile(name)
	}
	return string(text), err
}
