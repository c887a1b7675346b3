package explain

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"tilework/internal/phrase"
	"tilework/internal/table"
)

// Text returns the explanation as text with lines of at most 100 columns.
func (x *Explanation) Text() string {
	var d document
	p := &x.Product
	d.line("%s, %s: %d×%d · %d×%d on %s", x.Kernel, x.Config, p.M, p.K, p.K, p.N, x.GPU)
	d.line("Technique: %s.", x.Adds)
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
		phrase.Commas(p.M), phrase.Commas(p.N), phrase.Commas(p.K), si(p.Flops), p.Unit)
	tiles, threads := l.Tiles[0]*l.Tiles[1], fmt.Sprintf("%d × %d = %s", l.Block[0], l.Block[1],
		phrase.Count(l.Threads, "thread"))
	cut := fmt.Sprintf("%s × %s tiles of C = ", phrase.Commas(l.Tiles[0]), phrase.Commas(l.Tiles[1]))
	switch {
	case l.Blocks == tiles:
		d.row("grid", "%s%s of %s", cut, phrase.Count(l.Blocks, "block"), threads)
	case l.Blocks > tiles:
		d.row("grid", "%s%s, each computed by %s of %s", cut, phrase.Commas(tiles), phrase.Count(l.Blocks/tiles, "block"),
			threads)
	default:
		d.row("grid", "%s%s, computed by %s of %s, which are persistent and compute tile after tile", cut,
			phrase.Commas(tiles), phrase.Count(l.Blocks, "block"), threads)
	}
	in := p.In
	if p.Precision != "" {
		in += ", multiplied as " + p.Precision
	}
	d.row("types", "elements of A and B in %s, C in %s", in, p.Out)
	d.row("summed", "%s", p.Sums)
	if l.Packed != nil {
		d.row("packed", "%s, by a preceding launch, into the layout of the kernel", strings.Join(l.Packed, " and "))
	}
	d.flush()
}

// shared describes the loads of a side that blocks of a cluster share: the part of a block, and how
// they share it.
func shared(side, blocks int) (part, how string) {
	if blocks == 1 {
		return fmt.Sprint(side), ""
	}
	return fmt.Sprintf("%d / %d", side, blocks),
		fmt.Sprintf(", shared by multicast among %d blocks of a cluster", blocks)
}

func (x *Phase) text(d *document, p *Subject, threads int) {
	partA, ofA := shared(x.M, x.ClusterA)
	partB, ofB := shared(x.N, x.Cluster)
	sides := fmt.Sprintf("(%s + %s) × %d", partA, partB, x.K)
	if x.M == x.N && x.N == x.K && x.ClusterA*x.Cluster == 1 {
		sides = fmt.Sprintf("2 × %d²", x.M)
	}
	switch x.Sharer {
	case "thread":
		d.heading("One step of a thread along K")
		d.row("loads", "%d of A and %d of B = %s from global memory", x.M*x.K, x.N*x.K, phrase.Count(x.Loads, "element"))
		d.row("operations", "%s, counted 2 each: %s operations", phrase.Count(x.FMAs, "FMA"), phrase.Commas(x.Operations))
	default:
		d.heading("One phase of a block")
		d.row("loads", "%s = %s from global memory: %d×%d of A%s, %d×%d of B%s",
			sides, phrase.Count(x.Loads, "element"), x.M, x.K, ofA, x.K, x.N, ofB)
		d.row("operations", "%d × %d × %d = %s FMAs, counted 2 each: %s operations", x.M, x.N, x.K, phrase.Commas(x.FMAs),
			phrase.Commas(x.Operations))
		who := "loads by its " + phrase.Count(threads, "thread")
		if x.TensorReads {
			who = "elements that the tensor cores read directly"
		}
		d.row("shared memory", "%s %s: %.3g per FMA", phrase.Commas(x.SharedLoads), who,
			float64(x.SharedLoads)/float64(x.FMAs))
		if x.Stages > 1 {
			d.row("stages", "%d of %s: up to %d are loaded while one is multiplied", x.Stages,
				phrase.Count(x.StageBytes, "byte"), x.Stages-1)
		}
	}
	d.row("per load", "%s operations / %s loads = %.4g", phrase.Commas(x.Operations), phrase.Commas(x.Loads), x.PerLoad)
	d.row("intensity", "%.4g operations per load / %s = %.4g %s/byte", x.PerLoad,
		phrase.Count(int(x.PerLoad/x.Intensity), "byte"), x.Intensity, p.Unit)
	rounded := ""
	if p.K%x.Step != 0 {
		rounded = ", rounded up"
	}
	d.row("count", "%s / %d%s = %s", phrase.Commas(p.K), x.Step, rounded,
		phrase.Count(x.Count, map[string]string{"block": "phase", "thread": "step"}[x.Sharer]))
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
		rate = fmt.Sprintf("%s, %d products per product of the kernel", rate, x.Roof.Products)
	}
	d.line("The roofline of %s: %s%s/s (%s) and %sB/s, with the ridge at %.3g %s/byte.",
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
		d.line("Registers are not counted: no number is recorded for this kernel (--regs sets it). " +
			"They may allow fewer blocks.")
	}
	if w := x.Waves; w != nil {
		what := "block"
		if l.Blocks < l.tileBlocks() {
			what = "tile"
		}
		d.line("%s, %s at a time: %s, the last with %s; efficiency %.3g %%.",
			phrase.Count(l.tileBlocks(), what), phrase.Commas(w.Slots), phrase.Count(w.Count, "wave"), phrase.Commas(w.Last),
			100*w.Efficiency)
	}
}

