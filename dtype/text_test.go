package dtype

import (
	"encoding/json"
	"testing"
)

func TestText(t *testing.T) {
	for _, want := range All() {
		b, err := json.Marshal(want)
		var got Type
		if err == nil {
			err = json.Unmarshal(b, &got)
		}
		if err != nil || got != want || string(b) != `"`+want.String()+`"` {
			t.Errorf("%v: marshalled as %s, unmarshalled as %v, error %v", want, b, got, err)
		}
	}
	if b, err := json.Marshal(Invalid); err == nil {
		t.Errorf("Invalid was marshalled as %s, want an error", b)
	}
	var got Type
	if err := json.Unmarshal([]byte(`"float12"`), &got); err == nil {
		t.Errorf("float12 was unmarshalled as %v, want an error", got)
	}
}
