package check

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
	"tilework/ptx/emu"
)

// compiled is a kernel of testdata/bugs. Its arguments are 256 words that hold 0 to 255, 256 words
// that are not written, and 40.
type compiled struct {
	kernel              string // its file and name
	grid, block, shared int    // 0 means 1 block, 64 threads and no dynamic shared memory
	want                string // the checkers that find errors; those with ? may; advice is allowed
	says                string // part of the report or of the error of the launch
	err                 error  // the error of the launch
	// The tools of compute-sanitizer that report the fault of the kernel, compiled at -O3, on an
	// H100. If none does: "ptxas" refuses the kernel, or it "hangs".
	sanitizer string
}

// planted lists kernels with one fault each.
var planted = []compiled{
	{kernel: "races/no_barrier", want: "race", says: "want a __syncthreads() between", sanitizer: "racecheck"},
	{kernel: "races/no_barrier_at_loop_end", want: "race", says: "want a __syncthreads()", sanitizer: "racecheck"},
	{kernel: "races/no_barrier_after_halo", want: "race", sanitizer: "racecheck"},
	{kernel: "races/reduction_without_barrier", block: 128, want: "race uninit?", sanitizer: "racecheck"},
	{kernel: "races/scan_in_place", want: "race", sanitizer: "racecheck"},
	{kernel: "races/histogram_without_atomics", want: "race", sanitizer: "racecheck"},
	{kernel: "races/one_word_for_all", want: "race", says: "different values", sanitizer: "racecheck"},
	{kernel: "races/warp_exchange", block: 32, want: "race", says: "__syncwarp()", sanitizer: "racecheck"},
	{kernel: "races/volatile_reduction", block: 32, want: "race", says: "lanes of one warp, which do not run in lockstep",
		sanitizer: "racecheck"},
	{kernel: "races/transposed_tile", want: "race", sanitizer: "racecheck"},
	{kernel: "races/flag_without_barrier", want: "race uninit?", sanitizer: "racecheck"},
	{kernel: "races/double_buffer_with_one_half", want: "race", sanitizer: "racecheck"},
	{kernel: "races/block_exchange_with_syncwarp", want: "race", sanitizer: "racecheck"},
	{kernel: "races/scratch_reused", want: "race", sanitizer: "racecheck"},
	{kernel: "races/read_beside_atomics", want: "race"},
	{kernel: "races/counter_set_late", want: "race uninit?"},
	{kernel: "races/overlapping_vectors", want: "race", sanitizer: "racecheck"},
	{kernel: "races/overlapping_arrays", shared: 384, want: "race", sanitizer: "racecheck"},
	{kernel: "races/syncwarp_of_other_lanes", block: 32, want: "race", sanitizer: "racecheck"},
	{kernel: "races/blocks_write_one_word", grid: 2, want: "race", says: "blocks are not ordered"},
	{kernel: "races/sum_of_blocks", grid: 2, want: "race"},
	{kernel: "races/neighbour_block", grid: 2, want: "race", says: "want a __threadfence()"},
	{kernel: "races/last_block_without_fence", grid: 2, want: "race uninit?"},
	{kernel: "races/flag_without_writers_fence", grid: 2, want: "race"},
	{kernel: "races/flag_without_readers_fence", grid: 2, want: "race"},
	{kernel: "races/plain_flag", grid: 2, want: "race uninit?"},
	{kernel: "races/lock_without_fence", grid: 2, want: "race"},
	{kernel: "races/global_histogram", grid: 2, want: "race"},
	{kernel: "races/stencil_in_place", grid: 2, want: "race"},
	{kernel: "races/reversal_in_place", grid: 2, want: "race"},
	{kernel: "races/atomics_of_the_block", grid: 2, want: "race"},
	{kernel: "races/block_fence_for_grid", grid: 2, want: "race"},

	{kernel: "barriers/in_if", want: "barrier race?", says: "threads (40,0,0) to (63,0,0) skip it",
		sanitizer: "synccheck"},
	{kernel: "barriers/in_if_at_the_end", want: "barrier", says: "skip it"},
	{kernel: "barriers/in_if_for_a_warp", want: "barrier", says: "threads (32,0,0) to (63,0,0) skip it"},
	{kernel: "barriers/in_uneven_loop", want: "barrier"},
	{kernel: "barriers/in_both_branches", want: "barrier", says: "same __syncthreads()", sanitizer: "synccheck"},
	{kernel: "barriers/in_a_function", want: "barrier", says: "skip it"},
	{kernel: "barriers/after_a_return", says: "advice: barrier: threads (0,0,0) to (39,0,0) reach this barrier, but"},
	{kernel: "barriers/in_a_switch", want: "barrier", sanitizer: "synccheck"},
	{kernel: "barriers/count_in_if", want: "barrier", says: "skip it"},
	{kernel: "barriers/after_a_break", want: "barrier", sanitizer: "synccheck"},
	{kernel: "barriers/short_circuit", want: "barrier"},
	{kernel: "barriers/expects_too_many", want: "barrier", says: "deadlock: 64 threads", err: emu.ErrDeadlock,
		sanitizer: "hangs"},
	{kernel: "barriers/different_numbers", want: "barrier", says: "deadlock: 32 threads", err: emu.ErrDeadlock,
		sanitizer: "hangs"},
	{kernel: "barriers/different_counts", says: "other threads arrived at it for", err: emu.ErrMisuse,
		sanitizer: "memcheck synccheck"},
	{kernel: "barriers/no_whole_warps", says: "want a positive multiple of 32", err: emu.ErrMisuse,
		sanitizer: "memcheck"},
	{kernel: "barriers/no_such_barrier", says: "barrier number is 40: want 0 to 15", err: emu.ErrMisuse},
	{kernel: "barriers/flag_that_nobody_sets", says: "polls at", err: emu.ErrDeadlock, sanitizer: "hangs"},
	{kernel: "barriers/lock_that_nobody_releases", says: "polls at", err: emu.ErrDeadlock, sanitizer: "hangs"},
	{kernel: "barriers/loop_without_end", says: "no thread that still runs writes memory", err: emu.ErrDeadlock},
	{kernel: "barriers/waits_for_its_own_block", want: "barrier", says: "warp 0 (lanes 0xffffffff) polls at",
		err: emu.ErrDeadlock, sanitizer: "hangs"},

	{kernel: "warps/shuffle_in_if", block: 32, want: "barrier", says: "threads (16,0,0) to (31,0,0) skip it"},
	{kernel: "warps/shuffle_from_other_branch", block: 32, want: "barrier uninit", says: "reads the value of lane 16"},
	{kernel: "warps/ballot_in_if", block: 32, want: "barrier", says: "with the member mask 0xffffffff"},
	{kernel: "warps/vote_in_else", block: 32, want: "barrier", says: "threads (0,0,0) to (19,0,0) skip it"},
	{kernel: "warps/syncwarp_in_if", block: 32, want: "barrier"},
	{kernel: "warps/match_in_if", block: 32, want: "barrier"},
	{kernel: "warps/shuffle_in_uneven_loop", block: 32, want: "barrier uninit?"},
	{kernel: "warps/source_outside_mask", block: 32, want: "uninit", says: "reads the value of lane 16"},
	{kernel: "warps/caller_outside_mask", block: 32, says: "lane 16 is not in its own member mask", err: emu.ErrMisuse},
	{kernel: "warps/shuffle_from_returned_lanes", block: 32, want: "uninit", says: "does not take part"},
	{kernel: "warps/shuffle_in_a_small_block", block: 16, want: "uninit", says: "reads the value of lane 16"},
	{kernel: "warps/shuffle_and_vote", block: 32, says: "waits for lanes", err: emu.ErrDeadlock, sanitizer: "hangs"},
	{kernel: "warps/different_masks", block: 32, want: "barrier"},

	{kernel: "memory/no_bounds_check", grid: 2, want: "bounds", says: "want a bounds check", sanitizer: "memcheck"},
	{kernel: "memory/off_by_one", want: "bounds", says: "past the end", sanitizer: "memcheck"},
	{kernel: "memory/before_the_array", want: "bounds", says: "before the allocation", sanitizer: "memcheck"},
	{kernel: "memory/past_shared", want: "bounds", sanitizer: "memcheck"},
	{kernel: "memory/before_shared", want: "bounds"},
	{kernel: "memory/misaligned_vector", want: "bounds", says: "want a multiple of 16, so each row must start at one",
		sanitizer: "memcheck"},
	{kernel: "memory/misaligned_word", want: "bounds", says: "want a multiple of 4 (check whether the offset counts",
		sanitizer: "memcheck"},
	{kernel: "memory/null_pointer", want: "bounds", says: "bytes: want the pointer set", sanitizer: "memcheck"},
	{kernel: "memory/null_member", want: "bounds", says: "a null pointer and an offset of", sanitizer: "memcheck"},
	{kernel: "memory/dynamic_shared_missing", want: "bounds", says: "want more dynamic shared memory for the launch",
		sanitizer: "memcheck"},
	{kernel: "memory/past_constants", want: "bounds"},
	{kernel: "memory/past_a_global", want: "bounds", says: "values", sanitizer: "memcheck"},
	{kernel: "memory/index_overflows", want: "bounds", sanitizer: "memcheck"},
	{kernel: "memory/used_after_free", want: "bounds", says: "was freed", sanitizer: "memcheck"},
	{kernel: "memory/freed_twice", says: "was freed", err: emu.ErrMisuse, sanitizer: "memcheck"},
	{kernel: "memory/past_malloc", want: "bounds", says: "past the end", sanitizer: "memcheck"},
	{kernel: "memory/write_to_constant", want: "bounds", says: "read-only"},
	{kernel: "memory/undefined_sum", want: "uninit"},
	{kernel: "memory/undefined_on_one_path", want: "uninit"},
	{kernel: "memory/undefined_shared", want: "uninit", says: "no thread of the block has written"},
	{kernel: "memory/undefined_tail", want: "uninit", says: "of shared memory"},
	{kernel: "memory/undefined_local", want: "uninit", says: "local memory, which it has not written"},
	{kernel: "memory/undefined_local_end", want: "uninit", says: "local memory, which it has not written"},
	{kernel: "memory/undefined_out_parameter", want: "uninit", says: "local memory, which it has not written"},
	{kernel: "memory/undefined_global", want: "uninit", says: "neither the host nor a kernel has written",
		sanitizer: "initcheck"},
	{kernel: "memory/undefined_branch", want: "uninit", says: "branches on the value"},
	{kernel: "memory/undefined_address", block: 32, want: "uninit", says: "computes an address from the value"},
	{kernel: "memory/undefined_atomic", want: "uninit", sanitizer: "initcheck"},
	{kernel: "memory/undefined_counter", want: "uninit"},
	{kernel: "memory/undefined_member", want: "uninit"},
	{kernel: "memory/undefined_malloc", want: "uninit", sanitizer: "initcheck"},
	{kernel: "memory/undefined_through_shared", want: "uninit"},
	{kernel: "memory/failed_assertion", says: "thread (40,0,0)", err: emu.ErrAssert, sanitizer: "memcheck"},
	{kernel: "memory/reaches_a_trap", says: "thread (41,0,0)", err: emu.ErrTrap, sanitizer: "memcheck"},
	{kernel: "memory/too_much_shared",
		says: "49,156 bytes of static shared memory: want at most 49,152", err: emu.ErrLaunch, sanitizer: "ptxas"},
	{kernel: "memory/too_much_recursion", says: "nested calls exceed", err: emu.ErrMisuse, sanitizer: "memcheck"},

	{kernel: "async/no_wait", want: "race", says: "cp.async.wait_group", sanitizer: "racecheck"},
	{kernel: "async/wait_for_older_groups", want: "race", says: "cp.async.wait_group", sanitizer: "racecheck"},
	{kernel: "async/wait_without_barrier", want: "race", sanitizer: "racecheck"},
	{kernel: "async/wait_before_commit", want: "race", sanitizer: "racecheck"},
	{kernel: "async/source_overwritten", want: "race"},
	{kernel: "async/stage_reused_early", want: "race", sanitizer: "racecheck"},
	{kernel: "async/copy_of_undefined_memory", want: "uninit", sanitizer: "initcheck"},
	{kernel: "async/mbarrier_of_too_many", says: "polls at", err: emu.ErrDeadlock, sanitizer: "hangs"},
	{kernel: "async/redux_in_if", block: 32, want: "barrier"},
	{kernel: "bulk/bulk_without_wait", want: "race", says: "on its mbarrier", sanitizer: "racecheck"},
	{kernel: "bulk/bulk_of_too_few_bytes", says: "mbarrier", err: emu.ErrDeadlock, sanitizer: "hangs"},
	{kernel: "bulk/bulk_store_without_fence", want: "race", says: "fence.proxy.async"},
	{kernel: "bulk/bulk_source_reused", want: "race", says: "exits without waiting", err: emu.ErrMisuse},
	{kernel: "bulk/bulk_barrier_not_initialised", want: "uninit", says: "mbarrier.init", err: emu.ErrMisuse,
		sanitizer: "memcheck synccheck"},
}

