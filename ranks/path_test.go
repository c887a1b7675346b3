package ranks

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// path passes a connection on between two ranks, like a router between their hosts.
type path struct {
	mu      sync.Mutex
	seen    []byte // the data of both directions
	tampers bool   // whether the last bit of each piece of data is changed
}

// open returns the address of a listener whose connections lead to address.
func (p *path) open(t *testing.T, address string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var passing sync.WaitGroup
	t.Cleanup(passing.Wait)
	t.Cleanup(func() { listener.Close() })
	passing.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", address)
			if err != nil {
				from.Close()
				continue
			}
			passing.Go(func() { p.pass(to, from) })
			passing.Go(func() { p.pass(from, to) })
		}
	})
	return listener.Addr().String()
}

// pass passes data in one direction.
func (p *path) pass(to, from net.Conn) {
	defer to.Close()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		p.mu.Lock()
		p.seen = append(p.seen, b[:n]...)
		if p.tampers {
			b[n-1] ^= 1
		}
		p.mu.Unlock()
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}

// TestPath checks that a router between the hosts can neither read nor change the messages of
// ranks.
func TestPath(t *testing.T) {
	all := configs(t, 2)
	p := &path{}
	all[1].Address = p.open(t, all[0].Address)
	groups, errs := joinAll(t, all)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	text := []byte("contents of the matrix")
	gather := func(g *Group) error {
		got, err := g.Gather(t.Context(), "the name of the exchange", text)
		if err == nil && !bytes.Equal(got[1-g.Rank()], text) {
			t.Errorf("rank %d got %q", g.Rank(), got)
		}
		return err
	}
	if err := errors.Join(each(groups, gather)...); err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	for _, secret := range []string{string(text), testSecret, "the name of the exchange", groups[0].ID()} {
		if bytes.Contains(p.seen, []byte(secret)) {
			t.Errorf("%q passes in the clear", secret)
		}
	}
	if !bytes.Contains(p.seen, []byte(preface)) {
		t.Error("no connection was seen")
	}
	p.tampers = true
	p.mu.Unlock()
	for r, err := range each(groups, gather) {
		if !errors.Is(err, ErrRank) || !strings.Contains(err.Error(), "connection lost") {
			t.Errorf("rank %d: error %v after a changed bit", r, err)
		}
	}
}

// TestConnectPath changes a bit of the data between two ranks, which must be an error of the
// reader.
func TestConnectPath(t *testing.T) {
	groups := group(t, 2, time.Minute)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &path{}
	address := p.open(t, listener.Addr().String())
	meshes := []*mesh{newMesh(groups[0]), newMesh(groups[1])}
	for r, err := range each(groups, func(g *Group) error {
		if g.Rank() == 0 {
			return meshes[0].accept(t.Context(), listener)
		}
		return meshes[1].dial(t.Context(), 0, address)
	}) {
		if err != nil {
			t.Fatalf("rank %d: %v", r, err)
		}
	}
	defer meshes[0].close()
	defer meshes[1].close()
	text := []byte("elements")
	got := make([]byte, len(text))
	for _, tampers := range []bool{false, true} {
		p.mu.Lock()
		p.tampers = tampers
		p.mu.Unlock()
		if _, err := meshes[1].all[0].Write(text); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(meshes[0].all[1], got); (err == nil) == tampers || err == nil && !bytes.Equal(got, text) {
			t.Errorf("tampers %v: got %q, error %v", tampers, got, err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if bytes.Contains(p.seen, text) {
		t.Error("data passes in the clear")
	}
}
