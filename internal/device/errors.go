package device

import (
	"errors"
	"strings"
)

// WithKind returns an error that matches both kind and err with [errors.Is] and has the message of
// err.
func WithKind(kind, err error) error { return &withKind{err, kind} }

// withKind is the error that WithKind returns.
type withKind struct {
	error
	kind error
}

func (e *withKind) Unwrap() []error { return []error{e.error, e.kind} }

// Join is like [errors.Join] but formats the errors on one line. It keeps only the first error
// that matches ErrLost, because all later ones repeat it.
func Join(errs ...error) error {
	kept := joined(nil).add(errs)
	switch len(kept) {
	case 0:
		return nil
	case 1:
		return kept[0]
	}
	return kept
}

// joined is the error that Join returns for several errors.
type joined []error

// add appends errs to j, with each joined error flattened.
func (j joined) add(errs []error) joined {
	for _, err := range errs {
		switch more, several := err.(joined); {
		case err == nil, errors.Is(err, ErrLost) && !several && errors.Is(j, ErrLost):
		case several:
			j = j.add(more)
		default:
			j = append(j, err)
		}
	}
	return j
}

func (j joined) Error() string {
	messages := make([]string, len(j))
	for i, err := range j {
		messages[i] = err.Error()
	}
	return strings.Join(messages, "; then ")
}

func (j joined) Unwrap() []error { return j }
