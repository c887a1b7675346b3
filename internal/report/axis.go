package report

import "math"

// Axis is a horizontal or vertical axis of a drawing.
type Axis struct {
	Label string // the quantity and its unit
	Log   bool
	// Binary places the ticks of a logarithmic axis at powers of two.
	Binary bool
	Text   func(float64) string // label of a tick
	// To is the least upper end of a linear axis, which starts at zero.
	To float64
}

// scale maps the values of an axis to pixels.
type scale struct {
	*Axis
	low, high float64
	from, to  float64 // in pixels
}

// fit returns the scale of an axis that shows all of the values.
func (a *Axis) fit(values []float64) scale {
	s := scale{Axis: a, low: math.Inf(1), high: math.Inf(-1)}
	for _, v := range values {
		s.low, s.high = min(s.low, v), max(s.high, v)
	}
	if a.Log {
		margin := math.Pow(s.high/s.low, 0.04) * 1.04
		s.low, s.high = s.low/margin, s.high*margin
	} else {
		s.low, s.high = 0, max(s.high, a.To)
		if s.high == 0 {
			s.high = 1 // all values are zero
		}
	}
	return s
}

// at returns the pixel of a value.
func (s scale) at(v float64) float64 {
	part := (v - s.low) / (s.high - s.low)
	if s.Log {
		part = math.Log(v/s.low) / math.Log(s.high/s.low)
	}
	return s.from + part*(s.to-s.from)
}

// maxTicks returns the number of ticks whose labels fit side by side.
func (s scale) maxTicks() int {
	const gap = 18
	room := 0.0
	for _, v := range s.ticks(6) {
		room = max(room, textWidth(s.Text(v), false)+gap)
	}
	return min(int((s.to-s.from)/room), 10)
}

// ticks returns at most about limit round values.
func (s scale) ticks(limit int) []float64 {
	limit = max(limit, 2)
	if !s.Log {
		return s.multiples(limit)
	}
	all := s.powers(limit)
	if even := s.multiples(limit); len(all) < 2 && len(even) > len(all) {
		return even // a short range without powers
	}
	return all
}

// multiples returns the multiples of a round step in the range. The step of a Binary axis is at
// least 1.
func (s scale) multiples(limit int) []float64 {
	step := math.Pow10(int(math.Floor(math.Log10((s.high - s.low) / float64(limit)))))
	for _, factor := range []float64{1, 2, 2.5, 5, 10} {
		if (s.high-s.low)/(step*factor) <= float64(limit) {
			step *= factor
			break
		}
	}
	if s.Binary {
		step = max(step, 1)
	}
	var all []float64
	for i := math.Ceil(s.low / step); i*step <= s.high*(1+1e-9); i++ {
		all = append(all, i*step)
	}
	return all
}

// powers returns the powers of 10 or 2 in the range, or every n-th if there are more than limit. A
// short range gets round values between the powers of 10.
func (s scale) powers(limit int) []float64 {
	base := 10.0
	if s.Binary {
		base = 2
	}
	const slack = 1e-9
	first, last := math.Ceil(math.Log(s.low)/math.Log(base)-slack), math.Floor(math.Log(s.high)/math.Log(base)+slack)
	if !s.Binary && last-first < 3 {
		for _, parts := range [][]float64{{1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9}, {1, 1.5, 2, 3, 5, 7}, {1, 2, 5}, {1, 3},
			{1}} {
			var all []float64
			for e := first - 1; e <= last; e++ {
				for _, part := range parts {
					if v := part * math.Pow(10, e); v >= s.low && v <= s.high {
						all = append(all, v)
					}
				}
			}
			if len(all) <= limit {
				return all
			}
		}
	}
	var all []float64
	step := max(1, math.Ceil((last-first+1)/float64(limit)))
	for e := first; e <= last; e += step {
		all = append(all, math.Pow(base, e))
	}
	return all
}
