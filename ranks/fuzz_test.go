package ranks

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// FuzzFrames decodes frames with payloads of all kinds. Decoding must not panic, and encoding
// again must give the same bytes.
func FuzzFrames(f *testing.F) {
	c := Config{Rank: 1, Size: 3, Version: "1"}
	h := c.hello()
	f.Add(frame{kindHello, h.encode()}.append(nil))
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
		if h, err := decodeHello(p); err == nil {
			if again := h.encode(); !bytes.HasPrefix(p, again) {
				t.Errorf("hello %x becomes %x", p, again)
			}
		}
		if m, err := decodeMessage(p); err == nil {
			if n, err := decodeMessage(m.encode()); err != nil || n.exchange != m.exchange || n.rank != m.rank ||
				!bytes.Equal(n.data, m.data) {
				t.Errorf("message %+v becomes %+v, %v", m, n, err)
			}
		}
		if failure, err := decodeFailure(p); err == nil {
			_ = failure.Error()
		}
	})
}

// FuzzAdmit sends arbitrary bytes to rank 0, which must not take them for a proof of the secret.
func FuzzAdmit(f *testing.F) {
	f.Add([]byte(preface + "\x16\x03\x03\x00\x02\x02\x28"))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	g := newTestGroup(f, Config{Size: 3, Secret: []byte(testSecret), Timeout: time.Second, Version: "1"})
	f.Fuzz(func(t *testing.T, data []byte) {
		d := gate{Group: g}
		mine, theirs := net.Pipe()
		var sides sync.WaitGroup
		sides.Go(func() { _, _ = io.Copy(io.Discard, theirs) })
		sides.Go(func() {
			_, _ = theirs.Write(data)
			theirs.Close() // so that rank 0 does not wait for more
		})
		if _, err := d.check(&stranger{Conn: mine}); err == nil {
			t.Error("accepted without the secret")
		}
		mine.Close()
		sides.Wait()
	})
}
