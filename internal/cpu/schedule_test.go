package cpu

import (
	"flag"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"tilework/internal/backend"
	"time"

	"tilework/dtype"
)

// The report of TestSchedule is for a machine with many cores:
//
//	go test -c -o cpu.test ./internal/cpu
//	./cpu.test -test.run Schedule -test.v -schedule 128,256,512,1024,2048 -threads 16
var (
	scheduleSizes = flag.String("schedule", "",
		"sizes of square products for TestSchedule to report, separated by commas")
	scheduleThreads = flag.Int("threads", 0, "number of threads (0: GOMAXPROCS)")
)

// TestSchedule traces products and checks the traces. With -schedule it reports them instead: when
// each worker joined, its tasks, its time spent waiting, and the speedup over one thread.
func TestSchedule(t *testing.T) {
	if *scheduleSizes == "" {
		checkSchedule(t)
		return
	}
	threads := Workers(*scheduleThreads)
	t.Logf("GOMAXPROCS %d, %d processors, %d threads", runtime.GOMAXPROCS(0), runtime.NumCPU(), threads)
	for _, size := range strings.Split(*scheduleSizes, ",") {
		var n int
		if _, err := fmt.Sscan(size, &n); err != nil {
			t.Fatal(err)
		}
		one, _ := scheduleOf(t, n, 1, 0)
		for _, rest := range []time.Duration{0, 3 * time.Millisecond} {
			name := "back to back"
			if rest > 0 {
				name = "with sleeping workers"
			}
			all, best := scheduleOf(t, n, threads, rest)
			flops := 2 * math.Pow(float64(n), 3)
			rate := func(d time.Duration) float64 { return flops / float64(d.Nanoseconds()) }
			t.Logf("%d³ %s\n  min %v, quartile %v, median %v: %.0f GFLOP/s at the minimum, %.2f × the %.0f of one thread\n%s",
				n, name, all[0], all[len(all)/4], all[len(all)/2], rate(all[0]), float64(one[0])/float64(all[0]),
				rate(one[0]), best)
		}
	}
}

// checkSchedule checks that the trace counts every task once and that no worker is busy for longer
// than the product took.
func checkSchedule(t *testing.T) {
	const threads = 3
	_, tr := scheduleOf(t, 300, threads, 0)
	var tasks int
	for i, s := range tr.workers {
		tasks += s.tasks
		if s.busy+s.waiting > s.last+tr.took || s.tasks > 0 && (s.first > s.last || s.stolen > s.tasks) {
			t.Errorf("worker %d of %d in %v: %+v", i, threads, tr.took, s)
		}
	}
	p, b := random(t, dtype.F32, 300, 300, 300)
	pl, err := NewPlan(&p, backend.Options{Threads: threads})
	if err != nil {
		t.Fatal(err)
	}
	pl.Threads = threads
	var want int64
	pl.progress = func(_, total int64) { want = total }
	if err := pl.Run(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	if int64(tasks) != want {
		t.Errorf("%d tasks, want %d", tasks, want)
	}
}

// scheduleOf runs a product of n³ many times, each after a rest. It returns the sorted times and
// the trace of the fastest run.
func scheduleOf(t *testing.T, n, threads int, rest time.Duration) (times []time.Duration, best *trace) {
	p, b := random(t, dtype.F32, n, n, n)
	pl, err := NewPlan(&p, backend.Options{Threads: threads})
	if err != nil {
		t.Fatal(err)
	}
	pl.Threads = threads
	const most = 200 * time.Millisecond
	begin := time.Now()
	for i := 0; i < 5 || i < 200 && time.Since(begin) < most; i++ {
		time.Sleep(rest)
		pl.trace = newTrace(threads)
		if err := pl.Run(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		pl.trace.took = time.Since(pl.trace.start)
		if best == nil || pl.trace.took < best.took {
			best = pl.trace
		}
		times = append(times, pl.trace.took)
	}
	slices.Sort(times)
	return times, best
}

// String formats one row per worker.
func (t *trace) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "  %6s %10s %10s %10s %10s %10s %6s %6s\n", "worker", "joined", "first", "last", "busy",
		"waiting", "tasks", "stolen")
	us := func(d time.Duration) string { return fmt.Sprintf("%.1fµs", float64(d.Nanoseconds())/1e3) }
	for i := range t.workers {
		x := &t.workers[i]
		fmt.Fprintf(&s, "  %6d %10s %10s %10s %10s %10s %6d %6d\n", i, us(x.joined), us(x.first), us(x.last),
			us(x.busy), us(x.waiting), x.tasks, x.stolen)
	}
	return s.String()
}
