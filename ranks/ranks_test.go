package ranks

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testSecret, otherSecret = "sixteen-bytes-or-more", "another-secret-like-it"

// newTestGroup returns a group that has not joined.
func newTestGroup(t testing.TB, c Config) *Group {
	t.Helper()
	g, err := newGroup(c)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// configs returns the configurations of n ranks that meet on a free port of the loopback interface.
func configs(t *testing.T, n int) []Config {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	all := make([]Config, n)
	for r := range all {
		all[r] = Config{Rank: r, Size: n, Address: listener.Addr().String(), Secret: []byte(testSecret),
			Timeout: time.Minute, Version: "1.2.3"}
	}
	all[0].Listener = listener
	return all
}

// joinAll joins all ranks at the same time. The results are by the order of the configurations.
func joinAll(t *testing.T, all []Config) ([]*Group, []error) {
	groups, errs := make([]*Group, len(all)), make([]error, len(all))
	var wait sync.WaitGroup
	for i, c := range all {
		wait.Go(func() { groups[i], errs[i] = Join(t.Context(), c) })
	}
	wait.Wait()
	return groups, errs
}

// group joins n ranks, which leave at the end of the test.
func group(t *testing.T, n int, timeout time.Duration) []*Group {
	t.Helper()
	all := configs(t, n)
	for r := range all {
		all[r].Timeout = timeout
	}
	groups, errs := joinAll(t, all)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		each(groups, func(g *Group) error { return g.Close() })
	})
	return groups
}

// each calls f for all ranks at the same time and returns the errors.
func each(groups []*Group, f func(*Group) error) []error {
	errs := make([]error, len(groups))
	var all sync.WaitGroup
	for i, g := range groups {
		all.Go(func() { errs[i] = f(g) })
	}
	all.Wait()
	return errs
}

// TestGroup joins groups of several sizes, in which the ranks exchange data of several sizes.
func TestGroup(t *testing.T) {
	for _, n := range []int{1, 2, 4, 9} {
		groups := group(t, n, time.Minute)
		for r, g := range groups {
			if g.Rank() != r || g.Size() != n || g.LocalRank() != r || g.ID() != groups[0].ID() || len(g.ID()) != 16 {
				t.Errorf("%d ranks: rank %d is %d of %d, local rank %d, group %q", n, r, g.Rank(), g.Size(), g.LocalRank(), g.ID())
			}
		}
		errs := each(groups, func(g *Group) error {
			for i, bytes := range []int{0, 1, 1000, MaxData / n} {
				all, err := g.Gather(t.Context(), fmt.Sprintf("step %d", i), slices.Repeat([]byte{byte(g.Rank())}, bytes))
				if err != nil {
					return err
				}
				for r, data := range all {
					if len(data) != bytes || bytes > 0 && data[bytes-1] != byte(r) {
						return fmt.Errorf("rank %d got %d bytes of rank %d, want %d", g.Rank(), len(data), r, bytes)
					}
				}
			}
			got, err := g.Broadcast(t.Context(), "word", n-1, []byte(fmt.Sprint("of ", g.Rank())))
			if want := fmt.Sprint("of ", n-1); err != nil || string(got) != want {
				return fmt.Errorf("rank %d got %q, error %v, want %q", g.Rank(), got, err, want)
			}
			return errors.Join(g.Barrier(t.Context(), "the end"), g.Agree(t.Context(), [2]string{"shape", "3×4"}))
		})
		if err := errors.Join(errs...); err != nil {
			t.Errorf("%d ranks: %v", n, err)
		}
	}
}

