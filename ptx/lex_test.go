package ptx

import (
	"strings"
	"testing"

	"tilework/internal/testkit"
)

// TestLexerReadsOnce counts the bytes that the lexer looks at in texts that repeat one token, of 1,
// 2, 4 and 8 times the same length. They must be at most the length of the text.
func TestLexerReadsOnce(t *testing.T) {
	unit := 16 << 10
	if testkit.Full() {
		unit = 1 << 20
	}
	for _, repeated := range []string{
		"/*", "/**/", "/* a */ ", "*/", "/", "*", "/*\n", "/*\n*/", "//", "//\n", "\"", "\"\"", "\"\n",
		"\"a\" ", "\n", " ", ".", ":", "::", ".a", ".a:", ".a::", ".:", "%", "%a", "$", "_", "a", "a ",
		"1", "0x", "1.", "1e", "1e+", "1e+1 ", "0f", "{", "}", ";", "\x00", "\xff", "é",
	} {
		for _, before := range []string{"", "/*", "a", ".a", "\"", "1"} {
			for _, times := range []int{1, 2, 4, 8} {
				text := before + strings.Repeat(repeated, times*unit/len(repeated))
				l := lexer{src: text, line: 1}
				tokens := 0
				for l.next().kind != eof {
					tokens++
				}
				if l.read > len(text) || tokens > len(text) {
					t.Errorf("%s and repeated %q: looked at %d bytes of %d for %d tokens", before, repeated, l.read,
						len(text), tokens)
				}
			}
		}
	}
}
