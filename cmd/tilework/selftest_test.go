package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"tilework/dtype"
	"tilework/gemmtest"
	"tilework/internal/backend"
	"tilework/internal/device"
	"tilework/internal/device/emu"
	"tilework/internal/gpu"
	"tilework/internal/gpu/gputest"
	"tilework/internal/gpu/stream"
	"tilework/internal/testkit"
)

func TestSelftestPasses(t *testing.T) {
	stdout, stderr, code := run(t.Context(), "selftest", "--cases", "60", "--seed", "1", "--format", "csv")
	if code != 0 || !strings.Contains(stdout, "\nportable,exact,60,0,0,") {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
}

func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		failures, cases int
		interrupted     bool
		want            string
	}{
		{0, 1234, false, "1,234 cases, all passed"}, {3, 1234, false, "3 of 1,234 cases failed"},
		{0, 1, false, "1 case, all passed"}, {1, 1, false, "1 of 1 case failed"},
		{0, 1234, true, "1,234 cases, all passed until the interruption"},
		{3, 1234, true, "3 of 1,234 cases failed until the interruption"},
	} {
		if got := verdict(c.failures, c.cases, c.interrupted); got != c.want {
			t.Errorf("%d of %d: %q, want %q", c.failures, c.cases, got, c.want)
		}
	}
	stdout, stderr, code := run(t.Context(), "selftest", "--kernels", "loop", "--cases", "20", "--seed", "1")
	if code != 0 || !regexp.MustCompile(`\n\d+ cases, all passed\n$`).MatchString(stdout) {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
}

// TestSelftestFullCases checks the numbers of cases of the exact check that --full runs: for each
// kernel, and for all kernels of a device together.
func TestSelftestFullCases(t *testing.T) {
	for _, device := range []backend.DeviceName{{Kind: backend.CPU}, {Kind: backend.Emulator}} {
		f := selftestFlags{kernels: "all", full: true}
		list, release, err := f.choose(device)
		if err != nil {
			t.Fatal(err)
		}
		all, perKernel := 0, map[string]int{}
		for i, s := range list {
			impl, closeImpl := s.open()
			n := f.caseCount(list, i, &impl)
			all += n
			perKernel[s.kernel] += n
			if err := closeImpl(); err != nil {
				t.Error(err)
			}
		}
		for kernel, n := range perKernel {
			if n < 200 {
				t.Errorf("%s on %v has %d cases, want at least 200", kernel, device, n)
			}
		}
		if all < 20_000 {
			t.Errorf("%v has %d cases, want at least 20,000", device, all)
		}
		if err := release(); err != nil {
			t.Error(err)
		}
	}
}

// wrongDevice is a device that flips a bit of each result.
type wrongDevice struct{ *emu.Device }

func (d *wrongDevice) CopyOut(ctx context.Context, dst []byte, src device.Ptr, rows device.Rows) error {
	err := d.Device.CopyOut(ctx, dst, src, rows)
	if len(dst) > 0 {
		dst[0] ^= 1
	}
	return err
}

// canceller is a device that calls cancel in a copy of a result.
type canceller struct {
	device.Device
	after  atomic.Int64 // this number of copies
	cancel func()
}

func (d *canceller) CopyOut(ctx context.Context, dst []byte, src device.Ptr, rows device.Rows) error {
	if d.after.Add(-1) == 0 {
		d.cancel()
	}
	return d.Device.CopyOut(ctx, dst, src, rows)
}

// TestSelftestInterrupted checks that an interrupted test prints its results so far.
func TestSelftestInterrupted(t *testing.T) {
	const table = `(?s)^KERNEL.*\nnaive  +1  +exact +`
	for _, c := range []struct {
		after  int64
		wrong  bool
		format string
		stdout string
		code   int
	}{
		{1, false, "table", `^$`, exitInterrupted},
		{60, false, "table", table + `20 +0 .*\n\d+ cases, all passed until the interruption\n$`, exitInterrupted},
		{60, false, "json", `(?s)^\[.*"check": "exact",\s+"cases": 20,.*\]\s*$`, exitInterrupted},
		{60, true, "table", table + `1\d +10 .*\n\d+ of \d+ cases failed until the interruption\n$`, 1},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		restore := gpu.Substitute(func(backend.DeviceName) (device.Device, error) {
			e, err := emu.Open(emu.Options{})
			d := &canceller{Device: e, cancel: cancel}
			if c.wrong {
				d.Device = &wrongDevice{e}
			}
			d.after.Store(c.after)
			return d, err
		})
		stdout, stderr, code := run(ctx, "selftest", "--device", "emu", "--kernels", "naive", "--cases", "20", "--seed", "5",
			"--format", c.format)
		if !regexp.MustCompile(c.stdout).MatchString(stdout) || code != c.code {
			t.Errorf("interrupted after %d copies: exit code %d, %q, %q", c.after, code, stdout, stderr)
		}
		cancel()
		if err := restore(); err != nil {
			t.Error(err)
		}
	}
}

