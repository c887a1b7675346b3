package bench

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"tilework/internal/table"
)

// Chosen is the name of the subject that uses the automatic choice of a kernel, in measurements
// that compare it with its candidates.
const Chosen = "auto"

// Choice compares the automatic choice of a kernel with its candidates, for one product.
type Choice struct {
	Chosen *Record
	Best   *Record // the fastest; Chosen if no candidate is faster
	Others int     // number of candidates besides the chosen one
}

// Loss returns by how much of the best time the choice takes longer.
func (c *Choice) Loss() float64 { return c.Chosen.Seconds.Median/c.Best.Seconds.Median - 1 }

// Choices returns the choices among the records, in their order. It leaves out products for which
// the choice was not timed.
func Choices(records []Record) []Choice {
	var all []Choice
	at := map[identity]int{}
	product := func(r *Record) identity {
		i := r.identity()
		i.subject = ""
		return i
	}
	for i := range records {
		if r := &records[i]; r.Subject == Chosen && r.Timed() {
			at[product(r)] = len(all)
			all = append(all, Choice{Chosen: r, Best: r})
		}
	}
	for i := range records {
		r := &records[i]
		n, ok := at[product(r)]
		if !ok || r.Peer || r.Subject == Chosen || !r.Timed() {
			continue
		}
		c := &all[n]
		c.Others++
		if r.Seconds.Median < c.Best.Seconds.Median {
			c.Best = r
		}
	}
	return all
}

// excess returns how many times as long as predicted the product of r took, and whether that is
// known.
func (r *Record) excess() (ratio float64, known bool) {
	predicted := r.predicted()
	if predicted == 0 || !r.Timed() {
		return 0, false
	}
	return r.Seconds.Median / predicted, true
}

// predicted returns the predicted time in seconds, at the measured clock rate, or 0 if it is not
// known.
func (r *Record) predicted() float64 {
	if clock := r.clock(); r.Predicted > 0 && clock > 0 {
		return r.Predicted / clock
	}
	return r.PredictedSeconds
}

// clock returns the clock rate of the device in Hz while the record was measured, or 0.
func (r *Record) clock() float64 {
	if r.Load == nil {
		return 0
	}
	return r.Load.SMClock.Median * 1e6
}

// WriteChoices writes a table of the choices, the mean and the largest loss for each type, the
// errors of the predictions, the comparison with peers, and the environments. A width of 0 is no
// limit.
func WriteChoices(w io.Writer, records []Record, width int) error {
	choices := Choices(records)
	columns := slices.Clone(choiceColumns)
	for _, p := range peersOf(records) {
		columns = append(columns, textColumn[Choice]{table.Column{Title: "× " + p}, func(c *Choice) string {
			return c.Chosen.ratioText(p)
		}})
	}
	if err := writeColumns(w, width, choices, columns); err != nil {
		return err
	}
	lines := choiceLines(choices)
	lines = append(lines, summaryLines(slices.DeleteFunc(slices.Clone(records), func(r Record) bool {
		return !r.Peer && r.Subject != Chosen
	}))...)
	for i := range records {
		if r := &records[i]; r.Error != "" && r.Subject == Chosen {
			lines = append(lines, fmt.Sprintf("%s %s: %s", r.Types(), r.shape(), oneLine(r.Error)))
		}
	}
	lines = append(lines, environmentLines(records)...)
	return writeLines(w, width, lines)
}

// choiceColumns are the columns of the table of choices, without the ratios to peers.
var choiceColumns = []textColumn[Choice]{
	{table.Column{Title: "type"}, func(c *Choice) string { return c.Chosen.Types() }},
	{table.Column{Title: "M×N×K"}, func(c *Choice) string { return c.Chosen.shape() }},
	{table.Column{Title: "trans", Drop: 1}, func(c *Choice) string { return c.Chosen.Transposes() }},
	{table.Column{Title: "chosen", Wrap: true}, func(c *Choice) string { return c.Chosen.Detail }},
	{table.Column{Title: "predicted", Drop: 3}, func(c *Choice) string { return c.Chosen.predictedText() }},
	{table.Column{Title: "median"}, func(c *Choice) string { return Duration(c.Chosen.Seconds.Median) }},
	{table.Column{Title: "best of"}, func(c *Choice) string { return strconv.Itoa(c.Others + 1) }},
	{table.Column{Title: "best", Wrap: true}, better(func(c *Choice) string { return c.Best.Detail })},
	{table.Column{Title: "predicted", Drop: 2}, better(func(c *Choice) string { return c.Best.predictedText() })},
	{table.Column{Title: "median"}, better(func(c *Choice) string { return Duration(c.Best.Seconds.Median) })},
	{table.Column{Title: "loss"}, better(func(c *Choice) string { return fmt.Sprintf("%.1f%%", 100*c.Loss()) })},
}

// better returns text, or the empty string for a choice that is the best candidate.
func better(text func(*Choice) string) func(*Choice) string {
	return func(c *Choice) string {
		if c.Best == c.Chosen {
			return ""
		}
		return text(c)
	}
}

func (r *Record) shape() string { return fmt.Sprintf("%d×%d×%d", r.M, r.N, r.K) }

// predictedText returns the predicted time, or the empty string if it is not known.
func (r *Record) predictedText() string {
	if t := r.predicted(); t > 0 {
		return Duration(t)
	}
	return ""
}

// choiceLines sums up the losses of each type and the errors of the predictions.
func choiceLines(choices []Choice) (lines []string) {
	var types []string
	byType := map[string][]Choice{}
	for _, c := range choices {
		name := c.Chosen.Types()
		if c.Chosen.Precision != "" {
			name += " as " + c.Chosen.Precision
		}
		if byType[name] == nil {
			types = append(types, name)
		}
		byType[name] = append(byType[name], c)
	}
	for _, name := range types {
		of := byType[name]
		sum := 0.0
		worst := slices.MaxFunc(of, func(x, y Choice) int { return cmp.Compare(x.Loss(), y.Loss()) })
		for _, c := range of {
			sum += c.Loss()
		}
		line := fmt.Sprintf("%s: the choice takes %.1f%% longer than the best candidate in the mean of %d, "+
			"%.1f%% at most (%s)", name, 100*sum/float64(len(of)), len(of), 100*worst.Loss(), worst.Chosen.shape())
		lines = append(lines, line+predictionText(of))
	}
	return lines
}

// predictionText describes the errors of the predictions, or is empty if there are none.
func predictionText(choices []Choice) string {
	var logs []float64
	for _, c := range choices {
		if x, ok := c.Chosen.excess(); ok {
			logs = append(logs, math.Log(x))
		}
	}
	if len(logs) == 0 {
		return ""
	}
	slices.Sort(logs)
	at := func(part float64) float64 { return math.Exp(logs[int(part*float64(len(logs)-1)+0.5)]) }
	return fmt.Sprintf("; it takes %.2f × the predicted time in the median, %.2f to %.2f in 80 %%", at(0.5), at(0.1),
		at(0.9))
}
