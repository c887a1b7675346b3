// Package cache stores measurements of this machine on disk, for later processes.
//
// An entry is a small value under a key. The key contains everything that the value depends on, so
// that entries never become stale. Each entry is a regular file, which is written under a
// temporary name and renamed. A file that is damaged, or of another version or key, is treated as
// missing, and so is a symbolic link, a pipe or a device.
//
// An error in the cache only means that something is measured again. [Cache.Problems] lists such
// errors.
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

	"tilework/internal/regular"
)

// EnvVar is the environment variable with the directory of the cache, or "off".
const EnvVar = "TILEWORK_CACHE"

// version is the version of the file format. It is the name of a subdirectory too.
const version = "v1"

// Cache is a directory of entries. A nil Cache is off: it is empty and stores nothing. Methods of
// Cache are safe for concurrent use.
type Cache struct {
	dir      string
	problems *problems // shared with its sections
}

// problems is a list of errors without duplicates.
type problems struct {
	mu  sync.Mutex
	all []string
}

// Default returns the cache of this process. The first call opens it.
var Default = sync.OnceValue(Open)

// Open returns the cache in the directory TILEWORK_CACHE, or by default in the user's cache
// directory. It returns nil if TILEWORK_CACHE is "off", or if the user has no cache directory. Open
// does not create directories; the first Put does.
func Open() *Cache {
	switch dir := os.Getenv(EnvVar); dir {
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

// At returns the cache in a directory.
func At(dir string) *Cache { return &Cache{filepath.Join(dir, version), &problems{}} }

// Section returns a named part of the cache, with its own entries and its own lock. All and Clear
// of the section do not affect other entries.
func (c *Cache) Section(name string) *Cache {
	if c == nil {
		return nil
	}
	return &Cache{filepath.Join(c.dir, name), c.problems}
}

// Dir returns the directory of the entries, or "" if the cache is off.
func (c *Cache) Dir() string {
	if c == nil {
		return ""
	}
	return c.dir
}

// Problems returns the errors of reading and writing since the cache was opened, one line each.
func (c *Cache) Problems() []string {
	if c == nil {
		return nil
	}
	c.problems.mu.Lock()
	defer c.problems.mu.Unlock()
	return slices.Clone(c.problems.all)
}

// addProblem records an error of a file. It drops errors after the first 20.
func (c *Cache) addProblem(path string, err error) {
	const most = 20
	text := fmt.Sprintf("%s: %v", path, err)
	c.problems.mu.Lock()
	defer c.problems.mu.Unlock()
	if len(c.problems.all) < most && !slices.Contains(c.problems.all, text) {
		c.problems.all = append(c.problems.all, text)
	}
}

// Get reads the entry of a key into value, which must be a pointer. It reports whether there is a
// valid entry.
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
		err = fmt.Errorf("entry of key %q, want key %q", found, key)
	case err == nil:
		err = json.Unmarshal(v, value)
	}
	if err != nil {
		c.addProblem(path, err)
	}
	return err == nil
}

// maxEntries limits the number of entries that All and Clear process.
const maxEntries = 10_000

// All calls f with the key and the JSON value of each valid entry. The order is unspecified, but
// always the same.
func (c *Cache) All(f func(key string, value []byte)) {
	for _, path := range c.files("*.json") {
		key, v, err := read(path)
		if err != nil {
			c.addProblem(path, err)
			continue
		}
		f(key, v)
	}
}

// files returns the paths of files in the cache's directory that match the pattern.
func (c *Cache) files(pattern string) []string {
	if c == nil {
		return nil
	}
	// Glob fails only for an invalid pattern.
	paths, _ := fs.Glob(os.DirFS(c.dir), pattern)
	paths = paths[:min(len(paths), maxEntries)]
	for i, name := range paths {
		paths[i] = filepath.Join(c.dir, name)
	}
	return paths
}

// Remove removes the entry of a key. A missing entry is not an error.
func (c *Cache) Remove(key string) error {
	if c == nil {
		return nil
	}
	if err := os.Remove(c.path(key)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Clear removes all entries, including invalid ones, and returns the number of removed entries.
func (c *Cache) Clear() (n int, err error) {
	var errs []error
	for _, path := range c.files("*.json") {
		if err := os.Remove(path); err == nil {
			n++
		} else if !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	for _, path := range c.files("new-*") { // temporary files of killed processes
		errs = append(errs, os.Remove(path))
	}
	return n, errors.Join(errs...)
}

// Put stores a value under a key.
func (c *Cache) Put(key string, value any) (err error) {
	if c == nil {
		return nil
	}
	defer func() {
		if err != nil {
			c.addProblem(c.dir, err)
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

// exclusiveTimeout limits the time that Exclusive waits for other processes.
const exclusiveTimeout = 5 * time.Second

// Exclusive runs f while it holds the lock of the cache, so that processes do not measure at the
// same time, and a process that had to wait finds the entries of the one before. After a timeout of
// some seconds, or if the system cannot lock files, it runs f without the lock.
func (c *Cache) Exclusive(f func()) {
	ctx, cancel := context.WithTimeout(context.Background(), exclusiveTimeout)
	defer cancel()
	unlock, _ := c.Lock(ctx, nil) // after a timeout, continue without the lock
	defer unlock()
	f()
}

// errBusy reports that another process holds the lock.
var errBusy = errors.New("locked")

// Lock waits until no other process holds the lock of the cache, and takes it. If it has to wait,
// it calls waiting once, unless waiting is nil. If ctx ends, it returns the error of ctx. If the
// system cannot lock files, Lock does not wait. The function unlock is never nil.
func (c *Cache) Lock(ctx context.Context, waiting func()) (unlock func(), err error) {
	nothing := func() {}
	if c == nil {
		return nothing, nil
	}
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		c.addProblem(c.dir, err)
		return nothing, nil
	}
	const pause = 5 * time.Millisecond
	path := filepath.Join(c.dir, "lock")
	for {
		unlock, err := lock(path)
		if err == nil {
			return unlock, nil
		}
		if !errors.Is(err, errBusy) {
			c.addProblem(path, err)
			return nothing, nil
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

// path returns the path of the entry of a key.
func (c *Cache) path(key string) string {
	sum := sha256.Sum256([]byte(key))
	return filepath.Join(c.dir, hex.EncodeToString(sum[:16])+".json")
}

// maxEntry is the maximum size of the file of an entry, in bytes.
const maxEntry = 64 << 10

// entry is the content of the file of an entry.
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
		err = fmt.Errorf("entry of %d bytes, want at most %d", len(b), maxEntry)
	}
	return b, err
}

// read reads the file of an entry.
func read(path string) (key string, value []byte, err error) {
	f, err := regular.OpenNoFollow(path, os.O_RDONLY, 0)
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

// decode decodes the content of a file. It accepts only the output of encode, apart from white
// space.
func decode(b []byte) (key string, value []byte, err error) {
	if len(b) > maxEntry {
		return "", nil, fmt.Errorf("damaged: more than %d bytes", maxEntry)
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
		return "", nil, errors.New("damaged: wrong checksum")
	}
	return e.Key, v.Bytes(), nil
}

func checksum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
