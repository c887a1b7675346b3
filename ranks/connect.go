package ranks

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Connect returns a connection to each other rank, by rank, for data of any size and form. The
// entry of this rank is nil. All ranks call it at the same time. The connections are secured like
// those of [Join], and closed when the group ends. Someone between the hosts can cut them, which
// may look like their end: data should begin with its length.
//
// The errors are those of [Group.Gather]. After an error the group has ended.
func (g *Group) Connect(ctx context.Context) ([]io.ReadWriteCloser, error) {
	m := newMesh(g)
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
	gate gate
	mu   sync.Mutex
	all  []io.ReadWriteCloser // by rank
}

func newMesh(g *Group) *mesh {
	return &mesh{Group: g, gate: gate{Group: g}, all: make([]io.ReadWriteCloser, g.config.Size)}
}

// connection is a connection that ends with its group.
type connection struct {
	*tls.Conn
	stop func() bool // stops waiting for the end of the group
}

// Close implements [io.Closer].
func (c *connection) Close() error {
	c.stop()
	return c.Conn.Close()
}

// add adds the connection to a rank and reports whether it is the first one.
func (m *mesh) add(rank int, conn *tls.Conn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all[rank] != nil {
		return false
	}
	_ = conn.SetDeadline(time.Time{}) // an error also ends the first use
	m.all[rank] = &connection{conn, context.AfterFunc(m.failed, func() { conn.NetConn().Close() })}
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
	listener, err := listen(ctx, host, "0")
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
	mine := m.greeting(rank, m.config.Rank)
	conn, answer, err := m.greet(ctx, address, mine)
	if err == nil && !bytes.Equal(answer.payload, mine) {
		conn.Close()
		err = fmt.Errorf("answer % x, want % x", answer.payload, mine)
	}
	if err != nil {
		return &Failure{rank, codeLost, fmt.Sprintf("no connection from rank %d at %s: %v", m.config.Rank, address, err)}
	}
	m.add(rank, conn)
	return nil
}

// greeting returns the data of the first frame of the connection between two ranks. The lower one
// answers with the same data.
func (m *mesh) greeting(lower, higher int) []byte {
	var e encoder
	e.text(m.id)
	e.uint32(uint32(lower))
	e.uint32(uint32(higher))
	return e
}

// accept waits for the connections of all higher ranks. Other connections are dropped.
func (m *mesh) accept(parent context.Context, listener net.Listener) error {
	var opened sync.WaitGroup
	defer opened.Wait()
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	joined := make(chan int)
	opened.Go(func() {
		m.gate.open(ctx, listener, func(conn *tls.Conn, stop func() bool) bool { return m.join(ctx, conn, stop, joined) })
	})
	defer listener.Close()
	for left := m.config.Size - 1 - m.config.Rank; left > 0; left-- {
		select {
		case <-joined:
		case <-ctx.Done():
			note, _ := m.gate.note()
			return &Failure{m.missing(), codeLost, fmt.Sprintf("no connection to rank %d within %v%s", m.config.Rank,
				m.config.Timeout, note)}
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

// join greets a process that knows the secret, and reports whether it is a higher rank of the
// group. It sends the rank to joined.
func (m *mesh) join(ctx context.Context, conn *tls.Conn, stop func() bool, joined chan<- int) bool {
	f, err := readFrame(conn, maxGreeting)
	if err != nil {
		return false
	}
	d := decoder{rest: f.payload}
	_, _, rank := d.text(), d.uint32(), int(d.uint32())
	if !bytes.Equal(f.payload, m.greeting(m.config.Rank, rank)) || rank <= m.config.Rank || rank >= m.config.Size {
		return false
	}
	if _, err := conn.Write(f.append(nil)); err != nil || !stop() || !m.add(rank, conn) {
		return false
	}
	select {
	case joined <- rank:
	case <-ctx.Done():
	}
	return true
}
