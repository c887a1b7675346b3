package ranks

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Connect returns a connection to each other rank, by rank, for data of any size and form. The
// entry of this rank is nil. All ranks call it at the same time. The ranks prove that they know the
// secret, as in [Join]; the connections are not encrypted. They are closed when the group ends.
//
// The errors are those of [Group.Gather]. After an error the group has ended.
func (g *Group) Connect(ctx context.Context) ([]io.ReadWriteCloser, error) {
	m := &mesh{Group: g, all: make([]io.ReadWriteCloser, g.config.Size)}
	if err := m.connect(ctx); err != nil {
		m.close()
		g.Fail(err)
		return nil, g.Err()
	}
	return m.all, nil
}

// mesh is the state of Connect.
type mesh struct {
	*Group
	mu  sync.Mutex
	all []io.ReadWriteCloser // by rank
}

// connection is a connection that ends with its group.
type connection struct {
	net.Conn
	stop func() bool // stops waiting for the end of the group
}

// Close implements [io.Closer].
func (c *connection) Close() error {
	c.stop()
	return c.Conn.Close()
}

// add adds the connection to a rank and reports whether it is the first one.
func (m *mesh) add(rank int, conn net.Conn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all[rank] != nil {
		return false
	}
	_ = conn.SetDeadline(time.Time{}) // an error also ends the first use
	m.all[rank] = &connection{conn, context.AfterFunc(m.failed, func() { conn.Close() })}
	return true
}

func (m *mesh) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.all {
		if c != nil {
			c.Close()
		}
	}
}

// connect connects to the lower ranks, and waits for the higher ones.
func (m *mesh) connect(parent context.Context) error {
	if m.config.Size == 1 {
		return nil
	}
	ctx, stop := m.Context(parent)
	defer stop()
	host, _, _ := net.SplitHostPort(m.config.Address) // Config.check has accepted it
	if m.config.Rank > 0 {
		host, _, _ = net.SplitHostPort(m.links[0].conn.LocalAddr().String())
	}
	listener, err := listen(ctx, net.JoinHostPort(host, "0"))
	if err != nil {
		return fmt.Errorf("%w: rank %d cannot listen: %w", ErrJoin, m.config.Rank, err)
	}
	defer listener.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	addresses, err := m.Gather(ctx, "the addresses of connections", []byte(net.JoinHostPort(host, port)))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, m.config.Timeout)
	defer cancel()
	var wait sync.WaitGroup
	errs := make(chan error, m.config.Size)
	wait.Go(func() { errs <- m.accept(ctx, listener) })
	for rank := range m.config.Rank {
		wait.Go(func() { errs <- m.dial(ctx, rank, string(addresses[rank])) })
	}
	for range m.config.Rank + 1 {
		if e := <-errs; e != nil && err == nil {
			err = e
			cancel()
		}
	}
	wait.Wait()
	switch {
	case err == nil:
		return nil
	case parent.Err() != nil:
		return parent.Err()
	case m.Err() != nil:
		return m.Err()
	}
	return err
}

// dial connects to a lower rank.
func (m *mesh) dial(ctx context.Context, rank int, address string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return &Failure{rank, codeLost, fmt.Sprintf("no connection from rank %d: %v", m.config.Rank, err)}
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	err = m.introduce(conn, rank)
	if stop() && err == nil && m.add(rank, conn) {
		return nil
	}
	conn.Close()
	return &Failure{rank, codeLost, fmt.Sprintf("no connection from rank %d at %s: %v", m.config.Rank, address, err)}
}

// A connection begins with three frames. The lower rank sends a challenge. The higher one answers
// with its number, a challenge and a proof that it has the secret, and the lower one with a proof.
// The proofs are bound to the group and the two ranks.

const (
	roleHigher = "higher rank"
	roleLower  = "lower rank"
)

// proof returns the proof of the side with the given role, for the connection between two ranks.
func (m *mesh) proof(role string, lower, higher int, parts ...[]byte) []byte {
	var between encoder
	between.uint32(uint32(lower))
	between.uint32(uint32(higher))
	return mac(m.config.Secret, role, append(parts, []byte(m.id), between)...)
}

// introduce performs the handshake with a lower rank.
func (m *mesh) introduce(conn net.Conn, rank int) error {
	_ = conn.SetDeadline(time.Now().Add(m.config.handshakeTime())) // a closed connection fails below
	f, err := readFrame(conn, macSize)
	if err != nil {
		return err
	}
	var e encoder
	e.uint32(uint32(m.config.Rank))
	e.tail(newChallenge())
	mine := append(e, m.proof(roleHigher, rank, m.config.Rank, f.payload, e)...)
	if _, err := conn.Write(frame{kindHello, mine}.append(nil)); err != nil {
		return err
	}
	answer, err := readFrame(conn, macSize)
	if err == nil && !hmac.Equal(answer.payload, m.proof(roleLower, rank, m.config.Rank, f.payload, mine)) {
		err = ErrSecret
	}
	return err
}

// accept waits for the connections of all higher ranks. Other connections are dropped.
func (m *mesh) accept(parent context.Context, listener net.Listener) error {
	var handshakes sync.WaitGroup
	defer handshakes.Wait()
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	joined := make(chan int)
	handshakes.Go(func() {
		acceptAll(ctx, listener, &handshakes, func(conn net.Conn) bool { return m.join(ctx, conn, joined) })
	})
	defer listener.Close()
	for left := m.config.Size - 1 - m.config.Rank; left > 0; left-- {
		select {
		case <-joined:
		case <-ctx.Done():
			return &Failure{m.missing(), codeLost, fmt.Sprintf("no connection to rank %d within %v", m.config.Rank,
				m.config.Timeout)}
		}
	}
	return nil
}

// missing returns the lowest higher rank that has not connected.
func (m *mesh) missing() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	for rank := m.config.Rank + 1; rank < m.config.Size; rank++ {
		if m.all[rank] == nil {
			return rank
		}
	}
	return m.config.Rank
}

// join performs the handshake with a connection, and reports whether it belongs to a higher rank.
// It sends the rank to joined.
func (m *mesh) join(ctx context.Context, conn net.Conn, joined chan<- int) bool {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	rank, ok := m.admit(conn)
	if !stop() || !ok || !m.add(rank, conn) {
		return false
	}
	select {
	case joined <- rank:
	case <-ctx.Done():
	}
	return true
}

// admit performs the handshake with a higher rank.
func (m *mesh) admit(conn net.Conn) (rank int, ok bool) {
	_ = conn.SetDeadline(time.Now().Add(m.config.handshakeTime())) // a closed connection fails below
	challenge := newChallenge()
	if _, err := conn.Write(frame{kindHello, challenge}.append(nil)); err != nil {
		return 0, false
	}
	const size = 4 + 2*macSize
	f, err := readFrame(conn, size)
	if err != nil || len(f.payload) != size {
		return 0, false
	}
	rank = int(binary.BigEndian.Uint32(f.payload))
	if rank <= m.config.Rank || rank >= m.config.Size {
		return 0, false
	}
	body, proof := f.payload[:size-macSize], f.payload[size-macSize:]
	if !hmac.Equal(proof, m.proof(roleHigher, m.config.Rank, rank, challenge, body)) {
		return 0, false
	}
	answer := m.proof(roleLower, m.config.Rank, rank, challenge, f.payload)
	_, err = conn.Write(frame{kindVerdict, answer}.append(nil))
	return rank, err == nil
}

// newChallenge returns random bytes.
func newChallenge() []byte {
	b := make([]byte, macSize)
	rand.Read(b)
	return b
}
