package cuda

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"tilework/internal/testkit"
)

// TestMain raises GOMAXPROCS so that copies use several workers on any machine.
func TestMain(m *testing.M) {
	testkit.CollectRarely()
	runtime.GOMAXPROCS(max(6, runtime.GOMAXPROCS(0)))
	os.Exit(m.Run())
}

// fake is a test double of the driver library. Its streams are lazy: work runs when its completion
// is queried a second time, so memory that is freed or reused too early changes results. The fake
// decodes structures by the offsets of cuda.h instead of this package's types.
type fake struct {
	mu sync.Mutex

	devices int
	version int32
	pools   bool
	alone   bool    // GPUs cannot access each other's memory
	pitch   uintptr // the largest one of a 2D copy of several rows; 0 for any
	lacks   map[*symbol]bool
	// precompiled is the number of libraries that were loaded.
	precompiled int

	failAt   int // number of the call that fails, counted from 1
	failWith code
	stuck    bool // no work ever completes
	ignores  bool // all calls succeed, and do nothing
	// compiling, if set, receives a value from each load when compilation starts. The load ends
	// when a second value is received.
	compiling chan struct{}

	calls    int
	failed   *symbol
	lost     code
	next     uintptr
	retained map[uintptr]int      // users of each device's context
	current  map[int]uintptr      // contexts by thread
	objects  map[uintptr]*object  // live objects by handle
	words    map[string]uintptr   // C strings by content
	keep     [][]byte             // memory of the C strings
	queues   map[uintptr][]queued // by stream
	peers    map[[2]uintptr]bool  // whether a context accesses another, or a device a pool
	leaks    []string             // live objects of contexts that were released
	launches []launched
}

// object is a driver object or a memory allocation.
type object struct {
	kind    string
	context uintptr
	data    []byte // contents of memory or PTX of a module
	name    string // of a function
	dynamic int32
	record  *recording // the last one of the event
	queried bool       // notReady was reported once
}

// recording is a point in the queue of a stream that an event has recorded. A stream waits for the
// last recording at that time, even if the event records again or is destroyed.
type recording struct{ pending bool }

type queued struct {
	do     func()
	record *recording
	wait   *recording // of another stream
}

type launched struct {
	name           string
	shared         uint32
	cluster        [3]uint32
	cooperative    bool
	pdl            bool
	bufferedParams int
}

func newFake() *fake {
	return &fake{
		devices: 2, version: 13000, pools: true, lacks: map[*symbol]bool{}, next: 0x7000_0000_0000,
		retained: map[uintptr]int{}, current: map[int]uintptr{}, objects: map[uintptr]*object{},
		words: map[string]uintptr{}, queues: map[uintptr][]queued{}, peers: map[[2]uintptr]bool{},
	}
}

func (f *fake) has(s *symbol) bool { return !f.lacks[s] }

// at returns the address as a *T.
func at[T any](address uintptr) *T { return (*T)(pointer(address)) }

const (
	fakeContext  code = 201
	fakeBadPTX   code = 218
	fakeHandle   code = 400
	fakeNotFound code = 500
)

// completing lists the functions that do their work even if they report a failure.
var completing = []*symbol{cuStreamSynchronize, cuStreamDestroy, cuEventDestroy, cuMemFree, cuMemFreeHost,
	cuMemFreeAsync, cuMemPoolDestroy, cuModuleUnload, cuPrimaryCtxRelease}

func (f *fake) invoke(s *symbol, a []uintptr) uintptr {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ignores {
		return 0
	}
	switch s {
	case cuGetErrorName:
		*at[uintptr](a[1]) = f.cString(fmt.Sprintf("CUDA_ERROR_%d", a[0]))
		return 0
	case cuGetErrorString:
		*at[uintptr](a[1]) = f.cString(fmt.Sprintf("fake error %d", a[0]))
		return 0
	}
	f.calls++
	if f.calls == f.failAt {
		f.failed = s
		if kinds[f.failWith] != nil && (&Error{Code: int(f.failWith)}).sticky() {
			f.lost = f.failWith
		}
		if slices.Contains(completing, s) {
			f.do(s, a)
		}
		return uintptr(f.failWith)
	}
	if f.lost != 0 && s.index >= cuCtxSetCurrent.index && !slices.Contains(completing, s) {
		return uintptr(f.lost)
	}
	return uintptr(f.do(s, a))
}

func (f *fake) cString(text string) uintptr {
	if f.words[text] == 0 {
		b := append([]byte(text), 0)
		f.keep = append(f.keep, b)
		f.words[text] = uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	}
	return f.words[text]
}

// make creates an object of the current context and stores its handle at to.
func (f *fake) make(kind string, to uintptr) *object {
	f.next += 1 << 20
	return f.makeAt(kind, f.next, to)
}

func (f *fake) makeAt(kind string, handle, to uintptr) *object {
	o := &object{kind: kind, context: f.current[thread()]}
	f.objects[handle] = o
	*at[uintptr](to) = handle
	return o
}

// find returns the object with the given handle in the current context, or nil.
func (f *fake) find(kind string, handle uintptr) *object {
	o := f.objects[handle]
	if o == nil || o.kind != kind || o.context != f.current[thread()] {
		return nil
	}
	return o
}

// bytes returns n bytes of device memory.
func (f *fake) bytes(address, n uintptr) []byte {
	for start, o := range f.objects {
		if o.kind == "memory" && start <= address && address+n <= start+uintptr(len(o.data)) {
			return o.data[address-start:][:n]
		}
	}
	panic(fmt.Sprintf("fake device: %d bytes at %#x are not allocated", n, address))
}

