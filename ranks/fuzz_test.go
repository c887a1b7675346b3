package ranks

import (
	"bytes"
	"net"
	"testing"
	"time"
)

// FuzzFrames decodes frames with payloads of all kinds. Decoding must not panic, and encoding
// again must give the same bytes.
func FuzzFrames(f *testing.F) {
	c := Config{Rank: 1, Size: 3, Version: "1"}
	h := c.hello()
	f.Add(frame{kindHello, h.encode()}.append(nil))
	f.Add(frame{kindVerdict, verdict{}.encode()}.append(nil))
	f.Add(frame{kindVerdict, verdict{&Failure{2, codeSecret, "no"}}.encode()}.append(nil))
	f.Add(frame{kindData, (&message{7, 2, "name", []byte("data")}).encode()}.append(nil))
	f.Add(frame{kindFailure, (&Failure{2, codeLost, "gone"}).encode()}.append(nil))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := readFrame(bytes.NewReader(data), maxPayload)
		if err != nil {
			return
		}
		if again := got.append(nil); !bytes.HasPrefix(data, again) {
			t.Errorf("%x becomes %x", data, again)
		}
		p := got.payload
		if h, rest, err := decodeHello(p); err == nil && len(rest) > len(p) {
			t.Errorf("hello %+v with %d bytes left of %d", h, len(rest), len(p))
		}
		if m, err := decodeMessage(p); err == nil {
			if n, err := decodeMessage(m.encode()); err != nil || n.exchange != m.exchange || n.rank != m.rank ||
				!bytes.Equal(n.data, m.data) {
				t.Errorf("message %+v becomes %+v, %v", m, n, err)
			}
		}
		if v, err := decodeVerdict(p); err == nil && v.failure != nil {
			_ = v.failure.Error()
		}
	})
}

// FuzzAdmit sends arbitrary bytes to rank 0, which must end the handshake without accepting.
func FuzzAdmit(f *testing.F) {
	c := Config{Rank: 1, Size: 3, Version: "1"}
	h := c.hello()
	f.Add(frame{kindHello, append(h.encode(), make([]byte, macSize)...)}.append(nil))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		b := newLobby(&Group{config: Config{Size: 3, Secret: []byte("s"), Timeout: time.Second, Version: "1"}})
		mine, theirs := net.Pipe()
		done := make(chan bool)
		go func() {
			done <- b.admit(t.Context(), mine)
			mine.Close()
		}()
		if _, err := readFrame(theirs, maxHello); err != nil {
			t.Fatal(err)
		}
		go func() {
			theirs.Write(data)
			theirs.Close() // so that rank 0 does not wait for more
		}()
		if <-done {
			t.Error("accepted without the secret")
		}
	})
}
