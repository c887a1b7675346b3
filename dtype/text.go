package dtype

import (
	"fmt"
	"strconv"
)

// MarshalText returns the name of the type, such as "float32", for JSON and flags. It fails if t is
// not valid.
func (t Type) MarshalText() ([]byte, error) {
	if !t.Valid() {
		return nil, fmt.Errorf("invalid element type %d", int(t))
	}
	return []byte(t.String()), nil
}

// text32 returns the shortest decimal number that rounds to f.
func text32(f float32) string { return strconv.FormatFloat(float64(f), 'g', -1, 32) }

// UnmarshalText parses a name like [Parse].
func (t *Type) UnmarshalText(text []byte) (err error) {
	*t, err = Parse(string(text))
	return err
}
