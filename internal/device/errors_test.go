package device

import (
	"errors"
	"testing"
)

func TestWithKind(t *testing.T) {
	kind, cause := errors.New("a kind"), errors.New("a cause")
	err := WithKind(kind, cause)
	if !errors.Is(err, kind) || !errors.Is(err, cause) || err.Error() != "a cause" {
		t.Errorf("got %v, which matches kind: %v, cause: %v; want %v, which matches both", err, errors.Is(err, kind),
			errors.Is(err, cause), cause)
	}
}

func TestJoin(t *testing.T) {
	a, b := errors.New("a"), errors.New("b")
	lost, again := WithKind(ErrLost, errors.New("gone")), WithKind(ErrLost, errors.New("still gone"))
	for _, c := range []struct {
		errs []error
		want string // empty for no error
	}{
		{nil, ""},
		{[]error{nil, nil}, ""},
		{[]error{nil, a, nil}, "a"},
		{[]error{a, nil, b}, "a; then b"},
		{[]error{a, lost, again, b}, "a; then gone; then b"},
		{[]error{lost, Join(a, again, b)}, "gone; then a; then b"},
	} {
		err := Join(c.errs...)
		if (err == nil) != (c.want == "") || err != nil && err.Error() != c.want {
			t.Errorf("Join(%v) = %v, want %q", c.errs, err, c.want)
		}
	}
	if err := Join(a, b, lost); !errors.Is(err, a) || !errors.Is(err, b) || !errors.Is(err, ErrLost) {
		t.Errorf("%v does not match all errors that it joins", err)
	}
}
