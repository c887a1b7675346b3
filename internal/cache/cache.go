// Package cache keeps what was measured on this machine from one process to the next.
//
// An entry is a small value under a key that names everything it depends on: what
// changes has another key, so that nothing is ever stale or deleted. Entries are files
// of their own, written aside and renamed, and read with suspicion: one that is
// damaged, of another version or somebody else's is one that is not there. Nothing
// that goes wrong here is more than a measurement made again; [Cache.Trouble] tells it
// to whoever wants to know.
package cache

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Variable is the environment variable that names the directory, or says "off".
const Variable = "TILEWORK_CACHE"

// version is of the format of the files, and the directory that they are in.
const version = "v1"

// Cache is a directory of entries. The nil Cache is off: it holds nothing, and keeps
// nothing. Its methods may be called from several goroutines at once.
type Cache struct {
	dir     string
	trouble *trouble // shared with the shelves
}

// trouble is what went wrong, each thing once.
type trouble struct {
	mu  sync.Mutex
	all []string
}

// Default returns the cache that the process shares, which is opened on the first call.
var Default = sync.OnceValue(Open)

// Open is the cache that the environment asks for: in the directory that
// TILEWORK_CACHE names, or else in one of the user's own; nil for "off", and where
// the system has no place for it. Nothing is made before something is kept.
func Open() *Cache {
	switch dir := os.Getenv(Variable); dir {
	case "off":
		return nil
	case "":
		user, err := os.UserCacheDir()
		if err != nil {
			return nil
		}
		return At(filepath.Join(user, "tilework"))
	default:
		return At(dir)
	}
}

// At is the cache in a directory.
func At(dir string) *Cache { return &Cache{filepath.Join(dir, version), &trouble{}} }

// Shelf is the part of the cache that has that name: entries apart from the others,
// to be listed and cleared, with a lock of their own.
func (c *Cache) Shelf(name string) *Cache {
	if c == nil {
		return nil
	}
	return &Cache{filepath.Join(c.dir, name), c.trouble}
}

// Dir is the directory of the entries, empty for the cache that is off.
func (c *Cache) Dir() string {
	if c == nil {
		return ""
	}
	return c.dir
}

// Trouble lists what could not be read or kept since the cache was opened, in a line
// each.
func (c *Cache) Trouble() []string {
	if c == nil {
		return nil
	}
	c.trouble.mu.Lock()
	defer c.trouble.mu.Unlock()
	return slices.Clone(c.trouble.all)
}

// note remembers what went wrong with a file, up to a number that anybody reads.
func (c *Cache) note(path string, err error) {
	const most = 20
	text := fmt.Sprintf("%s: %v", path, err)
	c.trouble.mu.Lock()
	defer c.trouble.mu.Unlock()
	if len(c.trouble.all) < most && !slices.Contains(c.trouble.all, text) {
		c.trouble.all = append(c.trouble.all, text)
	}
}

// Get reads the entry of a key into value, a pointer. It is false if there is none
// that can be read.
func (c *Cache) Get(key string, value any) bool {
	if c == nil {
		return false
	}
	path := c.path(key)
	found, v, err := read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false
	case err == nil && found != key:
		err = fmt.Errorf("the entry of %q", found)
	case err == nil:
		err = json.Unmarshal(v, value)
	}
	if err != nil {
		c.note(path, err)
	}
	return err == nil
}

// mostEntries bounds what All reads.
const mostEntries = 10_000

// All calls f with every entry that can be read: its key, and its value in JSON. The
// order is no particular one, but always the same.
func (c *Cache) All(f func(key string, value []byte)) {
	for _, path := range c.files("*.json") {
		key, v, err := read(path)
		if err != nil {
			c.note(path, err)
			continue
		}
		f(key, v)
	}
}

func (c *Cache) files(pattern string) []string {
	if c == nil {
		return nil
	}
	// The only error is that of a bad pattern.
	paths, _ := filepath.Glob(filepath.Join(c.dir, pattern))
	return paths[:min(len(paths), mostEntries)]
}

