package main

import (
	"bytes"
	"context"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"tilework/internal/bench"
)

// TestPresets runs every preset with a tiny size, on this machine and with an emulated GPU.
func TestPresets(t *testing.T) {
	t.Chdir(t.TempDir())
	measured := map[string]string{
		"quick": "cpu, cpu on one thread, emu, gpu",
		"study": "cpu, cpu on one thread, emu, gpu, gpu with copies",
	}
	for _, p := range presets {
		t.Run(p.name, func(t *testing.T) {
			args := []string{"bench", "--preset", p.name, "--sizes", "8", "--min-time", "1ms", "--warmup", "1ms", "-o",
				p.name + ".jsonl", "--force"}
			_, stderr, code := run(t.Context(), args...)
			if code != 0 {
				t.Fatalf("exit code %d, %q", code, stderr)
			}
			hasGPU := false
			for _, r := range readRecords(t, p.name+".jsonl") {
				hasGPU = hasGPU || strings.HasPrefix(r.Device, "gpu")
				if r.N != 8 || r.Error != "" && !r.Unsupported {
					t.Errorf("record %+v", r)
				}
			}
			if skipped := strings.Contains(stderr, "no such device"); skipped == hasGPU {
				t.Errorf("machine with a GPU: %v, standard error %q", hasGPU, stderr)
			}
			emulatedGPU(t)
			_, stderr, code = run(t.Context(), args...)
			if code != 0 {
				t.Fatalf("exit code %d, %q", code, stderr)
			}
			parts := map[string]bool{}
			for _, r := range readRecords(t, p.name+".jsonl") {
				part := r.Device
				if r.Transfers {
					part += " with copies"
				}
				if r.Threads == 1 {
					part += " on one thread"
				}
				parts[part] = true
			}
			if got, want := strings.Join(slices.Sorted(maps.Keys(parts)), ", "), measured[p.name]; got != want {
				t.Errorf("measured on %s, want %s", got, want)
			}
		})
	}
}

// TestPresetOverrides checks that flags given with --preset replace those of the preset.
func TestPresetOverrides(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, v := range []struct{ args, want string }{
		// t4 has no mma and no wgmma
		{"--preset study --device emu:t4 --shape 8x9x10", "emu:t4 naive 8x9x10, emu:t4 tiled:16 8x9x10, emu:t4 tiled:32 " +
			"8x9x10, emu:t4 blocked 8x9x10"},
		{"--preset quick --device emu --kernels naive --sizes 5", "emu naive 5x5x5"},
		{"--preset study --device cpu --kernels loop --sizes 6 --threads 1 --min-time 1ms", "cpu loop 6x6x6, cpu loop 6x6x6"},
	} {
		args := append([]string{"bench", "-o", "r.jsonl", "--force"}, strings.Fields(v.args)...)
		if _, stderr, code := run(t.Context(), args...); code != 0 {
			t.Errorf("%s: exit code %d, %q", v.args, code, stderr)
			continue
		}
		var got []string
		for _, r := range readRecords(t, "r.jsonl") {
			got = append(got, r.Device+" "+r.Subject+" "+bench.Shape{M: r.M, N: r.N, K: r.K}.String())
		}
		if s := strings.Join(got, ", "); s != v.want {
			t.Errorf("%s: measured\n%s, want\n%s", v.args, s, v.want)
		}
	}
}

// TestResume truncates a file of records at several places. Resuming must measure the missing
// records, and print all.
func TestResume(t *testing.T) {
	t.Chdir(t.TempDir())
	flags := []string{"bench", "--device", "emu", "--kernels", "naive,tiled:2", "--sizes", "2..5+1"}
	bench := func(more ...string) (stdout, stderr string) {
		t.Helper()
		stdout, stderr, code := run(t.Context(), append(flags[:len(flags):len(flags)], more...)...)
		if code != 0 {
			t.Fatalf("%v: exit code %d, %q", more, code, stderr)
		}
		return stdout, stderr
	}
	whole, _ := bench("-o", "r.jsonl", "--format", "csv")
	text, err := os.ReadFile("r.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	for _, keep := range []int{0, len(lines[0]), len(text) / 2, len(text) - 1, len(text)} {
		if err := os.WriteFile("r.jsonl", text[:keep], 0o666); err != nil {
			t.Fatal(err)
		}
		stdout, stderr := bench("--resume", "r.jsonl", "--format", "csv")
		cut := keep > 0 && text[keep-1] != '\n' && text[keep] != '\n'
		if reported := strings.Contains(stderr, "removed the incomplete record"); reported != cut {
			t.Errorf("truncated to %d bytes: incomplete record: %v, standard error %q", keep, cut, stderr)
		}
		if got, want := strings.Count(stdout, "\n"), strings.Count(whole, "\n"); got != want {
			t.Errorf("truncated to %d bytes: %d lines, want %d", keep, got, want)
		}
		// If the file has the record of only one of two kernels, both are measured again.
		there := bytes.Count(text[:keep], []byte("\n"))
		if keep < len(text) && text[keep] == '\n' {
			there++
		}
		if got, want := len(readRecords(t, "r.jsonl")), 8+there%2; got != want {
			t.Errorf("truncated to %d bytes: %d records, want %d", keep, got, want)
		}
	}
}

