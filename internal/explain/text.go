package explain

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"tilework/internal/model"
	"tilework/internal/table"
)

// Text is the explanation for a reader, in lines of at most 100 columns.
func (x *Explanation) Text() string {
	var d document
	p := &x.Product
	d.line("%s, %s: %d×%d · %d×%d on %s", x.Kernel, x.Config, p.M, p.K, p.K, p.N, x.GPU)
	d.line("What it adds: %s.", x.Adds)
	x.work(&d)
	x.Phase.text(&d, p, x.Launch.Threads)
	x.traffic(&d)
	x.Fit.text(&d, &x.Launch)
	x.Padding.text(&d)
	x.Measured.text(&d, x)
	return d.String()
}

func (x *Explanation) work(d *document) {
	p, l := &x.Product, &x.Launch
	d.heading("The work")
	d.row("operations", "2·M·N·K = 2 × %s × %s × %s = %s%s, a multiply-add counting as 2",
		model.Commas(p.M), model.Commas(p.N), model.Commas(p.K), si(p.Flops), p.Unit)
	tiles, threads := l.Tiles[0]*l.Tiles[1], fmt.Sprintf("%d × %d = %s", l.Block[0], l.Block[1], model.Count(l.Threads, "thread"))
	cut := fmt.Sprintf("%s × %s tiles of C = ", model.Commas(l.Tiles[0]), model.Commas(l.Tiles[1]))
	switch {
	case l.Blocks == tiles:
		d.row("grid", "%s%s of %s", cut, model.Count(l.Blocks, "block"), threads)
	case l.Blocks > tiles:
		d.row("grid", "%s%s, for each of them %s of %s", cut, model.Commas(tiles), model.Count(l.Blocks/tiles, "block"), threads)
	default:
		d.row("grid", "%s%s, for %s of %s, which stay and compute tile after tile", cut, model.Commas(tiles), model.Count(l.Blocks, "block"), threads)
	}
	in := p.In
	if p.Precision != "" {
		in += ", multiplied in " + p.Precision
	}
	d.row("types", "elements of %s, C in %s", in, p.Out)
	d.row("summed", "%s", p.Sums)
	if l.Packed != nil {
		d.row("packed", "%s, by a launch before this one, as the kernel reads it", strings.Join(l.Packed, " and "))
	}
	d.flush()
}

func (x *Phase) text(d *document, p *Product, threads int) {
	sides, ofB := fmt.Sprintf("(%d + %d) × %d", x.M, x.N, x.K), ""
	switch {
	case x.Cluster > 1:
		sides = fmt.Sprintf("(%d + %d / %d) × %d", x.M, x.N, x.Cluster, x.K)
		ofB = fmt.Sprintf(", which the %d blocks of a cluster load for each other", x.Cluster)
	case x.M == x.N && x.N == x.K:
		sides = fmt.Sprintf("2 × %d²", x.M)
	}
	switch x.Sharer {
	case "thread":
		d.heading("One step along K, each thread for itself")
		d.row("loads", "%d of A and %d of B = %s from global memory", x.M*x.K, x.N*x.K, model.Count(x.Loads, "element"))
		d.row("operations", "%s, counted 2 each: %s operations", model.Count(x.FMAs, "FMA"), model.Commas(x.Operations))
	default:
		d.heading("One phase of a block")
		d.row("loads", "%s = %s from global memory: %d×%d of A, %d×%d of B%s",
			sides, model.Count(x.Loads, "element"), x.M, x.K, x.K, x.N, ofB)
		d.row("operations", "%d × %d × %d = %s FMAs, counted 2 each: %s operations", x.M, x.N, x.K, model.Commas(x.FMAs), model.Commas(x.Operations))
		who := "loads of its " + model.Count(threads, "thread")
		if x.TensorReads {
			who = "elements that the tensor cores read there themselves"
		}
		d.row("shared memory", "%s %s: %.3g for each FMA", model.Commas(x.SharedLoads), who, float64(x.SharedLoads)/float64(x.FMAs))
		if x.Stages > 1 {
			d.row("stages", "%d of %s: while one is multiplied, up to %d more are on their way", x.Stages, model.Count(x.StageBytes, "byte"), x.Stages-1)
		}
	}
	d.row("per load", "%s operations / %s loads = %.4g", model.Commas(x.Operations), model.Commas(x.Loads), x.PerLoad)
	d.row("intensity", "%.4g operations a load / %s = %.4g %s/byte", x.PerLoad, model.Count(int(x.PerLoad/x.Intensity), "byte"), x.Intensity, p.Unit)
	rounded := ""
	if p.K%x.Step != 0 {
		rounded = ", rounded up"
	}
	d.row("count", "%s / %d%s = %s", model.Commas(p.K), x.Step, rounded, model.Count(x.Count, map[string]string{"block": "phase", "thread": "step"}[x.Sharer]))
	d.flush()
}