// correct lists kernels without a fault. Some of them give advice.
var correct = []compiled{
	{kernel: "correct/discarded_element"},
	{kernel: "correct/odd_even_sort"},
	{kernel: "correct/warp_reduction"},
	{kernel: "correct/partial_warp_scan"},
	{kernel: "correct/copies_padding"},
	{kernel: "correct/last_block_sums", grid: 2, says: "advice: race: thread (0,0,0) of block (1,0,0) writes"},
	{kernel: "correct/spin_lock", grid: 2},
	{kernel: "correct/maximum_by_cas", grid: 2, says: "A stale value is harmless if it is only passed to atom.cas"},
	{kernel: "correct/float_add_by_cas", grid: 2, says: "A stale value is harmless"},
	{kernel: "correct/double_add_by_cas", grid: 2, says: "A stale value is harmless"},
	{kernel: "correct/flag_of_many", grid: 2, says: "Both write the same value"},
	{kernel: "correct/shared_flag_of_many", says: "Both write the same value"},
	{kernel: "correct/two_barrier_instructions"},
	{kernel: "correct/producer_and_consumer"},
	{kernel: "correct/message", grid: 2},
	{kernel: "correct/histogram", grid: 2},
	{kernel: "correct/warp_exchange_in_order"},
	{kernel: "correct/two_shuffles", block: 32},
	{kernel: "correct/shared_maximum_by_cas", says: "A stale value is harmless"},
	{kernel: "correct/exchanges_that_store"},
	{kernel: "correct/copies_padded_rows"},
	{kernel: "correct/rows_of_a_tile"},
}