// TestDisagree checks the errors of ranks with different values and at different calls.
func TestDisagree(t *testing.T) {
	shapes := []string{"3×4", "3×5", "3×4", "3×4"}
	for r, err := range each(group(t, 4, time.Minute), func(g *Group) error {
		return g.Agree(t.Context(), [2]string{"kind", "a"}, [2]string{"the shape of b.npy", shapes[g.Rank()]})
	}) {
		const want = "ranks disagree on the shape of b.npy: ranks 0, 2 and 3 have 3×4; rank 1 has 3×5"
		if !errors.Is(err, ErrDisagree) || err.Error() != want {
			t.Errorf("rank %d: error %v, want %s", r, err, want)
		}
	}
	for r, err := range each(group(t, 2, time.Minute), func(g *Group) error {
		if g.Rank() == 0 {
			return g.Agree(t.Context(), [2]string{"x", "1"}, [2]string{"--alpha", "2"})
		}
		return g.Agree(t.Context(), [2]string{"x", "1"})
	}) {
		if want := "on --alpha: rank 0 has 2; rank 1 has none"; err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("rank %d: error %v, want %s", r, err, want)
		}
	}
	for r, err := range each(group(t, 3, time.Minute), func(g *Group) error {
		return g.Barrier(t.Context(), []string{"the start", "the start", "the end"}[g.Rank()])
	}) {
		const want = `rank 0 is at "the start" (exchange 3) and rank 2 at "the end" (exchange 3)`
		if !errors.Is(err, ErrDisagree) || !strings.Contains(err.Error(), want) {
			t.Errorf("rank %d: error %v, want %s", r, err, want)
		}
	}
}

// TestFailure ends a rank in several ways while the others wait for it or compute. All others must
// get an error that names it, and their contexts must end.
func TestFailure(t *testing.T) {
	errBroken := errors.New("b.npy: no such file")
	for _, failing := range []int{0, 1, 2} {
		for _, test := range []struct {
			name string
			end  func(g *Group)
			want string
			is   error
		}{
			{"failed", func(g *Group) { g.Fail(errBroken) }, "rank %d failed: b.npy: no such file", ErrRank},
			{"interrupted", func(g *Group) { g.Fail(fmt.Errorf("stop: %w", context.Canceled)) }, "rank %d was interrupted",
				context.Canceled},
			{"mismatch", func(g *Group) { g.Fail(fmt.Errorf("%w: tiles", ErrDisagree)) }, "ranks disagree: tiles", ErrDisagree},
			{"killed", func(g *Group) {
				g.fail(errBroken) // so that it sends nothing
				for _, l := range g.links {
					l.conn.Close()
				}
			}, "rank %d: connection lost", ErrRank},
			{"left", func(g *Group) { g.Close() }, "rank %d: has left, and is needed for the end", ErrRank},
			{"cancelled", func(g *Group) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				defer cancel()
				g.Barrier(ctx, "the end")
			}, "rank %d failed: context deadline exceeded", ErrRank},
		} {
			groups := group(t, 3, time.Minute)
			for r, err := range each(groups, func(g *Group) error {
				if g.Rank() == failing {
					test.end(g)
					return nil
				}
				if g.Rank() == 2-failing/2 && test.name != "left" { // computes
					ctx, stop := g.Context(t.Context())
					defer stop()
					<-ctx.Done()
					if context.Cause(ctx) != g.Err() {
						t.Errorf("context with the cause %v, want %v", context.Cause(ctx), g.Err())
					}
				}
				return g.Barrier(t.Context(), "the end")
			}) {
				if r == failing {
					continue
				}
				want := strings.ReplaceAll(test.want, "%d", fmt.Sprint(failing))
				if err == nil || !strings.HasPrefix(err.Error(), want) || !errors.Is(err, test.is) || !errors.Is(err, ErrRank) {
					t.Errorf("rank %d %s: rank %d: error %v, want %s", failing, test.name, r, err, want)
				}
			}
		}
	}
}

