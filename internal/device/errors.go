package device

import (
	"errors"
	"strings"
)

// Also makes an error one of another kind too, without a word more: the error's own
// say enough.
func Also(kind, err error) error { return &also{err, kind} }

type also struct {
	error
	kind error
}

func (e *also) Unwrap() []error { return []error{e.error, e.kind} }

// Join is [errors.Join] on one line. Of a lost device only the first error is kept, as
// all that come after say the same.
func Join(errs ...error) error {
	kept := joined(nil).and(errs)
	switch len(kept) {
	case 0:
		return nil
	case 1:
		return kept[0]
	}
	return kept
}

type joined []error

func (j joined) and(errs []error) joined {
	for _, err := range errs {
		switch more, several := err.(joined); {
		case err == nil, errors.Is(err, ErrLost) && !several && errors.Is(j, ErrLost):
		case several:
			j = j.and(more)
		default:
			j = append(j, err)
		}
	}
	return j
}

func (j joined) Error() string {
	words := make([]string, len(j))
	for i, err := range j {
		words[i] = err.Error()
	}
	return strings.Join(words, "; then ")
}

func (j joined) Unwrap() []error { return j }
