package study

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"tilework/internal/explain"
	"tilework/internal/model"
	"tilework/internal/testkit"
	"tilework/ptx/emu"
)

func init() { testkit.CollectRarely() }

func quiet(int, int) {}

// run runs a request, which must be valid.
func run(t *testing.T, q Request) *Result {
	t.Helper()
	if q.GPU == "" {
		q.GPU = "h200"
	}
	x, err := Run(t.Context(), &q, quiet)
	if err != nil {
		t.Fatalf("%+v: %v", q, err)
	}
	if _, err := json.Marshal(x); err != nil { // a wrong C can hold NaN, which JSON cannot
		t.Errorf("%+v: %v", q, err)
	}
	return x
}

// TestRungs runs every rung on its default product and on one with partial tiles. C is right, and
// no checker finds anything.
func TestRungs(t *testing.T) {
	for _, r := range Rungs() {
		t.Run(r.ID, func(t *testing.T) {
			for _, s := range []Sizes{r.Sizes, {33, 20, 17}, {1, 1, 1}} {
				x := run(t, Request{Rung: r.ID, Sizes: s})
				if !x.Solved || x.Stopped != "" || x.Elements != s.M*s.N {
					t.Errorf("%v: got %d wrong elements of %d, findings %+v, stopped %q", s, x.Wrong, x.Elements, x.Findings,
						x.Stopped)
				}
				if x.Explanation == nil || x.Explanation.Measured.M != s.M || x.Explanation.Tile != r.Tile {
					t.Errorf("%v: got explanation %+v", s, x.Explanation)
				}
				if (x.Below == nil) != (r.ID == "naive") {
					t.Errorf("%v: got the rung below %+v", s, x.Below)
				}
			}
			if len(r.Idea) != 3 {
				t.Errorf("got %d sentences, want 3", len(r.Idea))
			}
			if r.Limit == "" {
				t.Error("the rung states no limit")
			}
		})
	}
}

// TestOccupancy checks that the registers of a rung's threads count on every GPU that runs it, and
// the number of blocks that an SM holds.
func TestOccupancy(t *testing.T) {
	seen := map[int]bool{}
	for _, m := range model.Models() {
		if seen[m.Arch.SM] {
			continue
		}
		seen[m.Arch.SM] = true
		for _, r := range Rungs() {
			q := Request{Rung: r.ID, Sizes: Sizes{8, 8, 8}, GPU: m.Name}
			x, err := Run(t.Context(), &q, quiet)
			if (r.ID == "wgmma" && m.Arch.SM != 90 || r.ID == "mma" && m.Arch.SM < 80) && err != nil {
				continue
			}
			if err != nil || !x.Explanation.Fit.RegistersCounted {
				t.Errorf("%s on %s: got %+v, error %v, want a count of registers", r.ID, m.Name, x, err)
			}
		}
	}
	for id, want := range map[string]int{"naive": 8, "tiled-16": 8, "tiled-32": 2, "blocked": 2, "mma": 1, "wgmma": 1} {
		x := run(t, Request{Rung: id, Sizes: Sizes{64, 64, 64}})
		if got := x.Explanation.Fit.Occupancy.Blocks; got != want {
			t.Errorf("%s: got %d blocks per SM, want %d", id, got, want)
		}
	}
}

// TestTiles runs every tile of every rung.
func TestTiles(t *testing.T) {
	x, err := contents()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range x.Rungs {
		if !slices.Contains(r.Tiles, r.Tile) || !slices.Contains(r.Tiles, r.Small) {
			t.Errorf("%s: the tiles %v lack %s or %s", r.ID, r.Tiles, r.Tile, r.Small)
		}
		for _, tile := range r.Tiles {
			if x := run(t, Request{Rung: r.ID, Sizes: Sizes{33, 20, 17}, Tile: tile}); !x.Solved || x.Explanation.Tile != tile {
				t.Errorf("%s with tile %s: got tile %s, %d wrong elements, findings %+v", r.ID, tile, x.Explanation.Tile, x.Wrong,
					x.Findings)
			}
		}
	}
}