// TestSlow checks that a rank may compute for longer than the timeout of any rank, as it gives
// signs of life.
func TestSlow(t *testing.T) {
	t.Parallel()
	all := configs(t, 4)
	all[0].Timeout, all[1].Timeout = 2*time.Second, time.Hour
	all[2].Timeout, all[3].Timeout = time.Hour, 2*time.Second
	groups, errs := joinAll(t, all)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	errs = each(groups, func(g *Group) error {
		if g.Rank() == 1 {
			time.Sleep(3 * time.Second)
		}
		return errors.Join(g.Barrier(t.Context(), "the end"), g.Close())
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// TestSilent checks that a rank without signs of life, such as one of a host without power, is lost
// after the timeout and not before.
func TestSilent(t *testing.T) {
	t.Parallel()
	all := configs(t, 3)
	for r := range all {
		all[r].Timeout = time.Second
	}
	silent := newTestGroup(t, all[2])
	var conn *tls.Conn
	start := time.Now()
	var wait sync.WaitGroup
	wait.Go(func() {
		var err error
		mine := all[2].hello()
		if conn, _, err = silent.greet(t.Context(), all[2].Address, mine.encode()); err != nil {
			t.Error(err)
		}
	})
	_, errs := joinAll(t, all[:2])
	wait.Wait()
	took := time.Since(start)
	for r, err := range errs {
		const want = "rank 2: no sign of life for 1s"
		if !errors.Is(err, ErrRank) || err.Error() != want {
			t.Errorf("rank %d: error %v, want %s", r, err, want)
		}
	}
	if conn != nil {
		conn.Close()
	}
	if took < time.Second {
		t.Errorf("lost after %v, want at least 1 s", took)
	}
}

// TestRefused checks the errors of groups with a rank that does not fit.
func TestRefused(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(all []Config) []Config
		own    string // the error of the last configuration
		others string // the error of the others
		is     error  // wrapped by both
	}{
		{"secret", func(all []Config) []Config { all[2].Secret = []byte(otherSecret); return all },
			"wrong secret: rank 0 at ADDRESS has another one than rank 2",
			"rank 2 of 3 did not join within 1s; a connection from ADDRESS had another secret", ErrSecret},
		{"empty secret", func(all []Config) []Config { all[2].Secret = nil; return all },
			"wrong secret: rank 0 at ADDRESS has another one than rank 2",
			"rank 2 of 3 did not join within 1s; a connection from ADDRESS had another secret", ErrSecret},
		{"version", func(all []Config) []Config { all[2].Version = "1.3.0"; return all },
			"ranks disagree: rank 0 has tilework 1.2.3, protocol 2 and rank 2 has tilework 1.3.0, protocol 2",
			"ranks disagree: rank 0 has tilework 1.2.3, protocol 2 and rank 2 has tilework 1.3.0, protocol 2", ErrDisagree},
		{"size", func(all []Config) []Config { all[2].Size = 4; return all },
			"ranks disagree: rank 0 is one of 3 ranks and rank 2 one of 4",
			"ranks disagree: rank 0 is one of 3 ranks and rank 2 one of 4", ErrDisagree},
		{"number", func(all []Config) []Config { all[2].Rank, all[2].Size = 3, 4; return all },
			"ranks disagree: rank 0 is one of 3 ranks and rank 3 one of 4",
			"ranks disagree: rank 0 is one of 3 ranks and rank 3 one of 4", ErrDisagree},
		{"absent", func(all []Config) []Config { return all[:2] },
			"rank 2 of 3 did not join within 1s", "rank 2 of 3 did not join within 1s", ErrRank},
		{"alone", func(all []Config) []Config { return all[:1] },
			"ranks 1 and 2 of 3 did not join within 1s", "", ErrRank},
		{"no rank 0", func(all []Config) []Config { all[0].Listener.Close(); return all[1:] },
			"rank 0 did not answer at ADDRESS within 1s: dial tcp ADDRESS: connect: connection refused",
			"rank 0 did not answer at ADDRESS within 1s: dial tcp ADDRESS: connect: connection refused", ErrRank},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			all := configs(t, 3)
			for r := range all {
				all[r].Timeout = time.Second
			}
			all = test.change(all)
			groups, errs := joinAll(t, all)
			for i, err := range errs {
				want := test.others
				if i == len(all)-1 {
					want = test.own
				}
				if groups[i] != nil || !errors.Is(err, test.is) || !matches(err.Error(), want) {
					t.Errorf("rank %d: error %v, want %s", all[i].Rank, err, want)
				}
			}
		})
	}
}

