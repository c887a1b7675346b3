package cuda

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unsafe"

	"tilework/internal/device"
)

type digest [sha256.Size]byte

// compiled is a text that the driver compiled, or is compiling, for all who load it.
type compiled struct {
	gpu   *GPU
	text  digest
	ready chan struct{} // closed once the fields of the next group are set

	params signatures
	handle uintptr
	log    string
	err    error

	// Guarded by the GPU's mutex.
	users   int
	loaded  bool // compiled, for its last user to unload
	kernels map[string]*kernel
}

// module is one user of a compiled text.
type module struct {
	*compiled
	unloaded bool // guarded by the GPU's mutex
}

// Load compiles PTX text, once however often it is loaded before it is unloaded as
// often. The driver cannot be called back from compiling: when ctx ends, Load returns
// and what was begun goes on, for whoever asks for the same text next. If nobody has
// by its end, it is given back.
func (g *GPU) Load(ctx context.Context, text string) (device.Module, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	key := digest(sha256.Sum256([]byte(text)))
	g.mu.Lock()
	c, known := g.modules[key]
	if !known {
		c = &compiled{gpu: g, text: key, ready: make(chan struct{}), kernels: map[string]*kernel{}}
		g.modules[key] = c
	}
	c.users++
	g.mu.Unlock()

	m := &module{compiled: c}
	if !known {
		go c.compile(text)
	}
	select {
	case <-c.ready:
	case <-ctx.Done():
		if m.release() { // it has come at the same time
			return nil, errors.Join(ctx.Err(), g.within(c.unload))
		}
		return nil, ctx.Err() // without asking the driver, which is busy
	}
	if c.err != nil {
		return nil, c.err
	}
	return m, nil
}

// compile has the text compiled, and gives the result back if nobody waits for it any
// more.
func (c *compiled) compile(text string) {
	defer close(c.ready)
	g := c.gpu
	c.params = newSignatures(text)
	c.err = g.within(func() error {
		err := g.compile(c, text)
		g.mu.Lock()
		c.loaded = err == nil && c.users > 0
		if !c.loaded {
			c.forget()
		}
		g.mu.Unlock()
		if c.loaded || c.handle == 0 {
			return err
		}
		unwanted := c.handle
		c.handle = 0
		return errors.Join(err, g.call(cuModuleUnload, unwanted))
	})
	if c.err != nil {
		g.mu.Lock()
		c.forget()
		g.mu.Unlock()
	}
}

// forget lets the next who loads the text begin anew. The GPU's mutex is held.
func (c *compiled) forget() {
	if c.gpu.modules[c.text] == c {
		delete(c.gpu.modules, c.text)
	}
}

// logBytes is what the compiler may say, of each kind.
const logBytes = 64 << 10

// ignored finds the messages with which the compiler says that it did not do what
// the text asks for: a setmaxnreg ignored, a wgmma serialised.
var ignored = regexp.MustCompile(`\bC75\d\d\b`)

// compile has the driver compile a text, with cuModuleLoadDataEx: the linker's
// functions compile it as relocatable, which is slower code.
func (g *GPU) compile(c *compiled, text string) error {
	if strings.Contains(text, "\x00") {
		return fmt.Errorf("%w: the text has a zero byte", device.ErrCompile)
	}
	// One zero ends the text; more, because the driver first looks for other formats.
	image := append([]byte(text), make([]byte, 16)...)
	// CU_JIT_INFO_LOG_BUFFER and its size, CU_JIT_ERROR_LOG_BUFFER and its size,
	// CU_JIT_LOG_VERBOSE; the values are void*, be they pointers or not.
	options := []int32{3, 4, 5, 6, 12}
	var info, problems [logBytes]byte
	values := struct {
		info         *[logBytes]byte
		infoBytes    uintptr
		problems     *[logBytes]byte
		problemBytes uintptr
		verbose      uintptr
	}{&info, logBytes, &problems, logBytes, 1}

	start := time.Now()
	err := g.call(cuModuleLoad, uintptr(unsafe.Pointer(&c.handle)), uintptr(unsafe.Pointer(unsafe.SliceData(image))),
		uintptr(len(options)), uintptr(unsafe.Pointer(unsafe.SliceData(options))), uintptr(unsafe.Pointer(&values)))
	c.log = strings.TrimSpace(cString(info[:])) + fmt.Sprintf("\ncompiled in %.3f s for %v", time.Since(start).Seconds(), g.info.Target)
	if e, ok := errors.AsType[*Error](err); ok {
		e.Log = cString(problems[:])
		if code(e.Code) == oldDriver {
			e.Text += fmt.Sprintf(" (the driver is for %v: update it)", g.driver.version)
		}
		return as(device.ErrCompile, e)
	}
	if err != nil {
		return err
	}
	if ignored.MatchString(c.log) {
		return fmt.Errorf("%w: the driver compiled it otherwise than it is written: %s", device.ErrCompile, oneLine(c.log))
	}
	return nil
}

// Log is what the compiler said, and how long it took. The driver keeps what it has
// compiled on disk, and of a text that an earlier process had compiled it says
// nothing: to see what it ignores, set CUDA_CACHE_DISABLE=1.
func (m *module) Log() string { return m.log }

// Unload gives the compiled text back when nobody else uses it; a second time does
// nothing.
func (m *module) Unload() error {
	return m.gpu.within(func() error {
		if m.release() {
			return m.unload()
		}
		return nil
	})
}

func (c *compiled) unload() error { return c.gpu.call(cuModuleUnload, c.handle) }

// release ends m's use of the compiled text and says whether that is to be unloaded.
func (m *module) release() bool {
	g := m.gpu
	g.mu.Lock()
	defer g.mu.Unlock()
	if m.unloaded {
		return false
	}
	m.unloaded = true
	if m.users--; m.users > 0 || !m.loaded {
		return false
	}
	m.forget()
	return true
}