// TestRecordFileErrors checks that a refused file of records is left unchanged. Files are refused
// if they exist and neither --force nor --resume is given, and if another machine wrote them.
func TestRecordFileErrors(t *testing.T) {
	t.Chdir(t.TempDir())
	flags := []string{"bench", "--device", "emu", "--kernels", "naive", "--sizes", "2"}
	if _, stderr, code := run(t.Context(), append(flags, "-o", "r.jsonl")...); code != 0 {
		t.Fatal(stderr)
	}
	good, err := os.ReadFile("r.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	cores := bytes.Index(good, []byte(`"cores":`)) + len(`"cores":`)
	elsewhere := append(append(bytes.Clone(good[:cores]), '9', '9'), good[cores:]...)
	for _, v := range []struct {
		name string
		text []byte
		args string
		want string
	}{
		{"existing file", good, "-o r.jsonl", "r.jsonl: file already exists: name another file, or replace it with " +
			"--force, or continue it with --resume r.jsonl"},
		{"another machine", elsewhere, "--resume r.jsonl", "cannot be continued here: its record 1 was measured with " +
			"cores 99"},
		{"another machine, truncated", append(elsewhere, good[:50]...), "--resume r.jsonl", "cannot be continued here"},
		{"no records", []byte("a,b\n"), "--resume r.jsonl", "not a file of records: record 1"},
		{"JSON array", append([]byte("["), good...), "--resume r.jsonl", "want one record per line"},
		{"missing folder", good, "-o absent/r.jsonl", "absent/r.jsonl: no such file or directory"},
		{"-o and --resume", good, "-o other.jsonl --resume r.jsonl", "--out and --resume exclude each other"},
		{"not enough memory", good, "--resume r.jsonl --sizes 1000000", "out of memory: the matrices to measure"},
	} {
		if err := os.WriteFile("r.jsonl", v.text, 0o666); err != nil {
			t.Fatal(err)
		}
		_, stderr, code := run(t.Context(), append(flags, strings.Fields(v.args)...)...)
		if code != 2 || !strings.Contains(stderr, v.want) || strings.Count(stderr, "\n") > 1 {
			t.Errorf("%s: exit code %d, %q, want %q", v.name, code, stderr, v.want)
		}
		if now, err := os.ReadFile("r.jsonl"); err != nil || !bytes.Equal(now, v.text) {
			t.Errorf("%s: the file was changed (%v)", v.name, err)
		}
	}
	if _, stderr, code := run(t.Context(), append(flags, "--resume", "absent.jsonl")...); code != 2 ||
		!strings.Contains(stderr, "absent.jsonl") {
		t.Errorf("missing file: exit code %d, %q", code, stderr)
	}
	if _, err := os.Stat("other.jsonl"); err == nil {
		t.Error("an empty file remains")
	}
}

// TestBenchKeepsRecords interrupts a measurement and resumes it.
func TestBenchKeepsRecords(t *testing.T) {
	t.Chdir(t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		for {
			if info, err := os.Stat("r.jsonl"); err == nil && info.Size() > 0 || t.Context().Err() != nil {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	args := []string{"bench", "--kernels", "loop", "--sizes", "8..40+1", "--min-time", "10ms"}
	stdout, stderr, code := run(ctx, append(args, "-o", "r.jsonl", "--format", "jsonl")...)
	if code != exitInterrupted {
		t.Fatalf("exit code %d, %q", code, stderr)
	}
	kept := readRecords(t, "r.jsonl")
	if len(kept) == 0 || len(kept) == 33 || strings.Count(stdout, "\n") != len(kept) {
		t.Fatalf("%d records in the file, and printed\n%s", len(kept), stdout)
	}
	whole := 0
	for _, r := range kept {
		if !r.Interrupted {
			whole++
		}
	}
	if _, stderr, code := run(t.Context(), append(args, "--resume", "r.jsonl")...); code != 0 {
		t.Fatalf("exit code %d, %q", code, stderr)
	}
	if got, want := len(readRecords(t, "r.jsonl")), 33+len(kept)-whole; got != want {
		t.Errorf("%d records in the end, want %d", got, want)
	}
}

// TestBenchstat compares two measurements with benchstat.
func TestBenchstat(t *testing.T) {
	folder := t.TempDir()
	var files []string
	for _, name := range []string{"old", "new"} {
		var text string
		for _, flags := range []string{"--kernels loop,portable --sizes 16 --min-time 5ms",
			"--device emu --kernels naive,tiled:16 --sizes 16"} {
			stdout, stderr, code := run(t.Context(), append([]string{"bench", "--format", "bench"}, strings.Fields(flags)...)...)
			if code != 0 {
				t.Fatalf("exit code %d, %q", code, stderr)
			}
			// The date is part of the configuration. Pretend that it differs.
			text += strings.ReplaceAll(stdout, "; "+time.Now().UTC().Format(time.DateOnly), "; measured "+name)
		}
		path := folder + "/" + name + ".txt"
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		files = append(files, name+"="+path)
	}
	out, err := exec.CommandContext(t.Context(), "go", append([]string{"tool", "benchstat"}, files...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"sec/op", "GFLOP/s", "warp-instructions", "conflicts", "vs base", "subject=loop",
		"subject=tiled:16", "all samples are equal"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the output of benchstat lacks %q:\n%s", want, out)
		}
	}
	if strings.Contains(string(out), "syntax") || strings.Contains(string(out), "missing") {
		t.Errorf("benchstat reports an error:\n%s", out)
	}
}

// TestBenchErrors checks that errors name the wrong input in one line.
func TestBenchErrors(t *testing.T) {
	t.Chdir(t.TempDir())
	for args, want := range map[string]string{
		"--kernels avx521":                     `--kernels: unknown kernel "avx521" (did you mean "avx512"?)`,
		"--device emu --kernels mma-tf23":      `--kernels: unknown kernel "mma-tf23" (did you mean "mma-tf32"?)`,
		"--device emu --kernels blocked-f32x3": `--kernels: unknown kernel "blocked-f32x3"`,
		"--device emu --kernels tield:16":      `--kernels: unknown kernel "tield" (did you mean "tiled"?)`,
		"--device emu --kernels auto-tf23":     `--kernels: unknown kernel "auto-tf23" (did you mean "auto-tf32"?)`,
		"--kernels auto-f32x3":                 `--kernels: unknown kernel "auto-f32x3": want one of`,
		"--kernels aut":                        `(did you mean "auto"?)`,
		"--device auto":                        "--device auto: want a certain device (cpu, gpu, gpu:N, emu)",
		"--preset quick --device auto":         "--device auto: want a certain device (cpu, gpu, gpu:N, emu)",
		"--preset stduy":                       `--preset: unknown preset "stduy" (did you mean "study"?)`,
		"--peers openblsa":                     `--peers: unknown peer "openblsa" (did you mean "openblas"?)`,
		"--sizes 1000000": "out of memory: the matrices to measure 1000000×1000000 · " +
			"1000000×1000000 float32 need 14901.2 GiB, and this machine has",
		"--sizes 8,99999999999":                 "--sizes 99999999999: shapes do not fit: A of 99999999999×99999999999",
		"--shape 1x8x8,9999999999x8x9999999999": "--shape 9999999999x8x9999999999: shapes do not fit",
		"--device emu --sizes 99999999999":      "--sizes 99999999999: shapes do not fit",
		"--device emu --cold":                   "--cold: an emulated GPU has no caches",
		"--device emu --transfers":              "--transfers: emu has no copies to time",
		"--peers mkl --peer-path mkl=no.so":     "no.so",
		"--preset quick --sizes 0":              "--sizes",
	} {
		_, stderr, code := run(t.Context(), append([]string{"bench"}, strings.Fields(args)...)...)
		if code != 2 || !strings.Contains(stderr, want) || strings.Count(strings.TrimSpace(stderr), "\n") > 0 {
			t.Errorf("%s: exit code %d, %q, want %q", args, code, stderr, want)
		}
	}
}