func (x *Explanation) traffic(d *document) {
	d.heading("Global memory, the whole product")
	for _, v := range x.Traffic {
		d.row(v.What, "%s (%s)", bytesText(v.Bytes), v.Why)
	}
	d.flush()
	d.line("")
	if x.Roof == nil {
		for _, v := range x.Traffic {
			d.row(v.What, "%.4g %s/byte", v.Intensity, x.Product.Unit)
		}
		d.flush()
		d.line("No roofline: %s.", x.NoRoof)
		return
	}
	unit := x.Product.Unit
	rate := x.Roof.Rate
	if x.Roof.Products > 1 {
		rate = fmt.Sprintf("%s, %d products of which make one", rate, x.Roof.Products)
	}
	d.line("The roofline of %s: %s%s/s (%s), %sB/s; they meet at %.3g %s/byte.",
		x.GPU, si(x.Roof.Peak), unit, rate, si(x.Roof.Bandwidth), x.Roof.Ridge, unit)
	for _, v := range x.Traffic {
		d.row(v.What, "%.4g %s/byte: at least %s, bound by %s, at most %s%s/s",
			v.Intensity, unit, seconds(v.Bound.Seconds), v.Bound.By, si(v.Bound.Attain), unit)
	}
	d.flush()
}

func (x *Fit) text(d *document, l *Launch) {
	d.heading("Occupancy")
	for line := range strings.Lines(x.Occupancy.Summary() + x.waiting()) {
		d.line("%s", strings.TrimRight(line, "\n"))
	}
	answer := "No"
	if x.TwoBlocks {
		answer = "Yes"
	}
	d.line("Do at least two blocks fit? %s: %d.", answer, x.Occupancy.Blocks)
	if !x.RegistersCounted {
		d.line("Registers are not counted: the assembler gives them out, and they may allow fewer blocks.")
	}
	if w := x.Waves; w != nil {
		what := "block"
		if l.Blocks < l.places() {
			what = "tile"
		}
		d.line("%s over %s at a time: %s, the last with %s; %.3g %% of all places have a %s.",
			model.Count(l.places(), what), model.Commas(w.Slots), model.Count(w.Count, "wave"), model.Commas(w.Last), 100*w.Efficiency, what)
	}
}

// waiting returns why the kernel does or does not profit from a second block on the SM.
func (x *Fit) waiting() string {
	switch {
	case !x.Barriers:
		return "Its threads share no data and never wait for each other, only for their own loads: the more warps fit, the more loads are in flight.\n"
	case x.Specialised:
		return "It needs no second block: its warpgroups meet at no barrier while they multiply, and while one waits for a stage the copy engine " +
			"and the tensor cores go on.\n"
	}
	return x.Occupancy.Advice()
}

func (x *Padding) text(d *document) {
	d.heading("If the matrices were padded to whole tiles instead")
	if x.ExtraBytes == 0 {
		d.line("It would cost nothing: the sizes are multiples of the tile's already.")
		return
	}
	for _, o := range x.Matrices {
		d.row(o.Name, "%d×%d → %d×%d\t+%s", o.Rows, o.Cols, o.Padded[0], o.Padded[1], bytesText(o.ExtraBytes))
	}
	d.flush()
	d.line("Together %s more, %.3g %%: of memory on the GPU, and of the time to copy there and back.", bytesText(x.ExtraBytes), 100*x.Extra)
}