// TestMistakes plants every mistake: its checker reports it at a line of the listing.
func TestMistakes(t *testing.T) {
	exercises := 0
	for _, m := range Mistakes() {
		if len(m.Hints) > 0 {
			exercises++
		}
		if (len(m.Hints) > 0) != (m.Learnt != "") {
			t.Errorf("%s: got %d hints and the rule %q, want both or none", m.ID, len(m.Hints), m.Learnt)
		}
		t.Run(m.ID, func(t *testing.T) {
			x := run(t, Request{Rung: m.Rung, Sizes: m.Sizes, Mistake: m.ID})
			if x.Solved != (m.Finds == "coalesce") {
				t.Fatalf("solved is %v", x.Solved)
			}
			switch m.Finds {
			case "result":
				if x.Wrong == 0 || x.First == "" {
					t.Errorf("C is right, want wrong elements")
				}
			case "stop":
				if x.Stopped == "" {
					t.Errorf("the kernel ends, want it stopped")
				}
			default:
				i := slices.IndexFunc(x.Findings, func(f Finding) bool { return f.Checker == m.Finds })
				if i < 0 {
					t.Fatalf("got findings %+v, want one of %s", x.Findings, m.Finds)
				}
				f := x.Findings[i]
				if f.At.Line < 1 || f.At.Line > len(x.Listing.PTX) || f.Plain == "" {
					t.Errorf("got finding %+v at a line of %d", f, len(x.Listing.PTX))
				}
				if m.Finds == "race" && f.Other == nil {
					t.Errorf("got a race without a second access: %+v", f)
				}
			}
		})
	}
	if exercises != 5 {
		t.Errorf("got %d exercises, want 5", exercises)
	}
}

// TestEdited runs each mistake as text that the reader has edited. It has the findings of the
// mistake, with the same counts and lines of Go, at the lines of the text.
func TestEdited(t *testing.T) {
	for _, m := range Mistakes() {
		q := Request{Rung: m.Rung, Sizes: m.Sizes, Mistake: m.ID, GPU: "h200"}
		planted := run(t, q)
		listing, err := List(&q)
		if err != nil {
			t.Fatal(err)
		}
		var text []string
		for _, line := range listing.PTX {
			text = append(text, line.Text)
		}
		const added = 3 // lines, two of them empty
		at := slices.IndexFunc(text, func(line string) bool { return strings.Contains(line, ".reg ") })
		text = slices.Insert(text, at, "", "", "\t// edited")
		q.PTX = strings.Join(text, "\n") + "\n"
		edited := run(t, q)
		if len(edited.Listing.PTX) != len(text) {
			t.Fatalf("%s: the listing has %d lines, want the %d of the text", m.ID, len(edited.Listing.PTX), len(text))
		}
		if len(edited.Findings) != len(planted.Findings) || edited.Wrong != planted.Wrong ||
			(edited.Stopped == "") != (planted.Stopped == "") {
			t.Fatalf("%s: got %d findings and %d wrong elements, want %d and %d", m.ID, len(edited.Findings), edited.Wrong,
				len(planted.Findings), planted.Wrong)
		}
		for i, f := range edited.Findings {
			want := planted.Findings[i]
			if f.At.Line != want.At.Line+added || f.At.File != want.At.File || f.At.Source != want.At.Source ||
				f.Count != want.Count {
				t.Errorf("%s: got finding %+v, want %+v", m.ID, f, want)
			}
		}
	}
}

// TestSwapped checks which accesses of naive are reported if the thread indices are exchanged: a
// warp then loads from 16 rows of A and stores to 16 rows of C, but loads neighbours from B.
func TestSwapped(t *testing.T) {
	x := run(t, Request{Rung: "naive", Sizes: Sizes{64, 64, 64}, Mistake: "swapped"})
	ops := map[string]bool{}
	for _, f := range x.Findings {
		ops[f.At.Opcode] = true
	}
	if len(ops) != 2 || !ops["ld.global.nc.f32"] || !ops["st.global.f32"] {
		t.Errorf("got findings %+v, want loads of A and the store", x.Findings)
	}
	for _, a := range x.Explanation.Measured.Global {
		want := map[string]int64{"load A": 16, "load B": 1, "store C": 16}[a.What]
		if a.Sectors != want*a.Requests {
			t.Errorf("%s: got %d sectors in %d requests, want %d each", a.What, a.Sectors, a.Requests, want)
		}
	}
}

