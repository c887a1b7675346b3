package backend

import (
	"fmt"

	"tilework/internal/phrase"
)

// Config sets parameters of a CPU kernel. Zero fields are left to the planner. KC and Method
// change the order of summation; MC and Threads do not.
type Config struct {
	// MC and KC are block sizes: rows of C, and steps of K.
	MC int `json:"mc,omitempty"`
	KC int `json:"kc,omitempty"`
	// Method names the algorithm and its variant, such as "direct" or "blocked-pack-A".
	Method string `json:"method,omitempty"`
	// Threads lowers the number of goroutines that the caller allows.
	Threads int `json:"threads,omitempty"`
}

// String returns c in the form "blocked:64x64x8/8x4/4" or "avx2, KC 256, blocked".
func (c Choice) String() string {
	if c.Tile != "" {
		return c.Kernel + ":" + c.Tile
	}
	s := c.Kernel
	for _, field := range []struct {
		name  string
		value int
	}{{"MC", c.Config.MC}, {"KC", c.Config.KC}, {"threads", c.Config.Threads}} {
		if field.value > 0 {
			s += fmt.Sprintf(", %s %d", field.name, field.value)
		}
	}
	if c.Config.Method != "" {
		s += ", " + c.Config.Method
	}
	return s
}

// Printable returns c with texts that may be part of messages, for a c that another process sent.
func (c Choice) Printable() Choice {
	for _, text := range []*string{&c.Kernel, &c.Tile, &c.Config.Method} {
		*text = phrase.Printable(*text, 100)
	}
	return c
}
