package ranks

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"sync"
)

// lobby is the state of rank 0 while it waits for the others.
type lobby struct {
	*Group
	gate     gate
	arrivals chan arrival

	mu    sync.Mutex
	ranks map[int]net.Addr // those that have joined
}

func newLobby(g *Group) *lobby {
	return &lobby{Group: g, gate: gate{Group: g}, arrivals: make(chan arrival), ranks: map[int]net.Addr{}}
}

// arrival is a rank that knows the secret, with its link or the reason why it was refused.
type arrival struct {
	rank    int
	link    *link
	failure *Failure
}

// lead waits for the other ranks, as rank 0.
func (g *Group) lead(parent context.Context) error {
	ctx, cancel := context.WithTimeout(parent, g.config.Timeout)
	defer cancel()
	listener := g.config.Listener
	if listener == nil && g.config.Size > 1 {
		host, port, _ := net.SplitHostPort(g.config.Address) // Config.check has accepted it
		var err error
		if listener, err = listen(ctx, host, port); err != nil {
			return fmt.Errorf("%w: rank 0 cannot listen: %w", ErrJoin, err)
		}
		if at, ok := listener.Addr().(*net.TCPAddr); ok && at.IP.IsUnspecified() {
			g.config.warn("rank 0 listens on all interfaces, as %s is not known as an address of this machine", host)
		}
	}
	if listener == nil {
		return nil
	}
	b := newLobby(g)
	var opened sync.WaitGroup
	defer opened.Wait()
	defer cancel()
	defer listener.Close()
	opened.Go(func() {
		b.gate.open(ctx, listener, func(conn *tls.Conn, stop func() bool) bool { return b.admit(ctx, conn, stop) })
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

// listen listens on the interface with the address host. If no interface of this machine has the
// address, such as that of a router, it listens on all. A name of this machine may stand for a
// loopback address on the machine itself, and for another one elsewhere.
func listen(ctx context.Context, host, port string) (net.Listener, error) {
	if !isLoopback(host) {
		ips, _ := net.DefaultResolver.LookupIPAddr(ctx, host) // none after an error
		own, _ := net.InterfaceAddrs()
		host = ownAddress(ips, own)
	}
	return new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, port))
}

// ownAddress returns the first of ips that other machines can reach and that is among own, or "".
func ownAddress(ips []net.IPAddr, own []net.Addr) string {
	for _, ip := range ips {
		if !ip.IP.IsLoopback() && slices.ContainsFunc(own, func(a net.Addr) bool {
			n, ok := a.(*net.IPNet)
			return ok && n.IP.Equal(ip.IP)
		}) {
			return ip.String()
		}
	}
	return ""
}

// admit greets a process that knows the secret, and reports whether it has joined. One that does
// not fit ends the group.
func (b *lobby) admit(ctx context.Context, conn *tls.Conn, stop func() bool) bool {
	f, err := readFrame(conn, maxGreeting)
	if err != nil || f.kind != kindHello {
		return false
	}
	theirs, err := decodeHello(f.payload)
	if err != nil {
		return false
	}
	mine := b.config.hello()
	answer, failure := frame{kindHello, mine.encode()}, b.place(&theirs, &mine, conn.RemoteAddr())
	if failure != nil {
		answer = frame{kindFailure, failure.encode()}
	}
	if _, err := conn.Write(answer.append(nil)); err != nil && failure == nil {
		failure = &Failure{theirs.rank, codeLost, fmt.Sprintf("connection lost (%v)", err)}
	}
	if !stop() { // the end of the context closes the connection
		return false
	}
	a := arrival{rank: theirs.rank, failure: failure}
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
	var missing []int
	for r := range b.config.Size {
		if !seen[r] {
			missing = append(missing, r)
		}
	}
	note, secret := b.gate.note()
	f := &Failure{missing[0], codeAbsent, fmt.Sprintf("%s of %d did not join within %v%s", ranksText(missing),
		b.config.Size, b.config.Timeout, note)}
	if secret {
		f.code = codeSecret
	}
	return f
}
