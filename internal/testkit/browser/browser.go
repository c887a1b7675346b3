// Package browser drives Chromium in tests through the DevTools protocol. It needs no other
// program: Chromium reads commands from a pipe and answers on another (--remote-debugging-pipe).
package browser

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"tilework/internal/testkit"
)

// Path returns the path of Chromium or Chrome. It skips t unless [testkit.Full]. Without a browser
// it also skips t, or fails t if TILEWORK_REQUIRE_BROWSER is set.
func Path(t testing.TB) string {
	t.Helper()
	skipUnlessFull(t)
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			return p
		}
	}
	const why = "MISSING: no Chromium on this machine, so the page was not tested in a browser"
	if os.Getenv("TILEWORK_REQUIRE_BROWSER") != "" {
		t.Fatal(why)
	}
	t.Skip(why)
	return ""
}

// skipUnlessFull skips a test that starts a browser, which takes many seconds.
func skipUnlessFull(t testing.TB) {
	t.Helper()
	if !testkit.Full() {
		t.Skip("TILEWORK_FULL=1 tests the page in a browser")
	}
}

// Flags returns the flags of a Chromium without a window, network services or a user's settings.
func Flags(t testing.TB) []string {
	return []string{
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--user-data-dir=" + profile(t),
	}
}

// profile returns a folder for the files of a Chromium. The test removes it, in several attempts:
// processes of Chromium can write for some time after the first one has ended.
func profile(t testing.TB) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "tilework-chromium")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		const attempts = 100
		for range attempts {
			if err = os.RemoveAll(folder); err == nil {
				return
			}
			time.Sleep(limit / attempts / 10)
		}
		t.Error(err)
	})
	return folder
}

// Tab is a tab of a running Chromium. Its methods fail the test if Chromium reports an error.
type Tab struct {
	t       testing.TB
	out     *os.File
	session string

	mu      sync.Mutex
	next    int
	waiting map[int]chan message
	said    []string
	closed  error
}