// TestSelftestRepeats checks that a failure names the kernel, tile, precision, seed and case, and
// that the printed command repeats it.
func TestSelftestRepeats(t *testing.T) {
	for _, args := range []string{"--kernels naive --cases 2", "--kernels skinny-tf32:1x32x128/1x4 --cases 2",
		"--kernels naive --cases 20 --part 7/20", "--kernels naive:8 --cases 2 --full"} {
		restore := gpu.Substitute(func(backend.DeviceName) (device.Device, error) {
			d, err := emu.Open(emu.Options{})
			return &wrongDevice{d}, err
		})
		stdout, stderr, code := run(t.Context(),
			append([]string{"selftest", "--device", "emu", "--seed", "5"}, strings.Fields(args)...)...)
		verdict := regexp.MustCompile(`\n\d+ of \d+ cases? failed\n$`).FindString(stdout)
		if verdict == "" || !strings.HasSuffix(stderr, "check failed: "+strings.TrimSpace(verdict)) {
			t.Errorf("%s: no summary at the end of %q, or a different one in %q", args, stdout, stderr)
		}
		first := regexp.MustCompile(`(?m)^(\S+): exact, case \d+ of seed 5: .*$`).FindString(stderr)
		repeat := regexp.MustCompile(`(?m)^to repeat: tilework (.*)$`).FindStringSubmatch(stderr)
		if code != 1 || first == "" || repeat == nil {
			t.Fatalf("%s: exit code %d, %q", args, code, stderr)
		}
		if _, stderr, code = run(t.Context(), strings.Fields(repeat[1])...); code != 1 || !strings.Contains(stderr, first) {
			t.Errorf("%s: exit code %d, %q lacks %q", repeat[1], code, stderr, first)
		}
		if err := restore(); err != nil {
			t.Error(err)
		}
	}
}

func TestSelftestPrintsErrors(t *testing.T) {
	list, _, err := (&selftestFlags{kernels: "portable"}).choose(backend.DeviceName{Kind: backend.CPU})
	if err != nil {
		t.Fatal(err)
	}
	impl, _ := list[0].open()
	var rows []selftestRow
	for _, c := range gemmtest.Check(t.Context(), impl, gemmtest.Options{Cases: 1200, Seed: 1}).Checks {
		rows = append(rows, selftestRow{Kernel: impl.Name, CheckReport: c})
	}
	var table strings.Builder
	if err := printErrors(&table, listFlags{}, rows); err != nil {
		t.Fatal(err)
	}
	for _, p := range impl.Types {
		checks := 2
		if p.In == dtype.F8E4M3 || p.In == dtype.F8E5M2 {
			checks++ // block scales
		}
		if p.In.Signed() == dtype.I8 {
			checks++ // zero points
		}
		if types := fmt.Sprintf(" %v → %v ", p.In, p.Out); p.Out != dtype.I32 &&
			strings.Count(table.String(), types) != checks {
			t.Errorf("want %d checks of %s in\n%s", checks, types, &table)
		}
	}
}

// countingDevice counts the different PTX that it compiles.
type countingDevice struct {
	*emu.Device
	mu       sync.Mutex
	compiled map[[sha256.Size]byte]bool
}

func (d *countingDevice) Load(ctx context.Context, text string) (device.Module, error) {
	d.mu.Lock()
	d.compiled[sha256.Sum256([]byte(text))] = true
	d.mu.Unlock()
	return d.Device.Load(ctx, text)
}

// TestSelftestCompilesFew checks that selftest without --full compiles few kernels for a GPU, since
// compiling takes most of its time there, and that each kernel runs with each type of operands. The
// complete list is that of the default command.
func TestSelftestCompilesFew(t *testing.T) {
	args, limit := "selftest --device emu --kernels naive,wgmma-tf32 --cases 1 --seed 1 --format json", 40
	if testkit.Full() {
		args, limit = "selftest --device emu --seed 1 --format json", 250
	}
	var d *countingDevice
	restore := gpu.Substitute(func(backend.DeviceName) (device.Device, error) {
		e, err := emu.Open(emu.Options{})
		d = &countingDevice{Device: e, compiled: map[[sha256.Size]byte]bool{}}
		return d, err
	})
	stdout, stderr, code := run(t.Context(), strings.Fields(args)...)
	var rows []selftestRow
	if err := json.Unmarshal([]byte(stdout), &rows); code != 0 || err != nil {
		t.Fatalf("exit code %d, %v, %q", code, err, stderr)
	}
	kernels := map[string]bool{}
	for _, r := range rows {
		kernels[r.name()] = true
		if r.Name == "bound" && !coversTypes(r, d) {
			t.Errorf("%s has cases of %+v, want each type of operands", r.name(), r.ByType)
		}
	}
	if all := len(gputest.Smallest(d.Info())); len(kernels) != all && testkit.Full() {
		t.Errorf("%d kernels and tiles ran, want %d", len(kernels), all)
	}
	t.Logf("%q compiled %d kernels, %s", args, len(d.compiled), strings.TrimSpace(stderr))
	if n := len(d.compiled); n > limit {
		t.Errorf("%q compiled %d kernels, want at most %d: %s", args, n, limit, stderr)
	}
	if err := restore(); err != nil {
		t.Error(err)
	}
}

// coversTypes reports whether r has cases of each type of operands that its kernel supports.
func coversTypes(r selftestRow, d device.Device) bool {
	ways := gputest.Smallest(d.Info())
	w := ways[slices.IndexFunc(ways, func(w gputest.Way) bool { return w.String() == r.name() })]
	for _, p := range w.On(stream.New(d)).Types {
		if !slices.ContainsFunc(r.ByType, func(e gemmtest.TypeErrors) bool { return e.In == p.In.String() }) {
			return false
		}
	}
	return true
}
