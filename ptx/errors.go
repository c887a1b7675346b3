package ptx

import (
	"errors"
	"fmt"
	"strings"
)

// Errors returned by this package wrap one of these.
var (
	ErrSyntax      = errors.New("not PTX")         // the input does not match the grammar
	ErrInvalid     = errors.New("invalid PTX")     // the input is well-formed but breaks a rule
	ErrUnsupported = errors.New("unsupported PTX") // a feature that this package does not support
	ErrTarget      = errors.New("target too low")  // an instruction requires a later .version or .target
)

// Error is an error at one position of a module.
type Error struct {
	Pos  Pos
	Kind error // ErrSyntax, ErrInvalid, ErrUnsupported or ErrTarget
	Msg  string
	// Func is the function that Verify found the error in. It is nil for errors outside of
	// functions, and for errors of Parse.
	Func *Func
	// Truncated reports that errors were found after this one and left out.
	Truncated bool
}

func (e *Error) Error() string {
	if at := e.Pos.String(); at != "" {
		return at + ": " + e.Msg
	}
	return e.Msg
}

func (e *Error) Unwrap() error { return e.Kind }

// maxErrors is the maximum number of errors that Parse collects, that Verify collects for each
// function, and of lines in an error message. Further errors are mostly consequences of the first
// ones, in the same function.
const maxErrors = 20

// Errors is the list of all errors found in a module, in order.
type Errors []*Error

// Error returns one line for each error. Errors of a function that say the same about different
// instructions share a line. If there are more errors than lines, or if errors were left out of es,
// a last line says so.
func (es Errors) Error() string {
	type cause struct {
		fn   *Func
		text string
	}
	lineOf, more := map[cause]int{}, map[int]int{}
	var lines []string
	truncated := false
	for _, e := range es {
		truncated = truncated || e.Truncated
		_, text, _ := strings.Cut(e.Msg, ": ")
		c := cause{e.Func, text}
		if n, ok := lineOf[c]; ok && text != "" {
			more[n]++
			continue
		}
		lineOf[c] = len(lines)
		lines = append(lines, e.Error())
	}
	for n, count := range more {
		lines[n] += fmt.Sprintf(" (and %d more)", count)
	}
	if len(lines) > maxErrors {
		lines = append(lines[:maxErrors], fmt.Sprintf("and %d more", len(lines)-maxErrors))
	}
	if truncated {
		lines = append(lines, "further errors are not listed")
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the individual errors, for errors.Is and errors.As.
func (es Errors) Unwrap() []error {
	errs := make([]error, len(es))
	for i, e := range es {
		errs[i] = e
	}
	return errs
}

// err returns es as an error, or nil if es is empty.
func (es Errors) err() error {
	if len(es) == 0 {
		return nil
	}
	return es
}