// matches reports whether text is pattern with addresses for ADDRESS.
func matches(text, pattern string) bool {
	for i, part := range strings.Split(pattern, "ADDRESS") {
		if i > 0 {
			text = strings.TrimLeft(text, "0123456789.:")
			part = strings.TrimLeft(part, ":")
		}
		var ok bool
		if text, ok = strings.CutPrefix(text, part); !ok {
			return false
		}
	}
	return text == ""
}

// TestTwice checks that two processes with the same rank end the group.
func TestTwice(t *testing.T) {
	all := configs(t, 3)
	all = []Config{all[0], all[1], all[1]}
	all[0].Timeout = 500 * time.Millisecond // rank 2 never comes
	_, errs := joinAll(t, all)
	const twice = "rank 1 joined twice, from 127.0.0.1:"
	if err := errs[0]; !errors.Is(err, ErrDisagree) || !strings.Contains(err.Error(), twice) {
		t.Errorf("rank 0: error %v", err)
	}
	for _, err := range errs[1:] {
		if !errors.Is(err, ErrDisagree) {
			t.Errorf("rank 1: error %v, want ErrDisagree", err)
		}
	}
	again := configs(t, 2)
	taken := again[0].Listener
	again[0].Listener = nil
	_, err := Join(t.Context(), again[0])
	if !errors.Is(err, ErrJoin) || !strings.Contains(err.Error(), "rank 0 cannot listen") {
		t.Errorf("rank 0 twice: error %v", err)
	}
	taken.Close()
}

// TestCompare checks which hellos rank 0 of 3 accepts.
func TestCompare(t *testing.T) {
	leader := hello{protocol: 1, version: "1", size: 3}
	for _, c := range []struct {
		hello hello
		ok    bool
	}{
		{hello{protocol: 1, version: "1", size: 3, rank: 1}, true},
		{hello{protocol: 1, version: "1", size: 3, rank: 2}, true},
		{hello{protocol: 1, version: "1", size: 3, rank: 3}, false},
		{hello{protocol: 1, version: "1", size: 3, rank: 0}, false},
		{hello{protocol: 1, version: "1", size: 4, rank: 1}, false},
		{hello{protocol: 1, version: "2", size: 3, rank: 1}, false},
		{hello{protocol: 2, version: "1", size: 3, rank: 1}, false},
	} {
		f := c.hello.compare(&leader)
		if (f == nil) != c.ok || f != nil && (f.Rank != c.hello.rank || !errors.Is(f, ErrDisagree)) {
			t.Errorf("%+v: %v, accepted %v", c.hello, f, f == nil)
		}
	}
}

// TestCancelled checks that Join ends with its context.
func TestCancelled(t *testing.T) {
	all := configs(t, 3)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var wait sync.WaitGroup
	for _, c := range all[:2] {
		wait.Go(func() {
			if _, err := Join(ctx, c); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrRank) {
				t.Errorf("rank %d: error %v", c.Rank, err)
			}
		})
	}
	wait.Wait()
}

// TestMalformed checks that a rank that has joined and sends nonsense ends the group.
func TestMalformed(t *testing.T) {
	for name, f := range map[string]frame{
		"kind":      {kind: 99},
		"data":      {kindData, []byte{1}},
		"failure":   {kindFailure, []byte{0, 0, 0, 1, 77}},
		"long":      {kindData, make([]byte, maxPayload+1)},
		"wrong one": {kindData, (&message{3, 0, "the end", nil}).encode()},
	} {
		groups := group(t, 2, time.Minute)
		_ = groups[1].links[0].write(time.Second, f) // fails if rank 0 ends the connection first
		if err := groups[0].Barrier(t.Context(), "the end"); !errors.Is(err, ErrRank) && !errors.Is(err, ErrDisagree) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	groups := group(t, 2, time.Minute)
	if _, err := groups[1].Gather(t.Context(), "too much", make([]byte, MaxData+1)); !errors.Is(err, ErrJoin) {
		t.Errorf("too much data: error %v", err)
	}
}
