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
		groups := group(t, n, time.Minute)
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
	groups := group(t, 3, time.Minute)
	all := connectAll(t, groups)
	go groups[2].Fail(errors.New("no more memory"))
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
			g.identity = newTestGroup(t, Config{Secret: []byte(otherSecret)}).identity
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
		timeout := time.Minute
		if name == "silent" {
			timeout = time.Second
		}
		groups := group(t, 3, timeout)
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
	}
}

// TestConnectStrangers checks that connections without the secret neither join nor keep the ranks
// from connecting.
func TestConnectStrangers(t *testing.T) {
	groups := group(t, 2, time.Minute)
	var strangers []net.Conn
	var connected sync.WaitGroup
	connected.Go(func() {
		// Rank 1 takes part in the exchange of addresses, and then behaves like strangers first.
		addresses, err := groups[1].Gather(t.Context(), "the addresses of connections", []byte("127.0.0.1:9"))
		if err != nil {
			t.Error(err)
			return
		}
		for _, text := range []string{"", "GET / HTTP/1.1\r\n\r\n", strings.Repeat("\xff", 5000), preface,
			preface + strings.Repeat("\x16", 5000)} {
			conn, err := net.Dial("tcp", string(addresses[0]))
			if err != nil {
				t.Error(err)
				return
			}
			strangers = append(strangers, conn)
			fmt.Fprint(conn, text)
		}
		m := newMesh(groups[1])
		if err := m.dial(t.Context(), 0, string(addresses[0])); err != nil {
			t.Error(err)
		}
		t.Cleanup(m.close)
	})
	all, err := groups[0].Connect(t.Context())
	connected.Wait()
	if err != nil {
		t.Fatal(err)
	}
	all[1].Close()
	for _, conn := range strangers {
		conn.Close()
	}
}

// TestListen checks that a rank listens on the interface of the address, and on all interfaces only
// if this machine has no such address.
func TestListen(t *testing.T) {
	for host, want := range map[string]func(net.IP) bool{
		"127.0.0.1": net.IP.IsLoopback, "localhost": net.IP.IsLoopback, "192.0.2.1": net.IP.IsUnspecified,
	} {
		l, err := listen(t.Context(), host, "0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if ip := l.Addr().(*net.TCPAddr).IP; !want(ip) {
			t.Errorf("%s: listens on %v", host, ip)
		}
	}
	var own []net.Addr
	for _, text := range []string{"127.0.0.1/8", "10.1.2.3/16", "fe80::1/64"} {
		ip, network, err := net.ParseCIDR(text)
		if err != nil {
			t.Fatal(err)
		}
		own = append(own, &net.IPNet{IP: ip, Mask: network.Mask})
	}
	for resolved, want := range map[string]string{
		"10.1.2.3": "10.1.2.3", "10.1.2.4": "", "127.0.1.1": "", "127.0.0.1": "", "10.9.9.9 10.1.2.3": "10.1.2.3",
		"127.0.1.1 fe80::1": "fe80::1", "": "",
	} {
		var ips []net.IPAddr
		for text := range strings.FieldsSeq(resolved) {
			ips = append(ips, net.IPAddr{IP: net.ParseIP(text)})
		}
		if got := ownAddress(ips, own); got != want {
			t.Errorf("a name of %q: listens on %q, want %q", resolved, got, want)
		}
	}
}

// TestWarnings checks that rank 0 warns of a group without a secret, and of listening on all
// interfaces.
func TestWarnings(t *testing.T) {
	for _, test := range []struct{ host, secret, want string }{
		{"127.0.0.1", "", "every user of this machine can join the ranks, as they have no secret: want one in " +
			"TILEWORK_SECRET or TILEWORK_SECRET_FILE"},
		{"192.0.2.1", testSecret, "rank 0 listens on all interfaces, as 192.0.2.1 is not known as an address of this " +
			"machine"},
		{"127.0.0.1", testSecret, ""},
	} {
		free, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		free.Close()
		_, port, _ := net.SplitHostPort(free.Addr().String())
		ctx, cancel := context.WithCancel(t.Context())
		c := Config{Size: 2, Address: net.JoinHostPort(test.host, port), Secret: []byte(test.secret), Timeout: minTimeout}
		var got []string
		c.Warn = func(text string) { got = append(got, text); cancel() }
		if _, err := Join(ctx, c); err == nil {
			t.Errorf("%s: joined without rank 1", c.Address)
		}
		cancel()
		if strings.Join(got, "; ") != test.want {
			t.Errorf("%s, secret %q: warnings %q, want %q", c.Address, test.secret, got, test.want)
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
	groups := group(t, 2, time.Minute)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for r, err := range each(groups, func(g *Group) error {
		m := newMesh(g)
		t.Cleanup(m.close)
		if g.Rank() == 0 {
			return m.accept(t.Context(), &faultyListener{listener, 3})
		}
		return m.dial(t.Context(), 0, listener.Addr().String())
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}
