package ranks

import (
	"context"
	"crypto/hmac"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// lobby is the state of rank 0 while it waits for the others.
type lobby struct {
	*Group
	arrivals chan arrival

	mu    sync.Mutex
	note  string           // about the last connection with another secret
	ranks map[int]net.Addr // those that have joined
}

func newLobby(g *Group) *lobby {
	return &lobby{Group: g, arrivals: make(chan arrival), ranks: map[int]net.Addr{}}
}

// arrival is a rank that knows the secret, with its link or the reason why it was refused.
type arrival struct {
	rank    int
	link    *link
	failure *Failure
}

// maxHandshakes limits the number of connections that have not proved that they know the secret.
const maxHandshakes = 64

// lead waits for the other ranks, as rank 0.
func (g *Group) lead(parent context.Context) error {
	listener := g.config.Listener
	if listener == nil && g.config.Size > 1 {
		var err error
		if listener, err = listen(parent, g.config.Address); err != nil {
			return fmt.Errorf("%w: rank 0 cannot listen: %w", ErrJoin, err)
		}
	}
	if listener == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(parent, g.config.Timeout)
	defer cancel()
	b := newLobby(g)
	var handshakes sync.WaitGroup
	defer handshakes.Wait()
	defer cancel()
	defer listener.Close()
	handshakes.Go(func() {
		acceptAll(ctx, listener, &handshakes, func(conn net.Conn) bool { return b.admit(ctx, conn) })
	})

	seen := map[int]bool{0: true}
	var failure error
	failed := g.failed.Done()
	for len(seen) < g.config.Size { // after a failure too, as the ranks that come later must learn of it
		select {
		case a := <-b.arrivals:
			seen[a.rank] = true
			if a.failure != nil {
				g.end(kindFailure, a.failure.encode(), a.failure)
			} else {
				g.watch(a.link)
			}
		case <-failed:
			failure, failed = g.Err(), nil
		case <-ctx.Done():
			if err := parent.Err(); err != nil {
				return err
			}
			if failure == nil {
				failure = b.absent(seen)
			}
			return failure
		}
	}
	return g.Err()
}

// listen listens on the port of an address: on the loopback interface if the address names it,
// otherwise on all.
func listen(ctx context.Context, address string) (net.Listener, error) {
	host, port, _ := net.SplitHostPort(address) // Config.check has accepted it
	if !isLoopback(host) {
		host = ""
	}
	return new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, port))
}

// acceptAll calls admit for each connection, in a goroutine of handshakes, until ctx ends or the
// listener is closed. After another error, such as too many open files, it tries again. It closes
// the connections for which admit returns false.
func acceptAll(ctx context.Context, listener net.Listener, handshakes *sync.WaitGroup, admit func(net.Conn) bool) {
	places := make(chan struct{}, maxHandshakes)
	for {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return
		}
		conn, err := listener.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			<-places
			time.Sleep(10 * time.Millisecond)
			continue
		}
		handshakes.Go(func() {
			defer func() { <-places }()
			if !admit(conn) {
				conn.Close()
			}
		})
	}
}

// admit performs the handshake with a connection, and reports whether it belongs to a rank of the
// group. Connections that do not know the secret are dropped; a rank that knows it and does not fit
// ends the group.
func (b *lobby) admit(ctx context.Context, conn net.Conn) bool {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	_ = conn.SetDeadline(time.Now().Add(b.config.handshakeTime())) // a closed connection fails below
	mine := b.config.hello()
	sent := mine.encode()
	if _, err := conn.Write(frame{kindHello, sent}.append(nil)); err != nil {
		return false
	}
	f, err := readFrame(conn, maxHello)
	if err != nil || f.kind != kindHello {
		return false
	}
	theirs, proof, err := decodeHello(f.payload)
	if err != nil || len(proof) != macSize {
		return false
	}
	var answer verdict
	body := f.payload[:len(f.payload)-macSize]
	known := hmac.Equal(proof, mac(b.config.Secret, roleRank, sent, body))
	switch {
	case !known:
		answer.failure = &Failure{theirs.rank, codeSecret, ErrSecret.Error()}
		b.mu.Lock()
		b.note = fmt.Sprintf("a connection from %v, as rank %d, had another secret", conn.RemoteAddr(), theirs.rank)
		b.mu.Unlock()
	default:
		answer.failure = b.place(&theirs, &mine, conn.RemoteAddr())
	}
	text := answer.encode()
	text = append(text, mac(b.config.Secret, roleVerdict, sent, f.payload, text)...)
	if _, err := conn.Write(frame{kindVerdict, text}.append(nil)); err != nil && answer.failure == nil {
		answer.failure = &Failure{theirs.rank, codeLost, fmt.Sprintf("connection lost (%v)", err)}
	}
	if !known || !stop() { // if the context has ended, it closes the connection
		return false
	}
	_ = conn.SetDeadline(time.Time{})
	a := arrival{rank: theirs.rank, failure: answer.failure}
	if a.failure == nil {
		a.link = newLink(conn, theirs.rank, theirs.timeout)
	}
	select {
	case b.arrivals <- a:
		return a.link != nil
	case <-ctx.Done():
		return false
	}
}

// place returns the failure of a rank that does not fit into the group, and otherwise records that
// it has joined.
func (b *lobby) place(theirs, mine *hello, from net.Addr) *Failure {
	if f := theirs.compare(mine); f != nil {
		return f
	}
	if f := b.failure(); f != nil {
		return f
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if first, taken := b.ranks[theirs.rank]; taken {
		return &Failure{theirs.rank, codeDisagree, fmt.Sprintf("%v: rank %d joined twice, from %v and from %v", ErrDisagree,
			theirs.rank, first, from)}
	}
	b.ranks[theirs.rank] = from
	return nil
}

// absent returns the failure of the ranks that have not joined in time.
func (b *lobby) absent(seen map[int]bool) *Failure {
	b.mu.Lock()
	defer b.mu.Unlock()
	var missing []int
	for r := range b.config.Size {
		if !seen[r] {
			missing = append(missing, r)
		}
	}
	f := &Failure{missing[0], codeAbsent, fmt.Sprintf("%s of %d did not join within %v", ranksText(missing),
		b.config.Size, b.config.Timeout)}
	if b.note != "" {
		f.code, f.text = codeSecret, f.text+"; "+b.note
	}
	return f
}