// waiting explains whether the kernel profits from a second block on the SM.
func (x *Fit) waiting() string {
	switch {
	case !x.Barriers:
		return "Its threads share no data and never wait for each other, only for their own loads. More resident warps " +
			"keep more loads in flight.\n"
	case x.Specialised:
		return "It needs no second block: its warpgroups meet at no barrier while they multiply, and while one waits for a " +
			"stage, " +
			"TMA and the tensor cores continue.\n"
	}
	return x.Occupancy.Advice()
}

func (x *Padding) text(d *document) {
	d.heading("Padding the matrices to whole tiles")
	if x.ExtraBytes == 0 {
		d.line("It would cost nothing: the sizes are multiples of the tile's.")
		return
	}
	for _, o := range x.Matrices {
		d.row(o.Name, "%d×%d → %d×%d\t+%s", o.Rows, o.Cols, o.Padded[0], o.Padded[1], bytesText(o.ExtraBytes))
	}
	d.flush()
	d.line("Together %s more, %.3g %%, in GPU memory and in transfers.", bytesText(x.ExtraBytes), 100*x.Extra)
}

func (x *Measured) text(d *document, of *Explanation) {
	p, packed := &of.Product, of.Launch.Packed
	d.heading("Counters of the emulator")
	if x.M == p.M && x.N == p.N && x.K == p.K {
		d.line("The whole product, with all checkers.")
	} else {
		d.line("The same kernel on %d×%d · %d×%d, with all checkers. The row padding is equal modulo %d elements.",
			x.M, x.K, x.K, x.N, ldPeriod)
	}
	if packed != nil {
		d.line("The preceding launch, which packs %s, is not counted here; bench --device emu counts both.",
			strings.Join(packed, " and "))
	}
	d.line("")
	d.line("Global memory. A request of a warp transfers each sector of %d bytes that it touches once. At compute "+
		"capability 1.0, "+
		"a half-warp took 1 transaction if its thread k accessed word k of an aligned segment, and otherwise 1 per thread.",
		sectorBytes)
	d.row("access", "requests\tbytes\tsectors\tper request\tideal\tCC 1.0: transactions per half-warp")
	for _, a := range x.Global {
		d.row(a.What, "%s\t%s\t%s\t%s\t%s\t%s", phrase.Commas(a.Requests), phrase.Commas(a.RequestedBytes),
			phrase.Commas(a.Sectors), per(a.Sectors, a.Requests), per(a.Ideal, a.Requests), per(a.Transactions, a.HalfWarps))
	}
	d.flush()
	if len(x.Shared) > 0 {
		d.line("")
		d.line("Shared memory. The 32 banks serve a warp in one wavefront, unless threads access different words of the " +
			"same bank. At " +
			"compute capability 1.x, 16 banks served a half-warp. Atomics and mbarrier operations have no wavefronts here.")
		d.row("access", "requests\twavefronts\tper request\tideal\tCC 1.x: relative to ideal")
		for _, a := range x.Shared {
			if a.Ideal == 0 { // atomics
				d.row(a.What, "%s\t–\t–\t–\t–", phrase.Commas(a.Requests))
				continue
			}
			d.row(a.What, "%s\t%s\t%s\t%s\t%s", phrase.Commas(a.Requests), phrase.Commas(a.Wavefronts),
				per(a.Wavefronts, a.Requests), per(a.Ideal, a.Requests), per(a.Historic, a.HistoricIdeal))
		}
		d.flush()
	}
	d.line("")
	x.totals(d, of)
}

// totals writes the counters of the whole run.
func (x *Measured) totals(d *document, of *Explanation) {
	const maxOpcodes = 6
	var frequent []string
	for _, o := range x.Opcodes[:min(maxOpcodes, len(x.Opcodes))] {
		frequent = append(frequent, fmt.Sprintf("%s %s", o.Opcode, phrase.Commas(o.Warps)))
	}
	d.row("instructions", "%s by warps; most frequently %s", phrase.Commas(int64(x.Instructions)),
		strings.Join(frequent, ", "))
	d.row("operations", "2·M·N·K = %s %s of the product; %s issued, including padding of tiles and the epilogue",
		phrase.Commas(x.Flops), of.Product.Unit, phrase.Commas(x.Issued))
	d.row("distinct", "%s different sectors, %s read and %s written: the traffic with an unlimited cache",
		phrase.Commas(x.DistinctSectors), phrase.Commas(x.SectorsRead), phrase.Commas(x.SectorsWritten))
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

// seconds formats a time: "265 µs". Times from 1,000 s on have no prefix.
func seconds(s float64) string {
	if s >= 1000 {
		return phrase.Commas(int(s)) + " s"
	}
	return si(s) + "s"
}

// per formats the ratio a/b, or "–" if b is 0, such as half-warps of TMA loads.
func per(a, b int64) string {
	if b == 0 {
		return "–"
	}
	return fmt.Sprintf("%.3g", float64(a)/float64(b))
}

// document builds a text with headings and aligned rows.
type document struct {
	strings.Builder
	rows [][]string // label and cells of the rows not written yet
}

// width is the maximum line length in columns.
const width = 100

func (d *document) heading(text string) { d.line("\n%s\n", strings.ToUpper(text)) }

// line writes a line and breaks it if it is too long.
func (d *document) line(format string, args ...any) {
	d.WriteString(table.Continue(fmt.Sprintf(format, args...), width) + "\n")
}

// row adds a row to the table that flush writes. Tabs separate its cells.
func (d *document) row(label, format string, args ...any) {
	d.rows = append(d.rows, append([]string{label}, strings.Split(fmt.Sprintf(format, args...), "\t")...))
}

// flush writes the rows with aligned cells. Long cells continue on the next line below their start.
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