// libraries lists correct kernels that use CUB, cooperative groups and libcu++. Their PTX is not in
// testdata.
var libraries = []compiled{
	{kernel: "libraries/radix_sort"},
	{kernel: "libraries/merge_sort"},
	{kernel: "libraries/warp_sort"},
	{kernel: "libraries/block_reduce"},
	{kernel: "libraries/block_scan"},
	{kernel: "libraries/warp_reduce"},
	{kernel: "libraries/load_store"},
	{kernel: "libraries/block_histogram"},
	{kernel: "libraries/heads"},
	{kernel: "libraries/groups"},
	{kernel: "libraries/cuda_barrier"},
	{kernel: "libraries/atomics", grid: 2},
	{kernel: "libraries/message_ref", grid: 2},
	{kernel: "libraries/pipeline_copy"},
}

// source returns the file of the kernel and its name.
func (c *compiled) source() (file, name string) {
	file, name, _ = strings.Cut(c.kernel, "/")
	return file, name
}

// check runs the kernel of a PTX file under several schedules and checks the findings.
func (c *compiled) check(t *testing.T, ptxFile string) {
	text, err := os.ReadFile(ptxFile)
	if err != nil {
		t.Fatal(err)
	}
	x := make([]int32, 256)
	for i := range x {
		x[i] = int32(i)
	}
	_, name := c.source()
	for seed := range uint64(2) {
		p := program{
			text: string(text), file: filepath.Base(ptxFile), entry: name, shared: c.shared, seed: seed,
			grid: emu.Dim3{X: max(c.grid, 1), Y: 1, Z: 1}, block: emu.Dim3{X: 64, Y: 1, Z: 1},
			args: []any{x, out(1024), int32(40)}, instructions: 10e6,
		}
		if c.block > 0 {
			p.block.X = c.block
		}
		r, _, err := p.run(t)
		if !errors.Is(err, c.err) {
			t.Fatalf("seed %d: error %v, want %v", seed, err, c.err)
		}
		said := r.String()
		if err != nil {
			said += err.Error()
		}
		wanted := strings.Fields(c.want)
		for _, k := range Checkers() {
			found := slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Checker == k && f.Severity == Error })
			if want := slices.Contains(wanted, k.String()); found != want && !slices.Contains(wanted, k.String()+"?") {
				t.Errorf("seed %d: checker %v found an error: %v, want %v\n%s", seed, k, found, want, said)
			}
		}
		if !strings.Contains(said, c.says) {
			t.Errorf("seed %d: found %q, want %q", seed, said, c.says)
		}
	}
}

