package ptx

import (
	"strings"
	"testing"

	"tilework/internal/testkit"
)

// TestLexerReadsOnce counts the bytes that the lexer looks at in texts that repeat one token. They
// must be at most the length of the text. After the start of another token, one length is enough.
func TestLexerReadsOnce(t *testing.T) {
	for _, repeated := range []string{
		"/*", "/**/", "/* a */ ", "*/", "/", "*", "/*\n", "/*\n*/", "//", "//\n", "\"", "\"\"", "\"\n",
		"\"a\" ", "\n", " ", ".", ":", "::", ".a", ".a:", ".a::", ".:", "%", "%a", "$", "_", "a", "a ",
		"1", "0x", "1.", "1e", "1e+", "1e+1 ", "0f", "{", "}", ";", "\x00", "\xff", "é",
	} {
		for _, before := range []string{"", "/*", "a", ".a", "\"", "1"} {
			lengths := testkit.Lengths()
			if before != "" {
				lengths = lengths[:1]
			}
			for _, n := range lengths {
				text := before + strings.Repeat(repeated, n/len(repeated))
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
