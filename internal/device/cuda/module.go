package cuda

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"
	"unsafe"

	"tilework/internal/device"
)

// digest is the SHA-256 of PTX.
type digest [sha256.Size]byte

// compiled is PTX that the driver compiled or is compiling. All modules with the same PTX share it.
type compiled struct {
	gpu   *GPU
	text  digest
	ready chan struct{} // closed when compilation ends; the next four fields are set by then

	params signatures
	handle uintptr
	log    string
	err    error

	// Guarded by the GPU's mutex.
	users   int
	loaded  bool // compiled; the last user unloads it
	kernels map[string]*kernel
}

// module is one user of a compiled module.
type module struct {
	*compiled
	unloaded bool // guarded by the GPU's mutex
}

// Load compiles PTX. Concurrent modules with the same PTX share one compilation. The driver cannot
// abort a compilation: when ctx ends, Load returns and compilation continues. A later Load of the
// same PTX uses its result. Without one, the result is unloaded when compilation ends.
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
		if m.release() { // compilation ended at the same time
			return nil, errors.Join(ctx.Err(), g.within(c.unload))
		}
		return nil, ctx.Err() // without a driver call, which would block while it compiles
	}
	if c.err != nil {
		return nil, c.err
	}
	return m, nil
}

// compile compiles PTX and unloads the result if no user waits for it any longer.
func (c *compiled) compile(text string) {
	defer close(c.ready)
	g := c.gpu
	c.params = parseSignatures(text)
	c.err = g.within(func() error {
		err := g.compile(c, text)
		g.mu.Lock()
		c.loaded = err == nil && c.users > 0
		if !c.loaded {
			c.removeFromCache()
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
		c.removeFromCache()
		g.mu.Unlock()
	}
}

// removeFromCache makes the next Load of the same PTX compile it again. The caller holds the GPU's
// mutex.
func (c *compiled) removeFromCache() {
	if c.gpu.modules[c.text] == c {
		delete(c.gpu.modules, c.text)
	}
}

// logBytes is the size of the buffers for the compiler's information and error logs.
const logBytes = 64 << 10

// ignored matches warnings that the compiler did not follow the PTX, such as an ignored setmaxnreg
// or serialised wgmma.
var ignored = regexp.MustCompile(`\bC75\d\d\b`)

// compile compiles PTX with cuModuleLoadDataEx. The linker API (cuLinkAddData) compiles relocatable
// code, which runs slower.
func (g *GPU) compile(c *compiled, text string) error {
	if strings.Contains(text, "\x00") {
		return fmt.Errorf("%w: the PTX contains a zero byte", device.ErrCompile)
	}
	image := imageOf(text)
	// CU_JIT_INFO_LOG_BUFFER and its size, CU_JIT_ERROR_LOG_BUFFER and its size,
	// CU_JIT_LOG_VERBOSE. All values have the type void*, whether they are pointers or numbers.
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
	c.log = strings.TrimSpace(cString(info[:])) + fmt.Sprintf("\ncompiled in %.3f s for %v",
		time.Since(start).Seconds(), g.info.Target)
	if e, ok := errors.AsType[*Error](err); ok {
		e.Log = cString(problems[:])
		if code(e.Code) == oldDriver {
			e.Text += fmt.Sprintf(" (the driver is for %v: want a newer one)", g.driver.version)
		}
		return withKind(device.ErrCompile, e)
	}
	if err != nil {
		return err
	}
	if ignored.MatchString(c.log) {
		return fmt.Errorf("%w: the driver did not compile the PTX as written: %s", device.ErrCompile, oneLine(c.log))
	}
	return nil
}

// imageOf returns PTX as the driver reads it. It ends at the first zero byte. The driver reads
// further bytes because it first checks for binary formats.
func imageOf(text string) []byte { return append([]byte(text), make([]byte, 16)...) }

// Precompile compiles PTX into the driver's cache on disk. While cuModuleLoadDataEx compiles,
// launches in other threads wait for it, for 0.1 s in most cases. They do not wait for
// cuLibraryLoadData, which has no messages of the compiler. It reports false if the driver has no
// cache or is older than that function.
func (g *GPU) Precompile(text string) bool {
	if os.Getenv("CUDA_CACHE_DISABLE") == "1" || !g.driver.has(cuLibraryLoad) || strings.Contains(text, "\x00") {
		return false
	}
	image := imageOf(text)
	return g.within(func() error {
		var library uintptr
		err := g.call(cuLibraryLoad, uintptr(unsafe.Pointer(&library)), uintptr(unsafe.Pointer(unsafe.SliceData(image))),
			0, 0, 0, 0, 0, 0)
		if err != nil {
			return err
		}
		return g.call(cuLibraryUnload, library)
	}) == nil
}

// Log returns the compiler's messages and the compile time. The driver caches compiled PTX on disk
// and reports no messages for cached PTX. To see all warnings, set CUDA_CACHE_DISABLE=1.
func (m *module) Log() string { return m.log }

// Unload unloads the compiled module when its last user unloads it. Unloading it again does
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

// release ends m's use of the compiled module. It reports whether the caller must unload it.
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
	m.removeFromCache()
	return true
}
