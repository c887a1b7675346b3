package emu

import (
	"context"
	"io"
	"unsafe"
)

// worker runs clusters of a launch, one after the other.
type worker struct {
	run        *run
	cluster    *cluster
	counts     []tally          // by index of the instruction in the program
	lastRegion []region         // by instruction: the global memory of its last access
	reachable  map[int32][]bool // results of pathsFrom by instruction of the kernel
	unreported int              // instructions not yet added to run.spent
	matrices   [4]matrixMemory  // of the current matrix instruction
}

func (r *run) newWorker() *worker {
	sites := len(r.program.sites)
	k := &worker{run: r, counts: make([]tally, sites), lastRegion: make([]region, sites), reachable: map[int32][]bool{}}
	k.cluster = &cluster{run: r, worker: k}
	for rank := range r.cluster.count() {
		b := &block{run: r, cluster: k.cluster, rank: rank, words: make([]uint64, (r.sharedSize+7)/8+1)}
		b.shared = region{mem: unsafe.Pointer(&b.words[0]), base: peerAddress(rank, 0), size: uint64(r.sharedSize)}
		for n := range (r.launch.Block.count() + lanes - 1) / lanes {
			w := &warp{index: n, block: b, worker: k, frames: map[*function][]*frame{}}
			w.local = make([]uint64, lanes*r.localSize/8)
			b.warps = append(b.warps, w)
		}
		k.cluster.blocks = append(k.cluster.blocks, b)
	}
	return k
}

func (k *worker) keepFrames() {
	for _, b := range k.cluster.blocks {
		for _, w := range b.warps {
			w.keepFrames()
		}
	}
}

// work runs clusters until none are left. After a failure only the clusters before the failed one
// matter, and these have all started.
func (k *worker) work() {
	r := k.run
	defer r.running.Add(-1)
	for {
		n := int(r.next.Add(1)) - 1
		if n >= r.clusters || r.outdated(n) {
			return
		}
		k.cluster.begin(n)
		err := k.cluster.execute()
		r.finish(n, k.cluster.printed(), err)
	}
}

func (r *run) outdated(cluster int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return cluster > r.failed
}

func (r *run) finish(cluster int, printed []byte, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.printer.add(cluster, printed)
	if err != nil && cluster < r.failed {
		r.failed, r.err = cluster, err
	}
}

// abandon ends all clusters after a panic of an observer or of the writer for printf.
func (r *run) abandon() {
	r.mu.Lock()
	r.failed = -1
	r.mu.Unlock()
}

// spendInterval is the number of instructions between two checks for the end of a launch.
const spendInterval = 1 << 13

// spend counts n instructions. Every spendInterval instructions it returns an error if the worker
// must stop.
func (k *worker) spend(n int) error {
	if k.unreported += n; k.unreported < spendInterval {
		return nil
	}
	r := k.run
	spent := r.spent.Add(uint64(k.unreported))
	k.unreported = 0
	switch {
	case r.launch.MaxInstructions > 0 && spent > uint64(r.launch.MaxInstructions):
		return r.overBudget(k.cluster)
	case r.outdated(k.cluster.number):
		return context.Canceled // any error will do, as an earlier cluster has failed
	}
	return r.ctx.Err()
}

// printer writes the output of the clusters in the order of their numbers.
type printer struct {
	w     io.Writer
	next  int
	early map[int][]byte // output of clusters that ended before a lower-numbered one
	err   error
}

func (p *printer) add(cluster int, text []byte) {
	if p.early == nil {
		p.early = map[int][]byte{}
	}
	p.early[cluster] = text
	for {
		text, ok := p.early[p.next]
		if !ok {
			return
		}
		delete(p.early, p.next)
		p.next++
		if p.w != nil && len(text) > 0 && p.err == nil {
			_, p.err = p.w.Write(text)
		}
	}
}
