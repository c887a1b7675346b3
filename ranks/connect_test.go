package ranks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// connectAll connects all ranks.
func connectAll(t *testing.T, groups []*Group) [][]io.ReadWriteCloser {
	t.Helper()
	all := make([][]io.ReadWriteCloser, len(groups))
	if err := errors.Join(each(groups, func(g *Group) (err error) {
		all[g.Rank()], err = g.Connect(t.Context())
		return err
	})...); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestConnect sends data of some megabytes between all pairs of ranks at the same time.
func TestConnect(t *testing.T) {
	for _, n := range []int{1, 2, 4} {
		groups := group(t, n, 10*time.Second)
		all := connectAll(t, groups)
		var wait sync.WaitGroup
		for mine, list := range all {
			for other, c := range list {
				if (c == nil) != (mine == other) {
					t.Fatalf("%d ranks: connection from %d to %d: %v", n, mine, other, c)
				}
				if c == nil {
					continue
				}
				wait.Go(func() {
					if _, err := c.Write(bytes.Repeat([]byte{byte(mine)}, 3<<20)); err != nil {
						t.Error(err)
					}
				})
				wait.Go(func() {
					got := make([]byte, 3<<20)
					if _, err := io.ReadFull(c, got); err != nil || got[0] != byte(other) || got[len(got)-1] != byte(other) {
						t.Errorf("%d ranks: rank %d got %d from %d, error %v", n, mine, got[0], other, err)
					}
				})
			}
		}
		wait.Wait()
		for _, list := range all {
			for _, c := range list {
				if c != nil {
					c.Close()
				}
			}
		}
	}
}

// TestConnectionsEnd checks that connections end with the group.
func TestConnectionsEnd(t *testing.T) {
	groups := group(t, 3, 5*time.Second)
	all := connectAll(t, groups)
	time.AfterFunc(50*time.Millisecond, func() { groups[2].Fail(errors.New("no more memory")) })
	for r, err := range each(groups[:2], func(g *Group) error {
		_, err := io.ReadFull(all[g.Rank()][1-g.Rank()], make([]byte, 1))
		return err
	}) {
		if err == nil {
			t.Errorf("rank %d: read from a group that has failed", r)
		}
		<-groups[r].failed.Done()
		if err := groups[r].Err(); err.Error() != "rank 2 failed: no more memory" {
			t.Errorf("rank %d: error %v", r, err)
		}
	}
}

// TestConnectFails checks the errors of ranks that do not connect: one fails before, one has
// another secret, and one does not answer.
func TestConnectFails(t *testing.T) {
	for name, test := range map[string]struct {
		run  func(g *Group) error
		want string
	}{
		"failed": {func(g *Group) error { g.Fail(errors.New("no more memory")); return g.Err() },
			"rank 1 failed: no more memory"},
		"secret": {func(g *Group) error {
			g.config.Secret = []byte("other")
			_, err := g.Connect(t.Context())
			return err
		}, "rank "},
		"silent": {func(g *Group) error {
			if _, err := g.Gather(t.Context(), "the addresses of connections", []byte("127.0.0.1:9")); err != nil {
				return err
			}
			<-g.failed.Done()
			return g.Err()
		}, "rank 1: no connection "},
	} {
		groups := group(t, 3, time.Second)
		start := time.Now()
		for r, err := range each(groups, func(g *Group) error {
			if g.Rank() == 1 {
				return test.run(g)
			}
			_, err := g.Connect(t.Context())
			return err
		}) {
			if !errors.Is(err, ErrRank) || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("%s: rank %d: error %v, want %s", name, r, err, test.want)
			}
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%s: took %v", name, took)
		}
	}
}

