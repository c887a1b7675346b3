package ranks

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"
)

// follow connects to rank 0, as another rank.
func (g *Group) follow(parent context.Context) error {
	ctx, cancel := context.WithTimeout(parent, g.config.Timeout)
	defer cancel()
	mine := g.config.hello()
	conn, answer, err := g.greet(ctx, g.config.Address, mine.encode())
	switch {
	case errors.Is(err, ErrSecret):
		return fmt.Errorf("%w: rank 0 at %s has another one than rank %d", ErrSecret, g.config.Address, g.config.Rank)
	case err != nil && parent.Err() != nil:
		return parent.Err()
	case err != nil:
		return &Failure{0, codeAbsent, fmt.Sprintf("rank 0 did not answer at %s within %v: %v", g.config.Address,
			g.config.Timeout, err)}
	}
	leader, err := leaderOf(answer)
	if err != nil {
		conn.Close()
		return err
	}
	g.watch(newLink(conn, 0, leader.timeout))
	return nil
}

// leaderOf returns the hello of rank 0, or the failure that it has sent instead.
func leaderOf(answer frame) (hello, error) {
	switch answer.kind {
	case kindHello:
		return decodeHello(answer.payload)
	case kindFailure:
		failure, err := decodeFailure(answer.payload)
		if err == nil {
			err = failure
		}
		return hello{}, err
	}
	return hello{}, fmt.Errorf("unexpected message %d of rank 0", answer.kind)
}

// greet connects to a rank, sends a first frame to it and returns the answer. An error may pass,
// such as a refused connection, because a rank may start later. So greet tries again until ctx
// ends, unless the rank has another secret.
func (g *Group) greet(ctx context.Context, address string, first []byte) (*tls.Conn, frame, error) {
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		conn, answer, err := g.greetOnce(ctx, address, first)
		if err == nil || errors.Is(err, ErrSecret) {
			return conn, answer, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, frame{}, err
		}
	}
}

func (g *Group) greetOnce(ctx context.Context, address string, first []byte) (c *tls.Conn, answer frame, err error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, frame{}, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	c, err = g.introduce(conn)
	if err == nil {
		_, err = c.Write(frame{kindHello, first}.append(nil))
	}
	if err == nil {
		answer, err = readFrame(c, maxGreeting)
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		return nil, frame{}, err
	}
	return c, answer, nil
}
