package ranks

import (
	"context"
	"crypto/hmac"
	"errors"
	"fmt"
	"net"
	"time"
)

// follow connects to rank 0, as another rank.
func (g *Group) follow(parent context.Context) error {
	ctx, cancel := context.WithTimeout(parent, g.config.Timeout)
	defer cancel()
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		l, err := g.connect(ctx)
		if err == nil {
			g.watch(l)
			return nil
		}
		if errors.Is(err, ErrSecret) || errors.Is(err, ErrDisagree) || errors.Is(err, ErrRank) {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			if parent.Err() != nil {
				return parent.Err()
			}
			return &Failure{0, codeAbsent, fmt.Sprintf("rank 0 did not answer at %s within %v: %v", g.config.Address,
				g.config.Timeout, err)}
		}
	}
}

// connect connects to rank 0 and performs the handshake. Errors without a sentinel of this package
// may pass, such as a refused connection: rank 0 may start later.
func (g *Group) connect(ctx context.Context) (l *link, err error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", g.config.Address)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer func() {
		if !stop() && err == nil {
			err = ctx.Err()
		}
		if err != nil {
			conn.Close()
		}
	}()
	_ = conn.SetDeadline(time.Now().Add(g.config.handshakeTime())) // a closed connection fails below
	f, err := readFrame(conn, maxHello)
	if err != nil {
		return nil, err
	}
	leader, _, err := decodeHello(f.payload)
	if f.kind != kindHello || err != nil {
		return nil, fmt.Errorf("unexpected message %d: %w", f.kind, err)
	}
	mine := g.config.hello()
	sent := mine.encode()
	sent = append(sent, mac(g.config.Secret, roleRank, f.payload, sent)...)
	if _, err := conn.Write(frame{kindHello, sent}.append(nil)); err != nil {
		return nil, err
	}
	answer, err := readFrame(conn, maxHello+maxText)
	if err != nil {
		return nil, err
	}
	n := len(answer.payload) - macSize
	if answer.kind != kindVerdict || n < 0 {
		return nil, fmt.Errorf("unexpected message %d", answer.kind)
	}
	text, proof := answer.payload[:n], answer.payload[n:]
	if !hmac.Equal(proof, mac(g.config.Secret, roleVerdict, f.payload, sent, text)) {
		return nil, fmt.Errorf("%w: rank 0 at %s has another one than rank %d", ErrSecret, g.config.Address, g.config.Rank)
	}
	v, err := decodeVerdict(text)
	if err != nil {
		return nil, err
	}
	if v.failure != nil {
		return nil, v.failure
	}
	if f := mine.compare(&leader); f != nil {
		return nil, f
	}
	_ = conn.SetDeadline(time.Time{})
	return newLink(conn, 0, leader.timeout), nil
}
