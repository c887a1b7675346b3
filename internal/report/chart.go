package report

// Chart is one question put to the records, and their answer: in a sentence, in a
// drawing and in a table.
type Chart struct {
	ID       string // a word for links and names of files: "rate-gpu-float32"
	Title    string
	Question string
	// Headline is the answer, with figures from the records. It is empty where Drawing
	// is nil.
	Headline string
	Drawing  Drawing
	// Notes say what is missing, and what a reader must know to read the chart.
	Notes []string
	Table Table
}

// Table is the figures behind a drawing. The first column names the row.
type Table struct {
	Columns []string
	Rows    [][]string
}

// Lines is series of points on two axes.
type Lines struct {
	X, Y   Axis
	Series []Series
	Marks  []Mark
}

// Axis is a direction of [Lines].
type Axis struct {
	Label string
	Log   bool
	Text  func(float64) string // a value in words
	// To is what an axis from zero, one that is not logarithmic, reaches at least.
	To float64
	// Binary axes have their ticks at powers of two.
	Binary bool
}

// Series is points of one subject, in the order of their X.
type Series struct {
	Name   string
	Colour int  // what the series have in common that have the same one
	Glyph  int  // and the same of the points' form
	Dashed bool // it is a peer's, or a bound
	Bare   bool // a line without points, as a bound
	Loose  bool // points without a line
	Hollow bool // rings for points
	Points []Point
}

// Point is a place on the two axes. Text is what a reader who points at it is told.
type Point struct {
	X, Y  float64
	Text  string
	Aside bool // the line passes it by
}

// Mark is a place of note on the X axis.
type Mark struct {
	X    float64
	Text string
}

// Heat is a table whose cells are coloured by a ratio: 1 is the middle.
type Heat struct {
	Rows, Columns []string
	Cells         [][]Cell // of each row
	Low, High     string   // what ratios below 1, and above it, say
}

// Cell is a ratio; one of 0 is not there.
type Cell struct {
	Ratio float64
	Label string // in the cell
	Text  string // for a reader who points at it
}

// Bars is a bar for each row, made of parts one after the other.
type Bars struct {
	Label string // what a bar's whole length is
	Rows  []string
	Parts []string
	Share [][]float64 // of each row, of each part; a row's sum is 1
	Text  [][]string  // for a reader who points at the part
	Ends  []string    // behind each bar
}
