package dtype

import (
	"encoding/json"
	"fmt"
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

// TestElementText checks that printing an element prints its value.
func TestElementText(t *testing.T) {
	for want, v := range map[string]any{
		"1.5": Float16From32(1.5), "-0.099975586": Float16From32(-0.1), "+Inf": Float16From32(1e6),
		"2.5": BFloat16From32(2.5), "448": Float8E4M3From32(448), "0.25": Float8E5M2From32(0.25),
	} {
		if got := fmt.Sprint(v); got != want {
			t.Errorf("%T: printed as %s, want %s", v, got, want)
		}
	}
}