// TestConnectStrangers checks that connections without the secret neither join nor keep the ranks
// from connecting.
func TestConnectStrangers(t *testing.T) {
	groups := group(t, 2, 5*time.Second)
	var strangers []net.Conn
	var connected sync.WaitGroup
	connected.Go(func() {
		// Rank 1 takes part in the exchange of addresses, and then behaves like strangers first.
		addresses, err := groups[1].Gather(t.Context(), "the addresses of connections", []byte("127.0.0.1:9"))
		if err != nil {
			t.Error(err)
			return
		}
		for _, text := range []string{"", "GET / HTTP/1.1\r\n\r\n", strings.Repeat("\xff", 5000),
			string(frame{kindHello, make([]byte, 4+2*macSize)}.append(nil)),
			string(frame{kindHello, append([]byte{0, 0, 0, 1}, make([]byte, 2*macSize)...)}.append(nil))} {
			conn, err := net.Dial("tcp", string(addresses[0]))
			if err != nil {
				t.Error(err)
				return
			}
			strangers = append(strangers, conn)
			fmt.Fprint(conn, text)
		}
		m := &mesh{Group: groups[1], all: make([]io.ReadWriteCloser, 2)}
		if err := m.dial(t.Context(), 0, string(addresses[0])); err != nil {
			t.Error(err)
		}
		t.Cleanup(m.close)
	})
	start := time.Now()
	all, err := groups[0].Connect(t.Context())
	connected.Wait()
	if took := time.Since(start); err != nil || took > 3*time.Second {
		t.Fatalf("error %v after %v", err, took)
	}
	all[1].Close()
	for _, conn := range strangers {
		conn.Close()
	}
}

// TestConnectImpostor checks that a rank does not accept a lower rank that has another secret or
// echoes the rank's own proof.
func TestConnectImpostor(t *testing.T) {
	rank := func(rank int, secret string) *mesh {
		c := Config{Size: 2, Rank: rank, Secret: []byte(secret), Timeout: time.Second}
		return &mesh{Group: &Group{id: "id", config: c}}
	}
	proof := func(secret string) func(challenge, hello []byte) []byte {
		return func(challenge, hello []byte) []byte { return rank(0, secret).proof(roleLower, 0, 1, challenge, hello) }
	}
	for name, c := range map[string]struct {
		answer func(challenge, hello []byte) []byte
		want   error
	}{
		"the secret":     {proof("a"), nil},
		"another secret": {proof("b"), ErrSecret},
		"an echo":        {func(_, hello []byte) []byte { return hello[len(hello)-macSize:] }, ErrSecret},
	} {
		ours, theirs := net.Pipe()
		var server sync.WaitGroup
		server.Go(func() {
			challenge := newChallenge()
			theirs.Write(frame{kindHello, challenge}.append(nil))
			hello, err := readFrame(theirs, 4+2*macSize)
			if err != nil {
				t.Error(err)
			}
			theirs.Write(frame{kindHello, c.answer(challenge, hello.payload)}.append(nil))
		})
		if err := rank(1, "a").introduce(ours, 0); !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", name, err, c.want)
		}
		server.Wait()
		ours.Close()
		theirs.Close()
	}
}

// TestListen checks that a rank listens on all interfaces unless the address is that of the
// loopback interface.
func TestListen(t *testing.T) {
	for address, want := range map[string]bool{"127.0.0.1:0": true, "localhost:0": true, "host.invalid:0": false} {
		l, err := listen(t.Context(), address)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if ip := l.Addr().(*net.TCPAddr).IP; ip.IsLoopback() != want || !want && !ip.IsUnspecified() {
			t.Errorf("%s: listens on %v", address, ip)
		}
	}
}

// faultyListener is a listener whose first calls of Accept fail.
type faultyListener struct {
	net.Listener
	failures int
}

func (l *faultyListener) Accept() (net.Conn, error) {
	if l.failures > 0 {
		l.failures--
		return nil, errors.New("too many open files")
	}
	return l.Listener.Accept()
}

// TestConnectAcceptFails checks that a rank connects although it cannot accept connections at
// first.
func TestConnectAcceptFails(t *testing.T) {
	groups := group(t, 2, 5*time.Second)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for r, err := range each(groups, func(g *Group) error {
		m := &mesh{Group: g, all: make([]io.ReadWriteCloser, 2)}
		t.Cleanup(m.close)
		if g.Rank() == 0 {
			return m.accept(ctx, &faultyListener{listener, 3})
		}
		return m.dial(ctx, 0, listener.Addr().String())
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}