func (x *Measured) text(d *document, of *Explanation) {
	p, packed := &of.Product, of.Launch.Packed
	d.heading("Counted by the emulator")
	if x.M == p.M && x.N == p.N && x.K == p.K {
		d.line("The whole product, run with the checkers on.")
	} else {
		d.line("The same text on %d×%d · %d×%d (rows as far apart as asked, modulo %d elements), with the checkers on.",
			x.M, x.K, x.K, x.N, ldPeriod)
	}
	if packed != nil {
		d.line("The launch before it, which packs %s, is not counted here; bench --device emu counts both.", strings.Join(packed, " and "))
	}
	d.line("")
	d.line("Global memory. Now a request of a warp moves each sector of %d bytes that it touches, once. Then (compute capability 1.0) "+
		"a half-warp took 1 transaction if its thread k accessed word k of an aligned segment, else 1 for each thread.", sectorBytes)
	d.row("access", "requests\tbytes asked\tsectors\ta request\tat best\tthen: transactions a half-warp")
	for _, a := range x.Global {
		d.row(a.What, "%s\t%s\t%s\t%s\t%s\t%s", commas(a.Requests), commas(a.Asked), commas(a.Sectors),
			per(a.Sectors, a.Requests), per(a.Ideal, a.Requests), per(a.Transactions, a.HalfWarps))
	}
	d.flush()
	if len(x.Shared) > 0 {
		d.line("")
		d.line("Shared memory. Now 32 banks serve a warp in one wavefront, unless threads want different words of the same bank. Then " +
			"16 banks served a half-warp. Of atomics and operations on mbarriers only the requests are counted.")
		d.row("access", "requests\twavefronts\ta request\tat best\tthen: times what is best")
		for _, a := range x.Shared {
			if a.Ideal == 0 { // atomics
				d.row(a.What, "%s\t–\t–\t–\t–", commas(a.Requests))
				continue
			}
			d.row(a.What, "%s\t%s\t%s\t%s\t%s", commas(a.Requests), commas(a.Wavefronts),
				per(a.Wavefronts, a.Requests), per(a.Ideal, a.Requests), per(a.Then, a.ThenIdeal))
		}
		d.flush()
	}
	d.line("")
	x.totals(d, of)
}

// totals are the counters of the whole run.
func (x *Measured) totals(d *document, of *Explanation) {
	const most = 6
	var frequent []string
	for _, o := range x.Opcodes[:min(most, len(x.Opcodes))] {
		frequent = append(frequent, fmt.Sprintf("%s %s", o.Opcode, commas(o.Warps)))
	}
	d.row("instructions", "%s by warps; most often %s", commas(int64(x.Instructions)), strings.Join(frequent, ", "))
	d.row("operations", "2·M·N·K = %s %s of the product; %s issued: the rest fills tiles and finishes C", commas(x.Flops), of.Product.Unit, commas(x.Issued))
	d.row("touched", "%s different sectors, %s read and %s written: what moves if the cache forgets nothing",
		commas(x.DistinctSectors), commas(x.SectorsRead), commas(x.SectorsWritten))
	if len(x.Findings) == 0 {
		barriers := ""
		if of.Fit.Barriers {
			barriers = "no misused barrier, "
		}
		d.row("checkers", "no race, %sno bad access, no read of uninitialised memory", barriers)
	}
	for _, f := range x.Findings {
		d.row("checkers", "%s", f)
	}
	d.flush()
}

// seconds is a time in words: "265 µs"; of seconds nobody makes kiloseconds.
func seconds(s float64) string {
	if s >= 1000 {
		return model.Commas(int(s)) + " s"
	}
	return si(s) + "s"
}

// per is a ratio in words; of nothing there is none, as of half-warps where the copy engine
// reads.
func per(a, b int64) string {
	if b == 0 {
		return "–"
	}
	return fmt.Sprintf("%.3g", float64(a)/float64(b))
}

func commas(n int64) string { return model.Commas(int(n)) }

// document is a text under headings, with aligned rows.
type document struct {
	strings.Builder
	rows [][]string // not yet written: label and cells
}

// width is the columns that lines of prose keep to.
const width = 100

func (d *document) heading(text string) { d.line("\n%s\n", strings.ToUpper(text)) }

// line writes a line, broken where it is too long.
func (d *document) line(format string, args ...any) {
	d.WriteString(table.Continue(fmt.Sprintf(format, args...), width) + "\n")
}

// row adds a row to the table that flush writes; tabs part its cells.
func (d *document) row(label, format string, args ...any) {
	d.rows = append(d.rows, append([]string{label}, strings.Split(fmt.Sprintf(format, args...), "\t")...))
}

// flush writes the rows. What is too long goes on below its cell.
func (d *document) flush() {
	var aligned strings.Builder
	w := tabwriter.NewWriter(&aligned, 0, 0, 2, ' ', 0)
	for _, r := range d.rows {
		fmt.Fprintln(w, "  "+strings.Join(r, "\t"))
	}
	w.Flush() // a strings.Builder does not fail
	for line := range strings.Lines(aligned.String()) {
		d.WriteString(table.Continue(strings.TrimRight(line, " \n"), width) + "\n")
	}
	d.rows = nil
}
