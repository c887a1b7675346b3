package ranks

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// kind is the kind of a frame.
type kind uint8

const (
	kindHello   kind = iota + 1 // the first frame of each side
	kindBeat                    // a sign of life
	kindData                    // a [message]
	kindFailure                 // a [Failure]
	kindLeave                   // the sender has left
)

// frame is a unit of transmission: the length of the payload in 4 bytes, most significant first,
// the kind in one, and the payload.
type frame struct {
	kind    kind
	payload []byte
}

const (
	frameHeader = 5
	// maxGreeting is the maximum payload of the first frame of each side.
	maxGreeting = 5 + maxText
	// MaxData is the maximum number of bytes that a rank contributes to an exchange.
	MaxData = 1 << 20
	// maxPayload is the maximum payload of a rank that has joined.
	maxPayload = MaxData + messageHeader
)

// readFrame reads a frame with a payload of at most limit bytes.
func readFrame(r io.Reader, limit int) (frame, error) {
	var header [frameHeader]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return frame{}, err
	}
	n := binary.BigEndian.Uint32(header[:])
	if n > uint32(limit) {
		return frame{}, fmt.Errorf("message of %d bytes, want at most %d", n, limit)
	}
	f := frame{kind(header[4]), make([]byte, n)}
	_, err := io.ReadFull(r, f.payload)
	return f, err
}

// append appends the encoded frame to b.
func (f frame) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(f.payload)))
	return append(append(b, byte(f.kind)), f.payload...)
}

// message is the contribution of a rank to an exchange.
type message struct {
	exchange uint32 // the number of the exchange
	rank     int    // the contributor
	name     string // of the exchange, for errors
	data     []byte
}

const (
	maxName       = 200
	messageHeader = 4 + 4 + 1 + maxName
)

func (m *message) encode() []byte {
	var e encoder
	e.uint32(m.exchange)
	e.uint32(uint32(m.rank))
	e.text(m.name)
	e.tail(m.data)
	return e
}

func decodeMessage(payload []byte) (*message, error) {
	d := decoder{rest: payload}
	m := &message{exchange: d.uint32(), rank: int(d.uint32()), name: d.text(), data: d.tail()}
	if d.short || m.rank >= MaxSize || len(m.data) > MaxData {
		return nil, fmt.Errorf("malformed message of %d bytes", len(payload))
	}
	return m, nil
}

// encoder appends values to a payload.
type encoder []byte

func (e *encoder) uint8(x uint8)   { *e = append(*e, x) }
func (e *encoder) uint32(x uint32) { *e = binary.BigEndian.AppendUint32(*e, x) }
func (e *encoder) tail(x []byte)   { *e = append(*e, x...) }

// text appends a text of at most 255 bytes.
func (e *encoder) text(s string) {
	s = s[:min(len(s), 255)]
	e.uint8(uint8(len(s)))
	*e = append(*e, s...)
}

// decoder takes values off a payload. If the payload is too short, it sets short and returns zeros.
type decoder struct {
	rest  []byte
	short bool
}

func (d *decoder) take(n int) []byte {
	if n > len(d.rest) {
		d.short, d.rest = true, nil
		return make([]byte, n)
	}
	x := d.rest[:n]
	d.rest = d.rest[n:]
	return x
}

func (d *decoder) uint8() uint8   { return d.take(1)[0] }
func (d *decoder) uint32() uint32 { return binary.BigEndian.Uint32(d.take(4)) }
func (d *decoder) text() string   { return string(d.take(int(d.uint8()))) }
func (d *decoder) tail() []byte   { return d.take(len(d.rest)) }

// link is the connection to another rank.
type link struct {
	conn     *tls.Conn
	rank     int
	timeout  time.Duration // of the other rank
	messages chan *message // holds one, so that the reader sees the end of a rank that is ahead
	ended    chan struct{} // closed when nothing more is read
	left     atomic.Bool   // whether the rank has left

	writing  sync.Mutex
	finished bool // whether nothing more is written; guarded by writing
}

func newLink(conn *tls.Conn, rank int, timeout time.Duration) *link {
	return &link{conn: conn, rank: rank, timeout: timeout, messages: make(chan *message, 1), ended: make(chan struct{})}
}

// write sends frames within a time.
func (l *link) write(within time.Duration, frames ...frame) error {
	var b []byte
	for _, f := range frames {
		b = f.append(b)
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	if l.finished {
		return errors.New("this rank has left")
	}
	return l.send(b, within)
}

func (l *link) send(b []byte, within time.Duration) error {
	if err := l.conn.SetWriteDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	_, err := l.conn.Write(b)
	return err
}

// read receives the next frame, within a time unless the link is finished.
func (l *link) read(within time.Duration) (frame, error) {
	l.writing.Lock()
	if !l.finished {
		_ = l.conn.SetReadDeadline(time.Now().Add(within)) // a closed connection fails to read
	}
	l.writing.Unlock()
	return readFrame(l.conn, maxPayload)
}

// finish sends a last frame and waits for the other side to close the connection, both for a short
// time. A write in progress ends first.
func (l *link) finish(k kind, payload []byte) {
	_ = l.conn.SetWriteDeadline(time.Now().Add(grace))
	l.writing.Lock()
	l.finished = true
	_ = l.conn.SetReadDeadline(time.Now().Add(grace))
	if l.send(frame{k, payload}.append(nil), grace) == nil {
		_ = l.conn.CloseWrite() // the other side reads the frame before the end
	}
	l.writing.Unlock()
	<-l.ended
}