// TestPlantedFaults runs the kernels of planted and correct as compiled by nvcc -O3.
func TestPlantedFaults(t *testing.T) {
	for _, c := range slices.Concat(planted, correct) {
		t.Run(c.kernel, func(t *testing.T) {
			file, _ := c.source()
			c.check(t, "testdata/bugs/"+file+"."+checkedIn(file)+".O3.ptx")
		})
	}
}

// checkedIn returns the architecture for which the PTX of a file is in testdata.
func checkedIn(file string) string {
	if file == "bulk" {
		return "sm_90"
	}
	return "sm_80"
}

// TestPlantedFaultsByNvcc compiles the kernels with nvcc, without optimisation, with it, and for
// debugging, for several architectures, and runs them.
func TestPlantedFaultsByNvcc(t *testing.T) {
	eachBuild(t, func(t *testing.T, file, ptxFile string) {
		for _, c := range slices.Concat(planted, correct, libraries) {
			if from, name := c.source(); from == file {
				t.Run(name, func(t *testing.T) { c.check(t, ptxFile) })
			}
		}
	})
}

// notBuilt lists the architectures for which a file does not compile. libraries.cu, the largest, is
// compiled for two of the others only.
var notBuilt = map[string][]string{
	"async": {"sm_75"}, "bulk": {"sm_75", "sm_80"}, "libraries": {"sm_75", "sm_90"},
}

