package ranks

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"
)

// hostile is a text with an escape sequence and line ends, longer than any message should be.
var hostile = "\x1b]0;title\a\r\n\x9b31m\u202e" + strings.Repeat("x", MaxData/2)

// checkText checks that a message is one line, without control characters and of a readable length.
func checkText(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil {
		t.Fatalf("%s: no error", what)
	}
	text := err.Error()
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) || len(text) > 2000 {
		t.Errorf("%s: %d bytes: %.300q", what, len(text), text)
	}
}

// TestHostileTexts sends hostile texts in all messages of a rank. The errors of the others must be
// printable.
func TestHostileTexts(t *testing.T) {
	for name, send := range map[string]func(g *Group) error{
		"failure": func(g *Group) error { g.Fail(errors.New(hostile)); return g.Err() },
		"value":   func(g *Group) error { return g.Agree(t.Context(), [2]string{"x", hostile}) },
		"name":    func(g *Group) error { return g.Agree(t.Context(), [2]string{hostile, "1"}) },
		"exchange": func(g *Group) error {
			_, err := g.Gather(t.Context(), hostile, nil)
			return err
		},
		"values": func(g *Group) error {
			_, err := g.Gather(t.Context(), "an agreement", []byte(hostile))
			return err
		},
		"malformed failure": func(g *Group) error {
			_ = g.links[0].write(time.Second, frame{kindFailure, []byte(hostile[:maxText+100])})
			return nil
		},
	} {
		groups := group(t, 2, time.Minute)
		for r, err := range each(groups, func(g *Group) error {
			if g.Rank() == 1 {
				return send(g)
			}
			return g.Agree(t.Context(), [2]string{"x", "1"})
		}) {
			if r == 0 {
				checkText(t, name, err)
			}
		}
	}
	h := hello{protocol: 1, version: hostile[:255], rank: 1, size: 2}
	decoded, err := decodeHello(h.encode())
	if err != nil {
		t.Fatal(err)
	}
	checkText(t, "version", decoded.compare(&hello{protocol: 1, version: "1", size: 2}))
	m := newMesh(newTestGroup(t, Config{Rank: 1, Size: 2, Timeout: time.Second}))
	ended, cancel := context.WithCancel(t.Context())
	cancel() // so that the rank tries once
	checkText(t, "address", m.dial(ended, 0, hostile))
}

// TestManyValues checks the error for more different values than a message can state.
func TestManyValues(t *testing.T) {
	var lists [][][2]string
	for r := range 1000 {
		lists = append(lists, [][2]string{{"x", fmt.Sprint(r, hostile[:1000])}})
	}
	err := difference(lists)
	checkText(t, "1000 values", err)
	if want := "; the others have 996 more values"; !strings.HasSuffix(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
}

// TestDifferenceIsLinear compares lists of more values than messages hold, which would take minutes
// if each was looked up in the whole list.
func TestDifferenceIsLinear(t *testing.T) {
	lists := make([][][2]string, 2)
	for i := range 300_000 {
		v := [2]string{fmt.Sprint(i), "1"}
		lists[0], lists[1] = append(lists[0], v), append(lists[1], v)
	}
	if err := difference(lists); err != nil {
		t.Error(err)
	}
	lists[1][len(lists[1])-1][1] = "2"
	if err := difference(lists); err == nil || err.Error() != "ranks disagree on 299999: rank 0 has 1; rank 1 has 2" {
		t.Errorf("error %v", err)
	}
}

// TestGroupName lets rank 0 send names of the group with which others would leave the folder of the
// result. The name must be 16 hexadecimal digits.
func TestGroupName(t *testing.T) {
	for _, name := range []string{"/../../../attacker/x", "../../up", "", "0123456789abcdef", "a/b"} {
		all := configs(t, 2)
		leader := newTestGroup(t, all[0])
		joined := make(chan error)
		go func() {
			err := leader.lead(t.Context())
			if err == nil {
				_, err = leader.Broadcast(t.Context(), "the name of the group", 0, []byte(name))
			}
			if err == nil && len(name) == idBytes {
				err = leader.findLocalRank(t.Context())
			}
			joined <- errors.Join(err, leader.Close())
		}()
		g, err := Join(t.Context(), all[1])
		want := fmt.Sprintf("ranks disagree: rank 0 sent %d bytes as the name of the group, want 8", len(name))
		switch {
		case len(name) == idBytes:
			if err != nil || g.ID() != "2e2e2f2e2e2f7570" {
				t.Errorf("%q: %v, error %v", name, g, err)
			} else {
				g.Close()
			}
		case !errors.Is(err, ErrDisagree) || err.Error() != want:
			t.Errorf("%q: error %v, want %s", name, err, want)
		}
		if err := <-joined; err != nil {
			t.Errorf("%q: rank 0: %v", name, err)
		}
	}
}
