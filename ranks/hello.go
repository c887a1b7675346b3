package ranks

import (
	"fmt"
	"math"
	"time"

	"tilework/internal/phrase"
)

// A rank joins with its hello. Rank 0 answers with its own one, or with the failure of the rank.
// The formats of these two do not change between versions of the protocol.

// protocol is the version of the later messages.
const protocol = 2

// hello introduces a rank.
type hello struct {
	protocol uint32
	version  string // of tilework
	rank     int
	size     int
	timeout  time.Duration // of the rank, which needs signs of life more often
}

func (c *Config) hello() hello { return hello{protocol, c.Version, c.Rank, c.Size, c.Timeout} }

func (h *hello) encode() []byte {
	var e encoder
	e.uint32(h.protocol)
	e.text(h.version)
	e.uint32(uint32(h.rank))
	e.uint32(uint32(h.size))
	e.uint32(uint32(min(h.timeout.Milliseconds(), math.MaxUint32)))
	return e
}

func decodeHello(payload []byte) (hello, error) {
	d := decoder{rest: payload}
	h := hello{d.uint32(), d.text(), int(d.uint32()), int(d.uint32()), time.Duration(d.uint32()) * time.Millisecond}
	if d.short || h.rank >= MaxSize || h.size > MaxSize {
		return h, fmt.Errorf("malformed hello of %d bytes", len(payload))
	}
	return h, nil
}

// String describes the version of a rank.
func (h *hello) String() string {
	return fmt.Sprintf("rank %d has tilework %s, protocol %d", h.rank, phrase.Printable(h.version, maxVersion), h.protocol)
}

// maxVersion is the maximum number of bytes of a version in a message.
const maxVersion = 40

// compare returns the failure of a rank whose hello does not match that of rank 0.
func (h *hello) compare(leader *hello) *Failure {
	f := &Failure{Rank: h.rank, code: codeDisagree}
	switch {
	case h.protocol != leader.protocol || h.version != leader.version:
		f.text = fmt.Sprintf("%v: %v and %v", ErrDisagree, leader, h)
	case h.size != leader.size:
		f.text = fmt.Sprintf("%v: rank 0 is one of %d ranks and rank %d one of %d", ErrDisagree, leader.size, h.rank, h.size)
	case h.rank == 0 || h.rank >= leader.size:
		f.text = fmt.Sprintf("%v: rank %d joined rank 0 of %d, want ranks 1 to %d", ErrDisagree, h.rank, leader.size,
			leader.size-1)
	default:
		return nil
	}
	return f
}
