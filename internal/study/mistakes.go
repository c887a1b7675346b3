package study

import (
	"fmt"
	"slices"

	"tilework/dtype"
	"tilework/internal/gpu/planted"
	"tilework/ptx/emu/check"
)

// Mistake is a classic mistake that can be planted in the PTX of a rung.
type Mistake struct {
	ID    string `json:"id"`
	Rung  string `json:"rung"`
	Title string `json:"title"`
	// Why explains the effect.
	Why string `json:"why"`
	// Hints lead to the place of the mistake, the last one to the fix. A mistake with hints is an
	// exercise.
	Hints []string `json:"hints,omitempty"`
	// Learnt states the rule that the exercise teaches, for a reader who has solved it.
	Learnt string `json:"learnt,omitempty"`
	// Sizes is a product that shows the mistake.
	Sizes Sizes `json:"sizes"`
	// Finds is the checker that reports the mistake, "result" if C is wrong, or "stop" if the
	// emulator ends the kernel.
	Finds string `json:"finds"`

	fault *planted.Fault
	place int // index of the match of the fault's pattern
}

// swappedThreads exchanges the two thread indices. The result is right and the memory accesses are
// bad, so it is no fault of package planted.
var swappedThreads = &planted.Fault{
	Kernel: "naive", In: dtype.F32, Name: "threadIdx.x and threadIdx.y are exchanged",
	Pattern: `(?s)%tid\.(.);(.*?)%tid\.(.);`, With: "%tid.${3};${2}%tid.${1};", Finds: check.Coalesce,
}

