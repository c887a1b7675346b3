//go:build unix

package main

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/matio"
)

// TestInputChanged changes an input while mul computes. If the file is written to or truncated in
// place, mul must name it and fail without output. If another file replaces it under its name, mul
// must return the product of the old file.
func TestInputChanged(t *testing.T) {
	t.Chdir(t.TempDir())
	replaceFile := func() error {
		one := gemm.Dense(dtype.F32, 1, 1)
		return matio.Write(t.Context(), "a.npy", one, make([]byte, one.Bytes()), true)
	}
	rewrite := func() error {
		file, err := os.OpenFile("a.npy", os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = file.WriteAt(make([]byte, 100_000), 4096)
		return errors.Join(err, file.Close())
	}
	for _, device := range []struct {
		args string
		rows int
		env  string
	}{{"--kernel loop --threads 1", 700, ""}, {"--device emu --kernel naive", 320, ""},
		{"--device emu --kernel naive --gpu-memory 200KB", 320, mapsFiles + "=1"}} {
		for _, c := range []struct {
			name   string
			change func() error
			code   int
			text   string
		}{
			{"truncated", func() error { return os.Truncate("a.npy", 5) }, 2,
				"tilework: a.npy: changed while it was used: size was "},
			{"rewritten", rewrite, 2, "tilework: a.npy: changed while it was used: modified at "},
			{"replaced", replaceFile, 0, "computed in"},
		} {
			if err := errors.Join(os.RemoveAll("c.npy"), os.RemoveAll("a.npy")); err != nil {
				t.Fatal(err)
			}
			matrixFile(t, "a.npy", device.rows, device.rows)
			cmd, stdout, _ := process("mul a.npy a.npy -o c.npy --verbose "+device.args, device.env)
			var stderr lockedBuffer
			cmd.Stderr = &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			for !strings.Contains(stderr.String(), "kernel") { // printed before the product starts
				time.Sleep(time.Millisecond)
			}
			if err := c.change(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			text := stderr.String()
			if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.Contains(text, c.text) ||
				strings.Contains(text, "goroutine") {
				t.Errorf("%s, %s: exit code %d, %q, %.500q; want %d and %q",
					device.args, c.name, code, stdout, text, c.code, c.text)
			}
			_, err := os.Stat("c.npy")
			if written := err == nil; written != (c.code == 0) {
				t.Errorf("%s, %s: c.npy exists: %v", device.args, c.name, written)
			}
		}
		var want float64
		for k := range device.rows {
			want += float64(k%11) / 7 * float64(k*device.rows%11) / 7
		}
		if got := element(t, "c.npy")(0, 0); got < want*(1-1e-4) || got > want*(1+1e-4) {
			t.Errorf("%s: element (0, 0) is %v, want %v", device.args, got, want)
		}
	}
}
