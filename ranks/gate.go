package ranks

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"tilework/internal/phrase"
)

const (
	// maxHandshakeTime limits the time that a connection has to prove that it knows the secret.
	maxHandshakeTime = 10 * time.Second
	// maxSilence limits the time until its first bytes.
	maxSilence = 2 * time.Second
	// extraPlaces is the number of strangers for which a gate has places besides those of the ranks.
	extraPlaces = 64
)

func (c *Config) handshakeTime() time.Duration { return min(c.Timeout, maxHandshakeTime) }

// gate lets those connections in that prove that they know the secret. The others are strangers.
// There is a place for each rank and for extraPlaces more strangers. If all are taken, the next
// connection gets the place of the stranger that has been silent for longest, or else of the oldest
// one.
type gate struct {
	*Group

	mu        sync.Mutex
	strangers []*stranger // oldest first
	arrived   int         // the number of connections so far
	proved    int         // the number of those that have proved that they know the secret
	last      net.Addr    // of the last one that failed to
	pretender net.Addr    // of the last one with another secret
}

// stranger is a connection that has not proved that it knows the secret.
type stranger struct {
	net.Conn
	spoke bool // whether its first bytes have come; guarded by gate.mu
}

// open accepts connections until ctx ends or the listener is closed, and calls enter for those that
// know the secret. enter reports whether it keeps the connection, which otherwise is closed; stop
// keeps the end of ctx from closing it, and reports whether ctx has not ended before. open returns
// after the last call.
func (d *gate) open(ctx context.Context, listener net.Listener, enter func(conn *tls.Conn, stop func() bool) bool) {
	var all sync.WaitGroup
	defer all.Wait()
	for {
		conn, err := listener.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(10 * time.Millisecond) // such as too many open files
			continue
		}
		s := d.add(conn)
		all.Go(func() {
			stop := context.AfterFunc(ctx, func() { conn.Close() })
			defer stop()
			secure, err := d.check(s)
			d.remove(s, err)
			if err != nil || !enter(secure, stop) {
				conn.Close()
			}
		})
	}
}

// add gives a connection a place.
func (d *gate) add(conn net.Conn) *stranger {
	s := &stranger{Conn: conn}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.strangers) >= d.config.Size+extraPlaces {
		i := max(slices.IndexFunc(d.strangers, func(s *stranger) bool { return !s.spoke }), 0)
		d.strangers[i].Close()
		d.strangers = slices.Delete(d.strangers, i, i+1)
	}
	d.strangers = append(d.strangers, s)
	d.arrived++
	return s
}

// check waits for the proof of a stranger, and then proves that this rank knows the secret.
func (d *gate) check(s *stranger) (*tls.Conn, error) {
	_ = s.SetDeadline(time.Now().Add(min(d.config.Timeout, maxSilence))) // a closed connection fails below
	first := make([]byte, len(preface))
	if _, err := io.ReadFull(s, first); err != nil {
		return nil, err
	}
	if string(first) != preface {
		return nil, fmt.Errorf("the connection begins with %q: want %q", first, preface)
	}
	d.mu.Lock()
	s.spoke = true
	d.mu.Unlock()
	_ = s.SetDeadline(time.Now().Add(d.config.handshakeTime()))
	secure := tls.Client(s.Conn, d.identity)
	err := secure.Handshake()
	if errors.Is(err, ErrSecret) {
		_, _ = io.CopyN(io.Discard, s, 1<<20) // unread data would cut the alert off
	}
	return secure, err
}

// remove takes the place of a stranger that has proved that it knows the secret, or failed to.
func (d *gate) remove(s *stranger, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.Index(d.strangers, s); i >= 0 { // unless another one has got the place
		d.strangers = slices.Delete(d.strangers, i, i+1)
	}
	switch {
	case err == nil:
		d.proved++
		return
	case errors.Is(err, ErrSecret):
		d.pretender = s.RemoteAddr()
	}
	d.last = s.RemoteAddr()
}

// note describes the strangers for the error of a rank that has not connected. secret reports
// whether one of them had another secret.
func (d *gate) note() (text string, secret bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, last := d.arrived-d.proved, d.last
	if len(d.strangers) > 0 {
		last = d.strangers[len(d.strangers)-1].RemoteAddr()
	}
	switch {
	case d.pretender != nil:
		return fmt.Sprintf("; a connection from %v had another secret", d.pretender), true
	case n > 0:
		all := phrase.Count(n, "connection")
		return fmt.Sprintf("; %s without proof of the secret, the last one from %v", all, last), false
	}
	return "", false
}
