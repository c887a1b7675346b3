package ranks

import (
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"time"
)

// A rank joins with three frames. Rank 0 sends a hello with a random challenge. The rank answers
// with its own hello, which ends with an HMAC of both under the secret. Rank 0 checks it and sends
// a verdict, which ends with another HMAC, so each side knows that the other one has the secret,
// and no recorded message is accepted a second time. The formats of these three do not change
// between versions of the protocol.

// protocol is the version of the messages after the verdict.
const protocol = 1

// magic begins each hello.
const magic = "tilework ranks"

const macSize = sha256.Size

// hello introduces a rank.
type hello struct {
	protocol  uint32
	version   string // of tilework
	rank      int
	size      int
	timeout   time.Duration // of the rank, which needs signs of life more often
	challenge []byte        // macSize random bytes
}

func (c *Config) hello() hello {
	return hello{protocol, c.Version, c.Rank, c.Size, c.Timeout, newChallenge()}
}

func (h *hello) encode() []byte {
	var e encoder
	e.text(magic)
	e.uint32(h.protocol)
	e.text(h.version)
	e.uint32(uint32(h.rank))
	e.uint32(uint32(h.size))
	e.uint32(uint32(min(h.timeout.Milliseconds(), math.MaxUint32)))
	e.tail(h.challenge)
	return e
}

// decodeHello decodes a hello. rest is the part of the payload after it.
func decodeHello(payload []byte) (h hello, rest []byte, err error) {
	d := decoder{rest: payload}
	if d.text() != magic {
		return h, nil, errors.New("the other side is not tilework")
	}
	h = hello{d.uint32(), printable(d.text()), int(d.uint32()), int(d.uint32()),
		time.Duration(d.uint32()) * time.Millisecond, d.take(macSize)}
	if d.short || h.rank >= MaxSize || h.size > MaxSize {
		return h, nil, fmt.Errorf("malformed hello of %d bytes", len(payload))
	}
	return h, d.rest, nil
}

// String describes the version of a rank.
func (h *hello) String() string {
	return fmt.Sprintf("rank %d has tilework %s, protocol %d", h.rank, h.version, h.protocol)
}

// mac returns the proof of the side that has the given role.
func mac(secret []byte, role string, parts ...[]byte) []byte {
	m := hmac.New(sha256.New, secret)
	m.Write([]byte(role))
	for _, p := range parts {
		var e encoder
		e.uint32(uint32(len(p)))
		m.Write(append(e, p...))
	}
	return m.Sum(nil)
}

// The roles of the two sides.
const (
	roleRank    = "rank"
	roleVerdict = "verdict"
)

// verdict is the answer of rank 0 to a hello. A nil failure accepts the rank.
type verdict struct{ failure *Failure }

func (v verdict) encode() []byte {
	if v.failure == nil {
		return []byte{0}
	}
	return append([]byte{1}, v.failure.encode()...)
}

func decodeVerdict(payload []byte) (verdict, error) {
	d := decoder{rest: payload}
	if d.uint8() == 0 && !d.short && len(d.rest) == 0 {
		return verdict{}, nil
	}
	f, err := decodeFailure(d.rest)
	return verdict{f}, err
}

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
