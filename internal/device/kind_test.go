package device

import (
	"errors"
	"testing"
)

func TestAlso(t *testing.T) {
	kind, cause := errors.New("a kind"), errors.New("a cause")
	err := Also(kind, cause)
	if !errors.Is(err, kind) || !errors.Is(err, cause) || err.Error() != "a cause" {
		t.Errorf("%v is of its kind: %v, has its cause: %v", err, errors.Is(err, kind), errors.Is(err, cause))
	}
}
