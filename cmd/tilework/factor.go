package main

import (
	"strconv"

	"tilework/dtype"
	"tilework/internal/matio"
)

// factor is the value of a flag that is a number. It keeps the text, so that the number is rounded
// once to its type, which depends on the files.
type factor struct {
	text  string
	value float64 // the nearest float64
}

func (x *factor) String() string { return strconv.FormatFloat(x.value, 'g', -1, 64) }

func (x *factor) Type() string { return "float64" }

func (x *factor) Set(text string) (err error) {
	x.text = text
	x.value, err = strconv.ParseFloat(text, 64)
	return err
}

// in returns a number from which t rounds as from the number in the text.
func (x *factor) in(t dtype.Type) float64 {
	if v, ok := matio.ParseNumber(x.text, t); ok {
		return v
	}
	return x.value // a default, or a hexadecimal number
}
