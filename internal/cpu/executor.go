package cpu

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"tilework/internal/cpu/asm"
	"tilework/internal/relay"
)

// A job is work divided into phases, and each phase into tasks. The tasks of one phase may run at
// the same time. A phase starts only when all tasks of the previous phase are done.
//
// A task computes the same result whichever worker runs it.
type job interface {
	// phases returns the number of phases.
	phases() int
	// enter prepares a worker for a phase and returns the number of tasks in it. Workers are
	// numbered from 0 to threads-1, and each number belongs to one goroutine.
	enter(phase, worker int) (tasks int)
	// do runs one task, numbered from 0, of the phase that the worker has entered. Consecutive
	// tasks share memory, so the executor gives them to the same worker where it can.
	do(task, worker int)
}

// executor runs one job at a time on the calling goroutine and workers of the pool. It divides the
// tasks of each phase into one queue per worker, each holding consecutive tasks. A worker first
// empties its own queue and then steals from the others. A worker that is late, or never joins,
// does not delay the others: they wait only for tasks that have already started.
type executor struct {
	job      job
	progress func(done, total int64)
	ctx      context.Context // nil if it can never be done
	total    int64           // tasks of all phases; counted only for progress
	queues   []taskQueue
	workers  []*poolWorker // workers[i] is worker i+1, once it joins
	trace    *trace        // nil except in tests
	panics   relay.Panics  // of workers
	brief    bool          // whether the job may take less time than waking a worker

	// Task numbers continue from phase to phase and from job to job, so that no counter last
	// written by another core needs a reset.
	first, end int64 // the job's first task number, and the number after its last task once it is done

	// Each of the following shared counters has cache lines of its own.
	_            [cacheLine]byte
	done         atomic.Int64 // finished tasks; a worker adds the tasks of a queue together
	_            [cacheLine]byte
	joined, left atomic.Int64 // pool workers
	_            [cacheLine]byte
	stop         atomic.Bool // set to make workers leave after their current task
}

// taskQueue is a range of consecutive tasks of a phase. next is the number of its next task.
type taskQueue struct {
	next atomic.Int64
	_    [2*cacheLine - 8]byte // the hardware prefetches cache lines in pairs
}

// run executes the job with up to threads goroutines, the caller included, and returns when all of
// them have left it. It calls progress, unless nil, from the calling goroutine with the number of
// finished tasks and their total. If ctx ends, run skips the remaining tasks and returns its error.
// If a task panics, run skips them too, and then panics with the same value.
func (e *executor) run(ctx context.Context, j job, threads int, progress func(done, total int64)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if threads == 1 && progress == nil && e.trace == nil {
		return runSerial(ctx, j)
	}
	e.job, e.progress = j, progress
	if ctx.Done() != nil {
		e.ctx = ctx
	}
	e.start(threads)
	defer e.finish() // also after a panic
	e.workers = acquireWorkers(e.workers, threads-1, e.brief && !wakesForBrief())
	for i, w := range e.workers {
		w.index = i + 1
		w.assigned.Store(e)
	}
	wakeChildren(e.workers, 0)
	end := e.runPhases(0)
	if e.stop.Load() {
		return ctx.Err()
	}
	e.end = end
	if progress != nil {
		progress(e.total, e.total) // other workers may have run the last tasks, or all of them
	}
	return nil
}

