package ranks

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener whose connections are pipes, for a test with a fake clock.
type pipes struct {
	arriving chan net.Conn
	closed   context.Context
	close    context.CancelFunc
}

func newPipes() *pipes {
	closed, close := context.WithCancel(context.Background())
	return &pipes{make(chan net.Conn), closed, close}
}

// Accept implements [net.Listener].
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.arriving:
		return conn, nil
	case <-p.closed.Done():
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (p *pipes) Close() error { p.close(); return nil }

// Addr implements [net.Listener].
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

// peer is the other end of a connection to a gate, which sends text and then nothing.
type peer struct {
	net.Conn
	ended time.Duration // the time for which the gate kept the connection, or 0 before its end
}

// connect connects a stranger, and waits until the gate has read its text.
func (p *pipes) connect(text string) *peer {
	mine, theirs := net.Pipe()
	s := &peer{Conn: mine}
	start := time.Now()
	p.arriving <- theirs
	go func() {
		_, _ = io.WriteString(mine, text)
		_, _ = io.Copy(io.Discard, mine)
		s.ended = max(time.Since(start), 1)
	}()
	synctest.Wait()
	return s
}

// gateTest calls f in a bubble with a fake clock, with a gate of a group of 2 ranks, which allows
// 66 strangers. entered is the number of connections that knew the secret.
func gateTest(t *testing.T, f func(d *gate, p *pipes, entered *int)) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		d := &gate{Group: newTestGroup(t, Config{Size: 2, Secret: []byte(testSecret), Timeout: time.Minute})}
		entered := 0
		ctx, cancel := context.WithCancel(t.Context())
		var opened sync.WaitGroup
		opened.Go(func() {
			d.open(ctx, p, func(*tls.Conn, func() bool) bool { entered++; return false })
		})
		f(d, p, &entered)
		cancel()
		p.Close()
		opened.Wait()
	})
}

// member connects a rank that knows the secret, and reports whether it got in.
func (p *pipes) member(t *testing.T, d *gate) {
	t.Helper()
	mine, theirs := net.Pipe()
	p.arriving <- theirs
	if _, err := d.introduce(mine); err != nil {
		t.Errorf("a rank with the secret: %v", err)
	}
	mine.Close()
	synctest.Wait()
}

// TestPlaces opens many connections that prove nothing, and then that of a rank. The rank must get
// in, and the oldest strangers must be dropped for it and for later ones, first those that are
// silent.
func TestPlaces(t *testing.T) {
	for _, test := range []struct {
		name              string
		talking, more     int    // the numbers of strangers that send the preface, and of those after them
		text              string // of the latter
		talkingGone, gone int    // the numbers of those that are dropped: all together, except for 65
	}{
		{"idle", 0, 1000, "", 0, 935},
		{"half a preface", 0, 128, preface[:5], 0, 63},
		{"half a record", 0, 128, preface + "\x16\x03\x03", 0, 63},
		{"talking, then idle", 10, 1000, "", 0, 945},
		{"talking", 200, 0, "", 135, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			gateTest(t, func(d *gate, p *pipes, entered *int) {
				var talking, more []*peer
				for range test.talking {
					talking = append(talking, p.connect(preface))
				}
				for range test.more {
					more = append(more, p.connect(test.text))
				}
				p.member(t, d)
				if *entered != 1 {
					t.Errorf("%d connections entered, want that of the rank", *entered)
				}
				check := func(name string, all []*peer, gone int) {
					for i, s := range all {
						if (s.ended > 0) != (i < gone) {
							t.Errorf("%s stranger %d of %d: dropped %v, want the oldest %d to be dropped", name, i, len(all),
								s.ended > 0, gone)
							return
						}
					}
				}
				check("talking", talking, test.talkingGone)
				check("other", more, test.gone)
			})
		})
	}
}

// TestSilence checks how long a gate waits for strangers.
func TestSilence(t *testing.T) {
	gateTest(t, func(d *gate, p *pipes, _ *int) {
		for text, want := range map[string]time.Duration{
			"": maxSilence, preface[:5]: maxSilence, preface: maxHandshakeTime, preface + "\x16\x03\x03": maxHandshakeTime,
			"GET / HTTP/1.1\r\n\r\n": 1, // nothing
		} {
			s := p.connect(text)
			time.Sleep(maxHandshakeTime)
			synctest.Wait()
			if s.ended != want {
				t.Errorf("%q: the connection ended after %v, want %v", text, s.ended, want)
			}
		}
		if len(d.strangers) > 0 {
			t.Errorf("%d strangers are left", len(d.strangers))
		}
	})
}

// TestStrangersNamed checks that the error of a group that has not joined counts the strangers.
func TestStrangersNamed(t *testing.T) {
	for n, want := range map[int]string{
		0:    "rank 1 of 2 did not join within 1m0s",
		1:    "rank 1 of 2 did not join within 1m0s; 1 connection without proof of the secret, the last one from pipe",
		1000: "rank 1 of 2 did not join within 1m0s; 1,000 connections without proof of the secret, the last one from pipe",
	} {
		synctest.Test(t, func(t *testing.T) {
			p := newPipes()
			var joining sync.WaitGroup
			joining.Go(func() {
				_, err := Join(t.Context(), Config{Size: 2, Address: "127.0.0.1:1", Secret: []byte(testSecret), Listener: p})
				if !errors.Is(err, ErrRank) || errors.Is(err, ErrSecret) || err.Error() != want {
					t.Errorf("error %v, want %s", err, want)
				}
			})
			for range n {
				p.connect("")
			}
			joining.Wait()
		})
	}
}