// TestWatch watches every rung, sound and with each of its mistakes. The steps of a block with a
// race contain its two accesses, by their lines and threads.
func TestWatch(t *testing.T) {
	for _, r := range Rungs() {
		x, err := Watch(t.Context(), &WatchRequest{Request: Request{Rung: r.ID, Sizes: r.Watched, GPU: "h200"}})
		if err != nil {
			t.Fatalf("%s: %v", r.ID, err)
		}
		text, err := json.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d steps, %d bytes", r.ID, len(x.Steps.Steps), len(text))
		if last := x.Steps.Steps[len(x.Steps.Steps)-1]; last.Op != "write" && r.ID != "wgmma" {
			t.Errorf("%s: the last step is %+v, want a write", r.ID, last)
		}
	}
	for _, m := range Mistakes() {
		q := Request{Rung: m.Rung, Sizes: m.Sizes, GPU: "h200", Mistake: m.ID}
		for _, f := range run(t, q).Findings {
			if f.Checker != "race" {
				continue
			}
			x, err := Watch(t.Context(), &WatchRequest{Request: q})
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range []Place{f.At, *f.Other} {
				thread := p.Thread.X + x.Steps.Block[0]*p.Thread.Y
				if p.Block == (emu.Dim3{}) && !slices.ContainsFunc(x.Steps.Steps, func(s explain.Step) bool {
					return s.Line == p.Line && slices.ContainsFunc(s.Parts, func(p explain.Part) bool {
						return slices.Contains(p.Threads, thread)
					})
				}) {
					t.Errorf("%s: no step of thread %d is at line %d", m.ID, thread, p.Line)
				}
			}
		}
	}
}

// TestErrors checks the messages for bad requests.
func TestErrors(t *testing.T) {
	for _, c := range []struct{ method, params, want string }{
		{"other", "{}", `unknown method "other": want one of contents,`},
		{"run", "{", "unexpected end of JSON input"},
		{"run", `{"rung":"tiles","gpu":"h200"}`, `unknown rung "tiles": want one of naive, tiled-2,`},
		{"run", `{"rung":"naive","gpu":"h2000","m":1,"n":1,"k":1}`, "h2000"},
		{"run", `{"rung":"naive","gpu":"h200","m":0,"n":1,"k":1}`, "M is 0: want 1 to 256"},
		{"run", `{"rung":"naive","gpu":"h200","m":256,"n":256,"k":256}`, "256×256×256 is 16,777,216 multiply-adds: want"},
		{"run", `{"rung":"mma","gpu":"t4","m":1,"n":1,"k":1}`, "kernel mma needs sm_80, but t4 is sm_75"},
		{"run", `{"rung":"naive","gpu":"h200","m":1,"n":1,"k":1,"mistake":"first-barrier"}`, "rung naive has no mistake"},
		{"run", `{"rung":"naive","gpu":"h200","m":1,"n":1,"k":1,"ptx":"int main()"}`, "naive.ptx:1"},
		{"watch", `{"rung":"tiled-8","gpu":"h200","m":65,"n":1,"k":1}`, "the steps of 65×1×1: want at most 64"},
		{"watch", `{"rung":"mma","gpu":"h200","m":4,"n":4,"k":4,"block":1}`, "block 1: want 0 to 0"},
		{"occupancy", `{"gpu":"h200","launch":{"threads":2000}}`, "2,000 threads: want at most 1,024"},
	} {
		_, err := Call(t.Context(), c.method, []byte(c.params), quiet)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: got error %v, want %q", c.method, c.params, err, c.want)
		}
	}
}

// TestCall checks that each method answers in JSON, and that bad input gives an error.
func TestCall(t *testing.T) {
	for _, c := range []struct{ method, params string }{
		{"contents", "null"},
		{"list", `{"rung":"tiled-2","m":4,"n":4,"k":4,"gpu":"h200"}`},
		{"watch", `{"rung":"tiled-2","m":4,"n":4,"k":4,"gpu":"h200"}`},
		{"occupancy", `{"launch":{"threads":256,"shared_bytes":2048},"sm_threads":2048,"sm_shared":49152,"sm_blocks":16}`},
	} {
		got, err := Call(t.Context(), c.method, []byte(c.params), quiet)
		if err != nil || !json.Valid(got) {
			t.Errorf("%s: got %.100s, error %v", c.method, got, err)
		}
	}
}
