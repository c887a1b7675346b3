package browser

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Firefox is a running Firefox without a window. It is driven through Marionette, Firefox's own
// protocol, which needs no other program.
type Firefox struct {
	t    testing.TB
	conn net.Conn
	in   *bufio.Reader
	next int
}

// OpenFirefox starts Firefox until the test ends. It skips t without Firefox, and unless
// [testkit.Full].
func OpenFirefox(t testing.TB) *Firefox {
	t.Helper()
	skipUnlessFull(t)
	path, err := exec.LookPath("firefox-esr")
	if err != nil {
		path, err = exec.LookPath("firefox")
	}
	if err != nil {
		t.Skip("MISSING: no Firefox on this machine, so the page was not tested in a second engine")
	}
	folder := profile(t)
	settings := "user_pref(\"marionette.port\", 0);\nuser_pref(\"browser.shell.checkDefaultBrowser\", false);\n"
	if err := os.WriteFile(filepath.Join(folder, "user.js"), []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(path, "--headless", "--no-remote", "--marionette", "--profile", folder)
	c.Env = append(os.Environ(), "HOME="+folder, "MOZ_DISABLE_CONTENT_SANDBOX=1")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
	})
	port := ""
	for end := time.Now().Add(limit); port == "" && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		text, _ := os.ReadFile(filepath.Join(folder, "MarionetteActivePort")) // empty until Firefox listens
		port = strings.TrimSpace(string(text))
	}
	f := &Firefox{t: t}
	if f.conn, err = net.Dial("tcp", net.JoinHostPort("127.0.0.1", port)); err != nil {
		t.Fatalf("Firefox's port %q: %v", port, err)
	}
	t.Cleanup(func() { f.conn.Close() })
	f.in = bufio.NewReader(f.conn)
	if _, err := f.receive(); err != nil { // the greeting
		t.Fatal(err)
	}
	f.do("WebDriver:NewSession", map[string]any{}, nil)
	return f
}

// receive reads a message, which is preceded by its length and a colon.
func (f *Firefox) receive() ([]byte, error) {
	if err := f.conn.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return nil, err
	}
	length, err := f.in.ReadString(':')
	if err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(strings.TrimSuffix(length, ":"))
	if err != nil {
		return nil, err
	}
	text := make([]byte, n)
	_, err = io.ReadFull(f.in, text)
	return text, err
}

// do executes a command and decodes its result into result, if that is not nil.
func (f *Firefox) do(command string, params, result any) {
	f.t.Helper()
	f.next++
	text, err := json.Marshal([]any{0, f.next, command, params})
	if err == nil {
		_, err = fmt.Fprintf(f.conn, "%d:%s", len(text), text)
	}
	if err == nil {
		text, err = f.receive()
	}
	var failed *struct{ Message string }
	var value json.RawMessage
	answer := []any{new(int), new(int), &failed, &value}
	if err == nil {
		err = json.Unmarshal(text, &answer)
	}
	if err == nil && failed != nil {
		err = errors.New(failed.Message)
	}
	if err == nil && result != nil {
		err = json.Unmarshal(value, result)
	}
	if err != nil {
		f.t.Fatalf("Firefox: %s: %v", command, err)
	}
}

// Visit opens an address and waits until it is loaded.
func (f *Firefox) Visit(url string) {
	f.t.Helper()
	f.do("WebDriver:Navigate", map[string]string{"url": url}, nil)
}

// Eval evaluates JavaScript and decodes its value into result.
func (f *Firefox) Eval(expression string, result any) {
	f.t.Helper()
	var got struct {
		Value json.RawMessage `json:"value"`
	}
	f.do("WebDriver:ExecuteScript", map[string]any{"script": "return " + expression, "args": []any{}}, &got)
	if err := json.Unmarshal(got.Value, result); err != nil {
		f.t.Fatalf("Firefox: %s: %v in %s", expression, err, got.Value)
	}
}

// Wait waits until a condition in JavaScript holds.
func (f *Firefox) Wait(condition string) {
	f.t.Helper()
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		var holds bool
		if f.Eval("Boolean("+condition+")", &holds); holds {
			return
		}
	}
	f.t.Fatalf("Firefox: %s is still false after %v", condition, limit)
}
