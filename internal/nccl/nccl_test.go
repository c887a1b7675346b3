package nccl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"tilework/internal/dl"
	"tilework/internal/gemm"
)

// fake replaces the library. It decodes arguments by the offsets in nccl.h, independently of this
// package's types.
type fake struct {
	t       *testing.T
	failAt  int // the number of the call that fails, from 1 on
	calls   []string
	comms   int  // communicators that are not freed
	pending int  // the questions for the state that are answered with ncclInProgress
	stuck   bool // whether operations never end
	state   int32
	group   bool
	texts   [][]byte // those that were returned, so that the garbage collector keeps them
}

func newFake(t *testing.T) (*fake, *Library) {
	f := &fake{t: t}
	l := &Library{procs: map[string]uintptr{}, run: f.run}
	for i, name := range procs {
		l.procs[name] = uintptr(i + 1)
	}
	return f, l
}

func pointTo[T any](at uintptr) *T { return (*T)(*(*unsafe.Pointer)(unsafe.Pointer(&at))) }

func (f *fake) text(s string) uintptr {
	b := append([]byte(s), 0)
	f.texts = append(f.texts, b)
	return uintptr(unsafe.Pointer(unsafe.SliceData(b)))
}

const fakeComm = 0x5000

func (f *fake) run(proc uintptr, a ...uintptr) uintptr {
	name := procs[proc-1]
	switch name {
	case errorString:
		return f.text(fmt.Sprintf("result %d", a[0]))
	case getLastError:
		return f.text("cable is out")
	}
	f.calls = append(f.calls, name)
	if len(f.calls) == f.failAt {
		switch name {
		case groupEnd:
			f.group = false
		case abort, destroy:
			f.comms--
		}
		return 2
	}
	comm := map[string]int{asyncError: 0, finalize: 0, destroy: 0, abort: 0, send: 4, receive: 4}
	if at, takes := comm[name]; takes && (a[at] != fakeComm || f.comms == 0) {
		f.t.Errorf("%s of communicator %#x, %d are left", name, a[at], f.comms)
	}
	switch name {
	case getVersion:
		*pointTo[int32](a[0]) = 22703
	case getUniqueID:
		copy(unsafe.Slice(pointTo[byte](a[0]), 128), "host:port")
	case initRank:
		id, settings := string(unsafe.Slice(pointTo[byte](a[4]), 9)), unsafe.Slice(pointTo[byte](a[5]), 20)
		want := []byte{24, 0, 0, 0, 0, 0, 0, 0, 0xef, 0xbe, 0xfe, 0xca, 0x98, 0x53, 0, 0, 0, 0, 0, 0} // non-blocking
		if a[1] != 4 || a[2] != 3 || a[3] != 1 || id != "host:port" || !slices.Equal(settings, want) {
			f.t.Errorf("init of %d ranks as rank %d with %d ids, %q, % x", a[1], a[2], a[3], id, settings)
		}
		f.comms++
		*pointTo[uintptr](a[0]) = fakeComm
		return inProgress
	case asyncError:
		*pointTo[int32](a[1]) = f.state
		if f.pending--; f.pending >= 0 || f.stuck {
			*pointTo[int32](a[1]) = inProgress
		}
	case finalize:
		return inProgress
	case destroy, abort:
		f.comms--
	case groupStart:
		f.group = true
	case groupEnd:
		f.group = false
		return inProgress
	case send, receive:
		if want := uintptr(0x77); !f.group || a[2] != 0 || a[5] != want {
			f.t.Errorf("%s of type %d in stream %#x, in a group: %v", name, a[2], a[5], f.group)
		}
		f.calls[len(f.calls)-1] += fmt.Sprintf(" %#x %d bytes rank %d", a[0], a[1], a[3])
	}
	return success
}

// stream passes for a stream of a GPU.
type stream struct{}

func (stream) Foreign(f func(stream uintptr) error) error { return f(0x77) }

// use opens a communicator, exchanges data once and closes it.
func use(ctx context.Context, l *Library) error {
	if err := l.init(); err != nil {
		return err
	}
	id, err := l.NewID()
	if err != nil {
		return err
	}
	c, err := l.Join(ctx, stream{}, id, 3, 4)
	if err != nil {
		return err
	}
	sends, receives := []Transfer{{0, 0x100, 10}, {1, 0x200, 20}}, []Transfer{{2, 0x300, 30}}
	if err := c.Exchange(ctx, stream{}, sends, receives); err != nil {
		return errors.Join(err, c.Abort(), c.Abort())
	}
	return errors.Join(c.Exchange(ctx, stream{}, nil, nil), c.Close(ctx), c.Close(ctx), c.Abort())
}

