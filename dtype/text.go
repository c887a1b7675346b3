package dtype

import "fmt"

// MarshalText is the type's name, "float32", as JSON and flags have it. The error is
// that of the zero Type and of numbers that are no type.
func (t Type) MarshalText() ([]byte, error) {
	if !t.Valid() {
		return nil, fmt.Errorf("element type %d has no name", int(t))
	}
	return []byte(t.String()), nil
}

// UnmarshalText reads a name as [Parse] does.
func (t *Type) UnmarshalText(text []byte) (err error) {
	*t, err = Parse(string(text))
	return err
}
