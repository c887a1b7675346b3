// Package cache keeps what was measured on this machine from one process to the next.
//
// An entry is a small value under a key that names everything it depends on: what
// changes has another key, so that nothing is ever stale or deleted. Entries are files
// of their own, written aside and renamed, and read with suspicion: one that is
// damaged, of another version or somebody else's is one that is not there. Nothing
// that goes wrong here is more than a measurement made again.
package cache

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// Variable is the environment variable that names the directory, or says "off".
const Variable = "TILEWORK_CACHE"

// version is of the format of the files, and the directory that they are in.
const version = "v1"

// Cache is a directory of entries. The nil Cache is off: it holds nothing, and keeps
// nothing. Its methods may be called from several goroutines at once.
type Cache struct{ dir string }

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
func At(dir string) *Cache { return &Cache{filepath.Join(dir, version)} }

// Get reads the entry of a key into value, a pointer. It is false if there is none
// that can be read.
func (c *Cache) Get(key string, value any) bool {
	if c == nil {
		return false
	}
	f, err := os.Open(c.path(key))
	if err != nil {
		return false
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxEntry+1))
	return err == nil && decode(b, key, value) == nil
}

// Put keeps a value under a key. The error says why it is not kept.
func (c *Cache) Put(key string, value any) error {
	if c == nil {
		return nil
	}
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
	if c != nil && os.MkdirAll(c.dir, 0o755) == nil {
		defer lock(filepath.Join(c.dir, "lock"), patience)()
	}
	f()
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

// decode reads what encode has written for that key, and nothing else.
func decode(b []byte, key string, value any) error {
	if len(b) > maxEntry {
		return errors.New("too long")
	}
	var e entry
	if err := json.Unmarshal(b, &e); err != nil {
		return err
	}
	var v bytes.Buffer
	if err := json.Compact(&v, e.Value); err != nil {
		return err
	}
	switch {
	case e.Version != version:
		return fmt.Errorf("version %q, want %q", e.Version, version)
	case e.Key != key:
		return fmt.Errorf("the entry of %q", e.Key)
	case e.Sum != checksum(v.Bytes()):
		return errors.New("damaged")
	}
	return json.Unmarshal(v.Bytes(), value)
}

func checksum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