// runSerial executes the job on the calling goroutine, without an executor.
func runSerial(ctx context.Context, j job) error {
	ends := ctx.Done() != nil
	for phase := range j.phases() {
		for task := range j.enter(phase, 0) {
			j.do(task, 0)
			if ends && ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}
	return nil
}

// runPhase runs the tasks of a phase of a job on the calling goroutine, whose stack may hold the
// job.
func runPhase(ctx context.Context, tasks int, do func(task, worker int)) error {
	for task := range tasks {
		if err := ctx.Err(); err != nil {
			return err
		}
		do(task, 0)
	}
	return nil
}

// start resets the counters for a job.
func (e *executor) start(threads int) {
	if threads > cap(e.queues) {
		e.queues = make([]taskQueue, threads)
	}
	e.queues, e.workers, e.end = e.queues[:threads], e.workers[:0], e.first
	e.joined.Store(0)
	e.left.Store(0)
	e.stop.Store(false)
	if e.total = 0; e.progress != nil {
		for phase := range e.job.phases() {
			e.total += int64(e.job.enter(phase, 0))
		}
	}
}

// runPhases runs tasks of every phase as the given worker; worker 0 is the caller. It returns the
// number after the last task's.
func (e *executor) runPhases(worker int) (end int64) {
	first := e.first // the number of the phase's first task
	for phase := range e.job.phases() {
		n := e.job.enter(phase, worker)
		if end := first + int64(n); e.done.Load() < end {
			for i := range e.queues {
				if e.done.Load() >= end || !e.drain(first, n, (worker+i)%len(e.queues), worker) {
					break
				}
			}
			e.await(end, worker)
		}
		if e.stop.Load() {
			break
		}
		first += int64(n)
	}
	return first
}

// drain runs the remaining tasks of queue q in a phase of n tasks. It reports whether the job
// continues.
func (e *executor) drain(first int64, n, q, worker int) bool {
	low, high := part(n, q, len(e.queues))
	var done int64
	for {
		task, ok := e.queues[q].pop(first+int64(low), first+int64(high))
		if !ok {
			break
		}
		e.trace.begin(worker)
		e.job.do(int(task-first), worker)
		e.trace.end(worker, q)
		done++
		if worker == 0 {
			e.poll(done)
		}
		if e.stop.Load() {
			return false
		}
	}
	if done > 0 {
		e.done.Add(done)
	}
	return true
}

// pop takes the next task of a queue that holds the tasks from low to high-1 in this phase.
func (q *taskQueue) pop(low, high int64) (task int64, ok bool) {
	for {
		next := q.next.Load()
		task = max(next, low) // next may still belong to an earlier phase
		if task >= high {
			return 0, false
		}
		if q.next.CompareAndSwap(next, task+1) {
			return task, true
		}
	}
}

// poll checks the context and, before the end, calls progress. The caller runs it after each of its
// tasks, with the number of tasks that it has not yet added to done.
func (e *executor) poll(uncounted int64) {
	if e.ctx != nil && e.ctx.Err() != nil {
		e.stop.Store(true)
	}
	if e.progress == nil {
		return
	}
	if done := e.done.Load() - e.first + uncounted; done < e.total { // run reports the end
		e.progress(done, e.total)
	}
}

// await spins until n tasks are done or the job stops.
func (e *executor) await(n int64, worker int) {
	if e.done.Load() >= n {
		return
	}
	e.trace.begin(worker)
	for w := (SpinWait{}); e.done.Load() < n && !e.stop.Load(); w.Pause() {
	}
	e.trace.waited(worker)
}

// finish withdraws the job from workers that have not joined, waits until the others have left, and
// returns all of them to the pool. It raises a worker's panic.
func (e *executor) finish() {
	undone := e.end == e.first
	if undone {
		e.stop.Store(true)
	}
	joined := e.joined.Load()
	if joined < int64(len(e.workers)) {
		joined = 0
		for _, w := range e.workers {
			if !w.assigned.CompareAndSwap(e, nil) {
				joined++
			}
		}
	}
	for w := (SpinWait{}); e.left.Load() < joined; w.Pause() {
	}
	releaseWorkers(e.workers)
	if e.first = e.end; undone {
		e.first = 0
		e.done.Store(0)
		for i := range e.queues[:cap(e.queues)] {
			e.queues[:cap(e.queues)][i].next.Store(0)
		}
	}
	e.job, e.progress, e.ctx, e.trace, e.brief = nil, nil, nil, nil, false
	e.panics.Raise()
}

// SpinWait waits for another goroutine that should need only microseconds. It spins, and yields the
// thread after every 64 pauses. More frequent yields would make all waiting threads contend for the
// scheduler's lock, and [runtime.Gosched] wakes another thread if a processor is idle.
type SpinWait struct{ turns int }

// Pause waits for some tens of nanoseconds to some microseconds.
func (w *SpinWait) Pause() {
	const patience = 64
	w.turns++
	asm.Pause(min(w.turns, spinPauses))
	if w.turns%patience == 0 {
		yieldThread()
		runtime.Gosched()
	}
}

// ParallelFor calls f(0), …, f(n-1) from up to [Workers](threads) goroutines, the caller's
// included. If ctx ends, it skips the remaining calls and returns the context's error.
func ParallelFor(ctx context.Context, n, threads int, f func(i int)) error {
	var e executor
	return e.run(ctx, &forLoop{n, f}, Workers(threads), nil)
}

// Work of many parts, such as the products of a batch, on several threads. A worker that is asleep
// may need 50 µs to start, where the idle core of a virtual machine must be woken.
const (
	timePerThread = 25 * time.Microsecond  // of one thread, that justifies another one
	briefTime     = 100 * time.Microsecond // up to which only awake workers take part; see [wakesForBrief]
	timePerTask   = 5 * time.Microsecond   // at least
	tasksPerQueue = 8                      // at most; with fewer of them, threads wait for the last one
)

// ThreadsFor returns the number of goroutines, of up to [Workers](asked), for work that takes one
// of them the given time.
func ThreadsFor(work time.Duration, asked int) int {
	if work < timePerThread {
		return 1
	}
	return min(Workers(asked), 1+int(work/timePerThread))
}

// ParallelParts calls f with consecutive parts of n elements of work, from start to end, from up to
// the given number of goroutines. The work takes one of them the given time. If ctx ends,
// ParallelParts skips the remaining calls and returns the context's error.
func ParallelParts(ctx context.Context, n int, work time.Duration, threads int, f func(start, end int)) error {
	tasks := min(n, threads*tasksPerQueue, max(threads, int(work/timePerTask)))
	e := executor{brief: work <= briefTime}
	return e.run(ctx, &forLoop{tasks, func(i int) {
		start, end := part(n, i, tasks)
		f(start, end)
	}}, threads, nil)
}

type forLoop struct {
	n int
	f func(i int)
}

func (l *forLoop) phases() int        { return 1 }
func (l *forLoop) enter(_, _ int) int { return l.n }
func (l *forLoop) do(task, _ int)     { l.f(task) }

// Workers returns the number of goroutines for a caller that allows up to asked of them. GOMAXPROCS
// is the limit, and the result for asked ≤ 0.
func Workers(asked int) int {
	if asked == 1 {
		return 1 // GOMAXPROCS takes a lock, which is a tenth of the cost of a small product's call
	}
	n := runtime.GOMAXPROCS(0)
	if asked > 0 {
		n = min(n, asked)
	}
	return n
}
