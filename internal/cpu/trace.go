package cpu

import "time"

// trace records the timeline of one job for tests. A nil trace records nothing.
type trace struct {
	start   time.Time
	took    time.Duration
	workers []workerTrace
}

// workerTrace records one worker's part. Times are relative to the start of the job.
type workerTrace struct {
	joined  time.Duration // 0 for the caller and for workers that did not join
	first   time.Duration // the start of its first task
	last    time.Duration // the end of its last task
	busy    time.Duration // time in tasks
	waiting time.Duration // time spent waiting for others' tasks
	tasks   int
	stolen  int // tasks from other queues
	since   time.Duration
	_       [2 * cacheLine]byte
}

func newTrace(threads int) *trace {
	return &trace{start: time.Now(), workers: make([]workerTrace, threads)}
}

func (t *trace) join(worker int) {
	if t != nil {
		t.workers[worker].joined = time.Since(t.start)
	}
}

// begin records that a worker starts a task or a wait.
func (t *trace) begin(worker int) {
	if t != nil {
		t.workers[worker].since = time.Since(t.start)
	}
}

// end records that a worker has finished a task of a queue.
func (t *trace) end(worker, queue int) {
	if t == nil {
		return
	}
	s := &t.workers[worker]
	if s.tasks == 0 {
		s.first = s.since
	}
	s.last = time.Since(t.start)
	s.busy += s.last - s.since
	s.tasks++
	if worker != queue {
		s.stolen++
	}
}

// waited records that a worker has finished waiting.
func (t *trace) waited(worker int) {
	if t != nil {
		s := &t.workers[worker]
		s.waiting += time.Since(t.start) - s.since
	}
}
