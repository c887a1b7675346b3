package ptx

import (
	"errors"
	"fmt"
	"strings"
)

// What the errors of this package wrap.
var (
	ErrSyntax      = errors.New("not PTX")            // the text cannot be read
	ErrInvalid     = errors.New("invalid PTX")        // it can, and breaks a rule
	ErrUnsupported = errors.New("unsupported in PTX") // it may be right, and this package does not know it
	ErrTarget      = errors.New("target too low")     // .version or .target lacks what is used
)

// Error is one finding.
type Error struct {
	Pos  Pos
	Kind error // one of the sentinels above
	Msg  string
}

func (e *Error) Error() string {
	if at := e.Pos.String(); at != "" {
		return at + ": " + e.Msg
	}
	return e.Msg
}

func (e *Error) Unwrap() error { return e.Kind }

// maxErrors is how many findings are gathered: what follows is mostly their echo.
const maxErrors = 20

// Errors is every finding about one module, in order.
type Errors []*Error

func (es Errors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Error()
	}
	if len(es) >= maxErrors {
		lines = append(lines, fmt.Sprintf("stopped after %d errors", maxErrors))
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.Is and errors.As see each finding.
func (es Errors) Unwrap() []error {
	errs := make([]error, len(es))
	for i, e := range es {
		errs[i] = e
	}
	return errs
}

// err is the findings as an error: nil if there are none.
func (es Errors) err() error {
	if len(es) == 0 {
		return nil
	}
	return es
}