// build is a way in which nvcc compiles a file.
type build struct {
	arch, name string
	flags      []string
}

// buildsOf lists the builds of a file.
func buildsOf(file string) (all []build) {
	for _, arch := range []string{"sm_75", "sm_80", "sm_90", "sm_120"} {
		if !slices.Contains(notBuilt[file], arch) {
			all = append(all, build{arch, "O0", []string{"-O0", "-Xcicc", "-O0"}}, build{arch, "O3", []string{"-O3"}},
				build{arch, "G", []string{"-G"}})
		}
	}
	return all
}

// eachBuild compiles each file of testdata/bugs in all builds, or without TILEWORK_FULL in two that
// the seed selects, and calls do with the file's name and the PTX. TILEWORK_NVCC is the path of
// nvcc.
func eachBuild(t *testing.T, do func(t *testing.T, file, ptxFile string)) {
	nvcc := os.Getenv("TILEWORK_NVCC")
	if nvcc == "" {
		t.Skip("set TILEWORK_NVCC to the path of nvcc")
	}
	sources, err := filepath.Glob("testdata/bugs/*.cu")
	if err != nil || len(sources) == 0 {
		t.Fatalf("no sources: %v", err)
	}
	dir, rng := t.TempDir(), testrand.New(t)
	for _, source := range sources {
		file := strings.TrimSuffix(filepath.Base(source), ".cu")
		builds := buildsOf(file)
		rng.Shuffle(len(builds), func(i, k int) { builds[i], builds[k] = builds[k], builds[i] })
		for _, b := range builds[:testkit.Cases(2, len(builds))] { // nvcc takes minutes for all
			to := filepath.Join(dir, file+"."+b.arch+"."+b.name+".ptx")
			args := append([]string{"-w", "-ptx", "-arch=" + b.arch, source, "-o", to}, b.flags...)
			text, err := exec.Command(nvcc, args...).CombinedOutput()
			if file == "libraries" && strings.Contains(string(text), "cub/block/block_radix_sort.cuh: No such file") {
				t.Logf("MISSING nvidia-cuda-cccl: %s not run", to)
				continue
			}
			if err != nil {
				t.Fatalf("nvcc %v: %v\n%s", args, err, text)
			}
			t.Run(filepath.Base(to), func(t *testing.T) { do(t, file, to) })
		}
	}
}
