package cuda

import (
	"sync"
	"sync/atomic"
	"time"
)

// workerPool runs the tasks of copies on goroutines that persist between copies. A worker without a
// task spins for spinTime before it sleeps: waking sleeping workers takes tens of microseconds
// each, one after the other, about as long as a copy of a megabyte.
//
// Tasks are in a list instead of a channel so that spinning workers take them first. A channel
// would hand them to the worker that has slept longest.
type workerPool struct {
	size  int
	start sync.Once
	done  sync.WaitGroup

	mu      sync.Mutex
	tasks   []func()
	queued  atomic.Int32 // len(tasks)
	awake   atomic.Int32 // workers looking for a task
	wake    chan struct{}
	closing chan struct{} // closed by close
}

// spinTime is the time for which a worker without a task spins before it sleeps.
const spinTime = 200 * time.Microsecond

// newWorkerPool returns a pool that starts size goroutines on first use.
func newWorkerPool(size int) *workerPool {
	return &workerPool{size: size, wake: make(chan struct{}, size), closing: make(chan struct{})}
}

// taskGroup tracks the tasks of one copy.
type taskGroup struct {
	mu     sync.Mutex
	closed bool
	count  atomic.Int32 // running tasks
	busy   sync.WaitGroup
}

// run queues f. A worker calls f unless group has been closed by then.
func (w *workerPool) run(group *taskGroup, f func()) {
	w.start.Do(func() {
		for range w.size {
			w.done.Go(w.work)
		}
	})
	w.mu.Lock()
	if len(w.tasks) < w.size { // a full list means that no worker took the tasks of earlier copies
		w.tasks = append(w.tasks, func() {
			if group.begin() {
				f()
				group.count.Add(-1)
				group.busy.Done()
			}
		})
		w.queued.Store(int32(len(w.tasks)))
	}
	w.mu.Unlock()
	if w.awake.Load() < w.queued.Load() {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// begin registers a task as running. It reports false if the group is closed.
func (g *taskGroup) begin() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.busy.Add(1)
	g.count.Add(1)
	return true
}

// close drops tasks that have not started and waits for those that run. It spins first, because
// running tasks are about to finish.
func (g *taskGroup) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	for start := time.Now(); g.count.Load() > 0 && time.Since(start) < spinTime; {
	}
	g.busy.Wait()
}

// work is the loop of a worker.
func (w *workerPool) work() {
	for {
		w.awake.Add(1)
		f := w.next()
		w.awake.Add(-1)
		if f != nil {
			f()
			continue
		}
		select {
		case <-w.wake:
		case <-w.closing:
			return
		}
	}
}

// next returns a task, or nil if none is queued within spinTime.
func (w *workerPool) next() (f func()) {
	for start := time.Now(); time.Since(start) < spinTime; {
		if w.queued.Load() == 0 {
			continue
		}
		w.mu.Lock()
		if n := len(w.tasks); n > 0 {
			f, w.tasks = w.tasks[n-1], w.tasks[:n-1]
			w.queued.Store(int32(n - 1))
		}
		w.mu.Unlock()
		if f != nil {
			return f
		}
	}
	return nil
}

// close ends all workers.
func (w *workerPool) close() {
	close(w.closing)
	w.done.Wait()
}