var mistakes = []Mistake{
	{
		ID: "first-barrier", Title: "Forget the first barrier", Rung: "tiled-16",
		fault: fault("tiled", "a barrier is missing"),
		Why: "A thread multiplies elements of the tile that its neighbours have not stored yet. On a GPU the " +
			"result is often right all the same, until a warp is late.",
		Sizes: Sizes{32, 32, 32},
	},
	{
		ID: "second-barrier", Title: "Forget the second barrier", Rung: "tiled-16",
		fault: fault("tiled", "a barrier is missing"),
		place: 1,
		Why: "A fast warp goes on to the next phase and overwrites a tile that a slow warp still reads. With one " +
			"phase nothing happens, so small tests pass.",
		Hints: []string{
			"The store comes from the next phase of the loop, the load from this one.",
			"Before the loop starts again, all threads must have finished reading.",
			"Insert bar.sync 0; after the last fma, before the loop counter is increased.",
		},
		Learnt: "A loop over tiles in shared memory needs two barriers: one after the stores, and one after the " +
			"reads, because the next phase overwrites what other warps may still read.",
		Sizes: Sizes{32, 32, 32},
	},
	{
		ID: "bounds", Title: "Forget the boundary test", Rung: "tiled-16",
		fault: fault("tiled", "no bounds check of columns"),
		Why: "The grid consists of whole blocks, so threads stand outside of C when N is no multiple of the " +
			"tile. They must do nothing, but they load and store.",
		Hints: []string{
			"Which matrix does the access leave, and in which direction?",
			"Look for the comparison that should test the column against N.",
			"setp.lt.u32 must compare %col with %N, instead of 0 with 1.",
		},
		Learnt: "A grid of whole blocks covers more than C. Each thread compares its row and its column with the " +
			"sizes before it uses memory, but still arrives at the barriers.",
		Sizes: Sizes{32, 40, 32},
	},
	{
		ID: "branch", Title: "Put the barrier into a branch", Rung: "tiled-16",
		fault: fault("tiled", "only some threads arrive at a barrier"),
		Why: "Only three columns of threads reach the barrier, and the others never come. On a GPU the block " +
			"hangs, or goes on with half a tile.",
		Sizes: Sizes{32, 32, 32},
	},
	{
		ID: "zeros", Title: "Do not fill the edge with zeros", Rung: "tiled-16",
		fault: fault("tiled", "no zero fill at the edge"),
		Why: "Beyond the edge of A and B a tile must hold zeros, which add nothing. Without them a thread stores " +
			"the element of the previous phase again, and C is wrong.",
		Hints: []string{
			"K is 40, and a tile has 16 columns. Which threads skip their loads in the last phase?",
			"When the guarded load is skipped, the register must already hold a number.",
			"Insert mov.f32 with 0f00000000 before the guarded ld.global.",
		},
		Learnt: "An instruction under a predicate leaves its register as it was. Where a tile extends beyond the " +
			"matrix, zeros add nothing, so every other value is a fault.",
		Sizes: Sizes{32, 32, 40},
	},
	{
		ID: "transposed", Title: "Store the tile of B transposed", Rung: "tiled-32",
		fault: fault("tiled", "a tile of B is stored transposed"),
		Why: "The tile is stored by columns and read by rows, so C is wrong. All 32 threads of a warp also store " +
			"into one bank of shared memory, one after the other.",
		Hints: []string{
			"Compare the address of the store to Bs with the address of the store to As.",
			"threadIdx.y selects the row of the tile, and threadIdx.x the column.",
			"Exchange %tid_x and %tid_y in the two lines that compute the address from %Bs_s.",
		},
		Learnt: "threadIdx.x runs along a row, of a matrix and of a tile: then a warp uses neighbouring words, in " +
			"few sectors and in different banks.",
		Sizes: Sizes{32, 32, 32},
	},
	{
		ID: "swapped", Title: "Exchange row and column", Rung: "naive",
		fault: swappedThreads,
		Why: "The result stays right. But neighbouring threads now walk down columns, and each load of a warp " +
			"touches many sectors of memory instead of two.",
		Sizes: Sizes{64, 64, 64},
	},
	{
		ID: "sum", Title: "Do not clear the sum", Rung: "naive",
		fault: fault("naive", "accumulator is not initialized"),
		Why:   "A register holds what the last kernel left in it. In the debugger it is often zero.",
		Hints: []string{
			"Which register does the finding name?",
			"Every thread adds to it. What is it before the first addition?",
			"Insert mov.f32 %sum, 0f00000000; before the loop.",
		},
		Learnt: "A register has no value until a thread writes it. A sum begins with a zero that the kernel writes, " +
			"also if a debugger shows zeros.",
		Sizes: Sizes{32, 32, 16},
	},
	{
		ID: "copy-wait", Title: "Do not wait for cp.async", Rung: "blocked",
		fault: fault("blocked", "no cp.async.wait_group"),
		Why: "cp.async copies in the background. Without the wait, threads multiply a stage that is still on its " +
			"way.",
		Sizes: Sizes{32, 32, 64},
	},
	{
		ID: "phase", Title: "Wait for the wrong mbarrier phase", Rung: "wgmma",
		fault: fault(planted.SwapABTile, "the wait for a full stage is for the other phase"),
		Why: "An mbarrier alternates between two phases. Waiting for the other one returns at once, before TMA " +
			"has filled the stage.",
		Sizes: Sizes{32, 64, 64},
	},
}

// fault returns a fault of package planted, which must exist.
func fault(kernel, name string) *planted.Fault {
	f, err := planted.Find(kernel, name)
	if err != nil {
		panic(err)
	}
	return f
}

// Mistakes returns the mistakes, those of barriers first.
func Mistakes() []Mistake {
	list := slices.Clone(mistakes)
	for i := range list {
		m := &list[i]
		switch m.Finds = m.fault.Finds.String(); m.fault.Finds {
		case planted.Wrong:
			m.Finds = "result"
		case planted.Refused:
			m.Finds = "stop"
		}
	}
	return list
}

// plant returns the source with the mistake of r with the given ID.
func (r *Rung) plant(source, id string) (string, error) {
	i := slices.IndexFunc(mistakes, func(m Mistake) bool { return m.Rung == r.ID && m.ID == id })
	if i < 0 {
		return "", fmt.Errorf("rung %s has no mistake %q", r.ID, id)
	}
	m := &mistakes[i]
	versions := m.fault.Plant(source)
	if m.place >= len(versions) {
		return "", fmt.Errorf("rung %s: the PTX has no place for mistake %q", r.ID, id)
	}
	return versions[m.place], nil
}