// message is a command, an answer or an event of the protocol.
type message struct {
	ID      int             `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// limit is the longest time for one command, on a slow machine.
const limit = 2 * time.Minute

// Open starts Chromium with an empty tab, until the test ends.
func Open(t testing.TB) *Tab {
	t.Helper()
	return start(t, exec.Command(Path(t), chromiumArgs(t)...))
}

// OpenLimited starts a Chromium whose processes together get a part of one core. It skips t with a
// message where this cannot be limited.
func OpenLimited(t testing.TB, cores float64) *Tab {
	t.Helper()
	return start(t, limited(t, cores, Path(t), chromiumArgs(t)...))
}

func chromiumArgs(t testing.TB) []string { return append(Flags(t), "--remote-debugging-pipe") }

func start(t testing.TB, c *exec.Cmd) *Tab {
	t.Helper()
	theirIn, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	in, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c.ExtraFiles = []*os.File{theirIn, theirOut} // descriptors 3 and 4
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	theirIn.Close()
	theirOut.Close()
	b := &Tab{t: t, out: out, waiting: map[int]chan message{}}
	go b.read(in)
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
		out.Close()
	})
	var target struct {
		ID string `json:"targetId"`
	}
	b.Do("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct {
		Session string `json:"sessionId"`
	}
	b.Do("Target.attachToTarget", map[string]any{"targetId": target.ID, "flatten": true}, &attached)
	b.session = attached.Session
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		b.Do(domain+".enable", nil, nil)
	}
	return b
}

// read receives messages until Chromium ends. Each message ends with a zero byte.
func (b *Tab) read(in io.Reader) {
	r := bufio.NewReader(in)
	for {
		text, err := r.ReadBytes(0)
		var m message
		if err == nil {
			err = json.Unmarshal(text[:len(text)-1], &m)
		}
		b.mu.Lock()
		switch {
		case err != nil:
			b.closed = fmt.Errorf("chromium ended: %w", err)
			for _, c := range b.waiting {
				close(c)
			}
			b.waiting = nil
			b.mu.Unlock()
			return
		case m.ID > 0:
			b.waiting[m.ID] <- m
			delete(b.waiting, m.ID)
		case m.Method == "Runtime.consoleAPICalled", m.Method == "Runtime.exceptionThrown", m.Method == "Log.entryAdded":
			b.said = append(b.said, m.Method+" "+string(m.Params))
		}
		b.mu.Unlock()
	}
}

// Do executes a command of the protocol. A nil result is discarded.
func (b *Tab) Do(method string, params, result any) {
	b.t.Helper()
	if err := b.do(method, params, result); err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
}

func (b *Tab) do(method string, params, result any) error {
	encoded, err := json.Marshal(params)
	if err != nil {
		return err
	}
	answer := make(chan message, 1)
	b.mu.Lock()
	if b.closed != nil {
		b.mu.Unlock()
		return b.closed
	}
	b.next++
	m := message{ID: b.next, Method: method, Session: b.session, Params: encoded}
	b.waiting[m.ID] = answer
	b.mu.Unlock()
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if _, err := b.out.Write(append(text, 0)); err != nil {
		return err
	}
	select {
	case m, ok := <-answer:
		switch {
		case !ok:
			return errors.New("chromium ended")
		case m.Error != nil:
			return errors.New(m.Error.Message)
		case result != nil:
			return json.Unmarshal(m.Result, result)
		}
		return nil
	case <-time.After(limit):
		return fmt.Errorf("no answer within %v", limit)
	}
}

// Size sets the size of the window in pixels, and light or dark mode.
func (b *Tab) Size(width, height int, mode string) {
	b.t.Helper()
	b.Do("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1,
		"mobile": width < 600}, nil)
	b.Do("Emulation.setEmulatedMedia", map[string]any{"features": []any{
		map[string]string{"name": "prefers-color-scheme", "value": mode}}}, nil)
}

// Visit opens an address.
func (b *Tab) Visit(url string) {
	b.t.Helper()
	b.Do("Page.navigate", map[string]string{"url": url}, nil)
}

// Eval evaluates JavaScript, waits if it is a promise, and decodes its value into result, if that
// is not nil.
func (b *Tab) Eval(expression string, result any) {
	b.t.Helper()
	var got struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		Exception *struct {
			Text      string          `json:"text"`
			Exception json.RawMessage `json:"exception"`
		} `json:"exceptionDetails"`
	}
	b.Do("Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true}, &got)
	if e := got.Exception; e != nil {
		b.t.Fatalf("%s: %s %s", expression, e.Text, e.Exception)
	}
	if result != nil {
		if err := json.Unmarshal(got.Result.Value, result); err != nil {
			b.t.Fatalf("%s: %v in %s", expression, err, got.Result.Value)
		}
	}
}

// Wait waits until a condition in JavaScript holds.
func (b *Tab) Wait(condition string) {
	b.t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		var holds bool
		b.Eval("Boolean("+condition+")", &holds)
		if holds {
			return
		}
		if time.Now().After(end) {
			b.t.Fatalf("%s is still false after %v; the console has %v", condition, limit, b.Said())
		}
	}
}

// maxClicks is the number of attempts of Click.
const maxClicks = 5

// Click presses the mouse button on the element with a selector, after scrolling to it. It waits
// until the element can be clicked and stays in its place. If the element moves nevertheless before
// the button is pressed, and so receives no click, Click tries again.
func (b *Tab) Click(selector string) {
	b.t.Helper()
	for range maxClicks {
		b.Wait(fmt.Sprintf(`(() => {
			const e = document.querySelector(%q);
			if (!e || e.disabled) return false;
			e.scrollIntoView({block: "center", behavior: "instant"});
			const r = e.getBoundingClientRect(), old = window.placeToClick;
			window.placeToClick = {X: r.left + r.width / 2, Y: r.top + r.height / 2};
			if (old?.X !== window.placeToClick.X || old.Y !== window.placeToClick.Y) return false;
			window.clicked = false;
			e.addEventListener("click", () => window.clicked = true, {capture: true, once: true});
			return true;
		})()`, selector))
		var at struct{ X, Y float64 }
		b.Eval("(() => { const at = window.placeToClick; delete window.placeToClick; return at; })()", &at)
		for _, kind := range []string{"mousePressed", "mouseReleased"} {
			b.Do("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": at.X, "y": at.Y, "button": "left",
				"clickCount": 1}, nil)
		}
		clicked := false
		b.Eval("window.clicked", &clicked)
		if clicked {
			return
		}
	}
	b.t.Fatalf("%s received no click in %d attempts", selector, maxClicks)
}

// Choose selects a file in the file input with a selector.
func (b *Tab) Choose(selector, file string) {
	b.t.Helper()
	var found struct {
		Result struct {
			ID string `json:"objectId"`
		} `json:"result"`
	}
	b.Do("Runtime.evaluate", map[string]any{"expression": fmt.Sprintf("document.querySelector(%q)", selector)}, &found)
	b.Do("DOM.setFileInputFiles", map[string]any{"files": []string{file}, "objectId": found.Result.ID}, nil)
}

// Press presses a key, such as "ArrowRight" or "Tab".
func (b *Tab) Press(key string) {
	b.t.Helper()
	codes := map[string]int{"Tab": 9, "Enter": 13, " ": 32, "PageUp": 33, "PageDown": 34, "End": 35, "Home": 36,
		"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
	params := map[string]any{"type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
	if key == " " {
		params["text"], params["code"] = " ", "Space"
	}
	b.Do("Input.dispatchKeyEvent", params, nil)
	params["type"] = "keyUp"
	delete(params, "text")
	b.Do("Input.dispatchKeyEvent", params, nil)
}

// Said returns the messages of the console, uncaught exceptions and failed requests so far.
func (b *Tab) Said() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.said)
}