// TestStrangers checks that connections without the secret do not keep a group from joining: idle
// ones, garbage, parts of a greeting, and a process with another secret.
func TestStrangers(t *testing.T) {
	all := configs(t, 2)
	pretender := newTestGroup(t, Config{Secret: []byte(otherSecret), Timeout: 5 * time.Second})
	var strangers []net.Conn
	var proofs sync.WaitGroup
	for i, text := range []string{"", "", "", "GET / HTTP/1.1\r\n\r\n", strings.Repeat("\xff", 5000), preface[:3], preface,
		preface + "\x16\x03\x03\x40\x00\x02", preface + strings.Repeat("\x16", 5000), "a proof"} {
		conn, err := net.Dial("tcp", all[0].Address)
		if err != nil {
			t.Fatal(err)
		}
		strangers = append(strangers, conn)
		if text == "a proof" {
			proofs.Go(func() {
				if _, err := pretender.introduce(conn); err == nil {
					t.Error("another secret was accepted")
				}
			})
			continue
		}
		if _, err := io.WriteString(conn, text); err != nil {
			t.Errorf("stranger %d: %v", i, err)
		}
	}
	groups, errs := joinAll(t, all)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	each(groups, func(g *Group) error { return g.Close() })
	proofs.Wait()
	for _, conn := range strangers {
		conn.Close()
	}
}

// recorder keeps the data that is read from a connection.
type recorder struct {
	net.Conn
	read []byte
}

func (r *recorder) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	r.read = append(r.read, b[:n]...)
	return n, err
}

// TestNoAnswer checks that a stranger with another secret gets no answer that depends on the secret
// and thus allows to test guesses of it, but only a hello with random values, and an alert.
func TestNoAnswer(t *testing.T) {
	all := configs(t, 2)
	defer all[0].Listener.Close()
	d := &gate{Group: newTestGroup(t, all[0])}
	checked := make(chan error)
	go func() {
		conn, err := all[0].Listener.Accept()
		if err == nil {
			_, err = d.check(&stranger{Conn: conn})
			conn.Close()
		}
		checked <- err
	}()
	conn, err := net.Dial("tcp", all[0].Address)
	if err != nil {
		t.Fatal(err)
	}
	record := &recorder{Conn: conn}
	pretender := newTestGroup(t, Config{Secret: []byte(otherSecret), Timeout: 5 * time.Second})
	if _, err := pretender.introduce(record); !errors.Is(err, ErrSecret) {
		t.Errorf("the stranger got the error %v, want ErrSecret", err)
	}
	conn.Close()
	if err := <-checked; !errors.Is(err, ErrSecret) {
		t.Errorf("the gate got the error %v, want ErrSecret", err)
	}
	var records []string // the types of RFC 8446, section 5.1, and the lengths of encrypted ones
	for rest := record.read; len(rest) >= 5; {
		n := int(rest[3])<<8 + int(rest[4])
		text := fmt.Sprint(rest[0])
		if rest[0] == 23 {
			text += fmt.Sprintf(" of %d bytes", n)
		}
		records, rest = append(records, text), rest[min(5+n, len(rest)):]
	}
	// A hello, a change of the cipher, and an encrypted alert of 2 bytes, with its type and a tag.
	if got, want := strings.Join(records, ", "), "22, 20, 23 of 19 bytes"; got != want {
		t.Errorf("the stranger got the records %s, want %s", got, want)
	}
}

// TestImpostor checks that a rank does not join a server without the secret, with any answer.
func TestImpostor(t *testing.T) {
	pretender := newTestGroup(t, Config{Secret: []byte(otherSecret), Timeout: time.Second})
	trusting := pretender.identity.Clone()
	trusting.VerifyConnection = nil
	for name, answer := range map[string]func(net.Conn){
		"another program": func(conn net.Conn) { io.WriteString(conn, "SSH-2.0-OpenSSH_9.2\r\n") },
		"another secret":  func(conn net.Conn) { _, _ = (&gate{Group: pretender}).check(&stranger{Conn: conn}) },
		"any secret": func(conn net.Conn) {
			io.CopyN(io.Discard, conn, int64(len(preface)))
			tls.Client(conn, trusting).Handshake()
		},
		"no certificate": func(conn net.Conn) {
			io.CopyN(io.Discard, conn, int64(len(preface)))
			tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).Handshake()
		},
	} {
		all := configs(t, 2)
		all[1].Timeout = 300 * time.Millisecond
		var server sync.WaitGroup
		server.Go(func() {
			for {
				conn, err := all[0].Listener.Accept()
				if err != nil {
					return
				}
				answer(conn)
				io.Copy(io.Discard, conn)
				conn.Close()
			}
		})
		if _, err := Join(t.Context(), all[1]); !errors.Is(err, ErrRank) && !errors.Is(err, ErrSecret) {
			t.Errorf("%s: error %v", name, err)
		}
		all[0].Listener.Close()
		server.Wait()
	}
}
