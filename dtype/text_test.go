package dtype

import (
	"encoding/json"
	"testing"
)

// TestText: every type is written as its name and read back; what is none is refused.
func TestText(t *testing.T) {
	for _, want := range All() {
		b, err := json.Marshal(want)
		var got Type
		if err == nil {
			err = json.Unmarshal(b, &got)
		}
		if err != nil || got != want || string(b) != `"`+want.String()+`"` {
			t.Errorf("%v: %s, %v, %v", want, b, got, err)
		}
	}
	if b, err := json.Marshal(Invalid); err == nil {
		t.Errorf("no type is written as %s", b)
	}
	var got Type
	if err := json.Unmarshal([]byte(`"float12"`), &got); err == nil {
		t.Errorf("float12 is read as %v", got)
	}
}