// Remove removes the entry of a key; it is no error if there is none.
func (c *Cache) Remove(key string) error {
	if c == nil {
		return nil
	}
	if err := os.Remove(c.path(key)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Clear removes all entries, those that cannot be read among them, and says how many.
func (c *Cache) Clear() (n int, err error) {
	for _, path := range c.files("*.json") {
		if removed := os.Remove(path); removed == nil {
			n++
		} else if !errors.Is(removed, fs.ErrNotExist) {
			err = errors.Join(err, removed)
		}
	}
	for _, path := range c.files("new-*") { // of processes that were killed meanwhile
		err = errors.Join(err, os.Remove(path))
	}
	return n, err
}

// Put keeps a value under a key. The error says why it is not kept.
func (c *Cache) Put(key string, value any) (err error) {
	if c == nil {
		return nil
	}
	defer func() {
		if err != nil {
			c.note(c.dir, err)
		}
	}()
	b, err := encode(key, value)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(c.dir, "new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), c.path(key))
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}

// patience is how long Alone waits for another process.
const patience = 5 * time.Second

// Alone runs f while no other process is in Alone with the same cache: measurements
// disturb each other, and the second may find what the first has kept. It waits some
// seconds at the most; where files cannot be locked it does not wait.
func (c *Cache) Alone(f func()) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	unlock, _ := c.Lock(ctx, nil) // too late is alone enough
	defer unlock()
	f()
}

// Lock waits until no other process holds the lock, or the context ends, whose error it
// then returns. It calls waiting, if not nil, once if it has to wait. Where files cannot
// be locked it does not wait. unlock is never nil.
func (c *Cache) Lock(ctx context.Context, waiting func()) (unlock func(), err error) {
	nothing := func() {}
	if c == nil {
		return nothing, nil
	}
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		c.note(c.dir, err)
		return nothing, nil
	}
	const pause = 5 * time.Millisecond
	for {
		unlock, busy := lock(filepath.Join(c.dir, "lock"))
		if !busy {
			return unlock, nil
		}
		if waiting != nil {
			waiting()
			waiting = nil
		}
		select {
		case <-ctx.Done():
			return nothing, ctx.Err()
		case <-time.After(pause):
		}
	}
}

func (c *Cache) path(key string) string {
	sum := sha256.Sum256([]byte(key))
	return filepath.Join(c.dir, hex.EncodeToString(sum[:16])+".json")
}

// maxEntry is the most bytes that an entry's file has.
const maxEntry = 64 << 10

// entry is the contents of a file.
type entry struct {
	Version string          `json:"version"`
	Key     string          `json:"key"`
	Sum     string          `json:"sum"` // SHA-256 of the value
	Value   json.RawMessage `json:"value"`
}

func encode(key string, value any) ([]byte, error) {
	v, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(entry{Version: version, Key: key, Sum: checksum(v), Value: v})
	if err == nil && len(b) > maxEntry {
		err = fmt.Errorf("an entry of %d bytes, at most %d", len(b), maxEntry)
	}
	return b, err
}

// read reads an entry's file.
func read(path string) (key string, value []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxEntry+1))
	if err != nil {
		return "", nil, err
	}
	return decode(b)
}

// decode reads what encode has written, and nothing else.
func decode(b []byte) (key string, value []byte, err error) {
	if len(b) > maxEntry {
		return "", nil, fmt.Errorf("more than %d bytes", maxEntry)
	}
	var e entry
	if err := json.Unmarshal(b, &e); err != nil {
		return "", nil, fmt.Errorf("damaged: %w", err)
	}
	var v bytes.Buffer
	if err := json.Compact(&v, e.Value); err != nil {
		return "", nil, fmt.Errorf("damaged: %w", err)
	}
	switch {
	case e.Version != version:
		return "", nil, fmt.Errorf("version %q, want %q", e.Version, version)
	case e.Sum != checksum(v.Bytes()):
		return "", nil, errors.New("damaged: the checksum is another")
	}
	return e.Key, v.Bytes(), nil
}

func checksum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