// run performs the queued work of a stream up to the recording until, or all of it if until is nil.
func (f *fake) run(stream uintptr, until *recording) {
	for len(f.queues[stream]) > 0 {
		q := f.queues[stream][0]
		f.queues[stream] = f.queues[stream][1:]
		if q.wait != nil && q.wait.pending {
			f.run(f.streamOf(q.wait), q.wait)
		}
		if q.do != nil {
			q.do()
		}
		if q.record != nil {
			q.record.pending = false
			if q.record == until {
				return
			}
		}
	}
}

func (f *fake) enqueue(stream uintptr, q queued) {
	f.queues[stream] = append(f.queues[stream], q)
}

// release drops one reference to a device's context and destroys it with the last.
func (f *fake) release(device uintptr) code {
	if f.retained[device] == 0 {
		return fakeContext
	}
	if f.retained[device]--; f.retained[device] > 0 {
		return success
	}
	for handle, o := range f.objects {
		if o.context == contextOf(device) {
			if f.lost == 0 && o.kind != "function" {
				f.leaks = append(f.leaks, o.kind)
			}
			delete(f.objects, handle)
		}
	}
	f.lost = 0
	return success
}

func contextOf(device uintptr) uintptr { return 0xc0 + device }

// launch enqueues a kernel. The kernel "increment" adds 1 to each of n bytes; others do nothing.
func (f *fake) launch(stream, function uintptr, l launched, extra uintptr) code {
	o := f.objects[function]
	if o == nil || o.kind != "function" {
		return fakeHandle
	}
	if int32(l.shared) > max(o.dynamic, 48<<10) {
		return invalidValue
	}
	// CU_LAUNCH_PARAM_BUFFER_POINTER, arguments, CU_LAUNCH_PARAM_BUFFER_SIZE, address of size, end
	args := at[[5]uintptr](extra)
	if args[0] != 1 || args[2] != 2 || args[4] != 0 {
		return invalidValue
	}
	l.name, l.bufferedParams = o.name, int(*at[uintptr](args[3]))
	f.launches = append(f.launches, l)
	params := slices.Clone(unsafe.Slice(at[byte](args[1]), l.bufferedParams))
	if o.name == "increment" {
		p, n := binary.LittleEndian.Uint64(params), binary.LittleEndian.Uint32(params[8:])
		f.enqueue(stream, queued{do: func() {
			memory := f.bytes(uintptr(p), uintptr(n))
			for i := range memory {
				memory[i]++
			}
		}})
	}
	return success
}

// load compiles PTX. PTX with the word "wrong" fails, and PTX with "setmaxnreg" produces a warning.
func (f *fake) load(a []uintptr) code {
	text := goString(a[1])
	if a[2] != 5 || *at[[5]int32](a[3]) != [5]int32{3, 4, 5, 6, 12} {
		return invalidValue
	}
	if f.compiling != nil {
		f.mu.Unlock()
		f.compiling <- struct{}{}
		f.compiling <- struct{}{}
		f.mu.Lock()
	}
	values := at[[5]uintptr](a[4])
	say := func(buffer, size uintptr, text string) {
		copy(unsafe.Slice(at[byte](buffer), size), text+"\x00")
	}
	if strings.Contains(text, "wrong") {
		say(values[2], values[3], "ptxas line 1; error : wrong\nptxas fatal : aborted\n")
		return fakeBadPTX
	}
	if strings.Contains(text, "setmaxnreg") {
		say(values[0], values[1], "ptxas info : (C7508) 'setmaxnreg' ignored\n")
	}
	f.make("module", a[0]).data = []byte(text)
	return success
}

// copy2D enqueues the 2D copy that the CUDA_MEMCPY2D at c describes.
func (f *fake) copy2D(c, stream uintptr) code {
	word := func(offset uintptr) uintptr { return *at[uintptr](c + offset) }
	width, height := word(112), word(120)
	// row returns a function that returns row i of the source or the destination at an offset of c.
	row := func(side uintptr) func(i uintptr) []byte {
		kind, host, dev, pitch := *at[uint32](c + side + 16), word(side+24), word(side+32), word(side+48)
		switch {
		case pitch < width || f.pitch > 0 && height > 1 && pitch > f.pitch:
			return nil
		case kind == onHost && dev == 0:
			return func(i uintptr) []byte { return unsafe.Slice(at[byte](host+i*pitch), width) }
		case kind == onDevice && host == 0:
			return func(i uintptr) []byte { return f.bytes(dev+i*pitch, width) }
		}
		return nil
	}
	from, to := row(0), row(56)
	if from == nil || to == nil || width == 0 || height == 0 || !f.reaches(word(88), word(32)) {
		return invalidValue
	}
	f.enqueue(stream, queued{do: func() {
		for i := range height {
			copy(to(i), from(i))
		}
	}})
	return success
}

// reaches reports whether a GPU can copy between device memory of its own and src. The addresses
// are 0 for host memory.
func (f *fake) reaches(dst, src uintptr) bool {
	pair := [2]uintptr{f.contextAt(dst), f.contextAt(src)}
	return dst == 0 || src == 0 || pair[0] == pair[1] || f.peers[pair]
}

// contextAt returns the context of the device memory at an address.
func (f *fake) contextAt(address uintptr) uintptr {
	for start, o := range f.objects {
		if o.kind == "memory" && start <= address && address < start+uintptr(len(o.data)) {
			return o.context
		}
	}
	return 0
}