// TestCalls checks the calls of the library and their order.
func TestCalls(t *testing.T) {
	f, l := newFake(t)
	f.pending = 2
	if err := use(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	want := []string{getVersion, getUniqueID, initRank, asyncError, asyncError, asyncError, groupStart,
		send + " 0x100 10 bytes rank 0", send + " 0x200 20 bytes rank 1", receive + " 0x300 30 bytes rank 2", groupEnd,
		asyncError, finalize, asyncError, destroy}
	if !slices.Equal(f.calls, want) || l.Version.String() != "2.27.3" || f.comms != 0 {
		t.Errorf("calls %q of version %v, want %q; %d communicators are left", f.calls, l.Version, want, f.comms)
	}
}

// TestFaults fails each call in turn. No communicator and no open group may remain.
func TestFaults(t *testing.T) {
	for failAt := 1; ; failAt++ {
		f, l := newFake(t)
		f.failAt = failAt
		err := use(t.Context(), l)
		if f.comms != 0 || f.group {
			t.Errorf("call %d failed, %q: %d communicators are left, open group: %v", failAt, f.calls, f.comms, f.group)
		}
		if len(f.calls) < failAt {
			if err != nil {
				t.Errorf("no call failed: %v", err)
			}
			return
		}
		name, _, _ := strings.Cut(f.calls[failAt-1], " ")
		if want := name + ": result 2: cable is out (2)"; err == nil || err.Error() != want {
			t.Errorf("call %d failed: error %v, want %s", failAt, err, want)
		}
	}
}

// TestStates checks the errors of operations that fail in the background.
func TestStates(t *testing.T) {
	f, l := newFake(t)
	f.state = 6 // ncclRemoteError
	_, err := l.Join(t.Context(), stream{}, idOf("host:port"), 3, 4)
	if want := initRank + ": result 6: cable is out (6)"; err == nil || err.Error() != want || f.comms != 0 {
		t.Errorf("error %v, want %s; %d communicators are left", err, want, f.comms)
	}
}

func idOf(s string) (id ID) {
	copy(id[:], s)
	return id
}

// TestStuck checks that operations end with their context and with Abort, although another rank
// never takes part.
func TestStuck(t *testing.T) {
	f, l := newFake(t)
	f.stuck = true
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := l.Join(ctx, stream{}, idOf("host:port"), 3, 4)
	if !errors.Is(err, context.DeadlineExceeded) || f.comms != 0 {
		t.Errorf("error %v, %d communicators are left", err, f.comms)
	}
	for _, end := range []func(*Comm){
		func(c *Comm) { time.AfterFunc(20*time.Millisecond, func() { _ = c.Abort() }) },
		func(c *Comm) {},
	} {
		f, l := newFake(t)
		c, err := l.Join(t.Context(), stream{}, idOf("host:port"), 3, 4)
		if err != nil {
			t.Fatal(err)
		}
		f.stuck = true
		end(c)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		err = c.Exchange(ctx, stream{}, []Transfer{{0, 0x100, 10}}, nil)
		if !errors.Is(err, errAborted) && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("exchange: error %v", err)
		}
		if err := c.Close(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) || f.comms != 0 {
			t.Errorf("close: error %v, %d communicators are left", err, f.comms)
		}
		cancel()
	}
}

// TestOpen opens the installed library, and files that are not NCCL.
func TestOpen(t *testing.T) {
	file := t.TempDir() + "/libnccl.so.2"
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(file); err == nil || !strings.HasPrefix(err.Error(), "nccl: ") {
		t.Errorf("a text file: error %v", err)
	}
	t.Setenv(source.Env, file+".none")
	if _, err := Open(""); !errors.Is(err, dl.ErrNotFound) && !errors.Is(err, gemm.ErrUnsupported) {
		t.Errorf("a missing file: error %v", err)
	}
	os.Setenv(source.Env, off)
	if _, err := Open(""); !errors.Is(err, dl.ErrNotFound) {
		t.Errorf("%s=%s: error %v", source.Env, off, err)
	}
	os.Unsetenv(source.Env)
	l, err := Open("")
	if errors.Is(err, dl.ErrNotFound) || errors.Is(err, gemm.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil || l.Version < 22300 || l.Path == "" {
		t.Fatalf("error %v, library %+v", err, l)
	}
	t.Logf("NCCL %v, %s", l.Version, l.Path)
}
