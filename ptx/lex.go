package ptx

import (
	"fmt"
	"strings"
)

type tokenKind uint8

const (
	eof    tokenKind = iota
	word             // an identifier: %r1, $L__BB0_2, add
	dotted           // .f32, .L2::128B; text is without the dot
	number           // 12, 0x1F, 0f3F800000, 1.5e-3
	str              // "…"; text is without the quotes
	remark           // a comment's line; text is without its marks
	punct            // one character
	broken           // what is no token; text says why
)

type token struct {
	kind      tokenKind
	text      string
	line, col int
	// glued says that nothing, not even a space, stands before the token.
	glued bool
}

func (t token) String() string {
	switch t.kind {
	case eof:
		return "the end of the text"
	case dotted:
		return fmt.Sprintf("%q", "."+t.text)
	case str:
		return "a string"
	case broken:
		return t.text
	}
	return fmt.Sprintf("%q", t.text)
}

// lexer cuts text into tokens. It never fails: what it cannot read becomes a
// broken token.
type lexer struct {
	src        string
	pos        int
	line       int
	lineStart  int
	glued      bool
	inBlock    bool // within a /* */ comment
	blockStart int  // its line, for the message if it never ends
}

func isWordStart(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == '$' || c == '%'
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isWord(c byte) bool { return isWordStart(c) && c != '%' || isDigit(c) }

func (l *lexer) next() token {
	if l.inBlock {
		return l.blockComment()
	}
	l.glued = true
	for l.pos < len(l.src) {
		switch l.src[l.pos] {
		case '\n':
			l.newline()
			continue
		case ' ', '\t', '\r', '\f', '\v':
			l.pos++
			l.glued = false
			continue
		}
		break
	}
	if l.pos >= len(l.src) {
		return l.token(eof, "")
	}
	rest := l.src[l.pos:]
	c := rest[0]
	switch {
	case strings.HasPrefix(rest, "//"):
		end := strings.IndexByte(rest, '\n')
		if end < 0 {
			end = len(rest)
		}
		t := l.token(remark, cleanComment(rest[2:end]))
		l.pos += end
		return t
	case strings.HasPrefix(rest, "/*"):
		l.inBlock, l.blockStart = true, l.line
		l.pos += 2
		return l.blockComment()
	case isWordStart(c):
		return l.take(word, scan(rest, 1, isWord))
	case isDigit(c):
		return l.take(number, scanNumber(rest))
	case c == '.' && len(rest) > 1 && isWord(rest[1]):
		n := scan(rest, 1, func(c byte) bool { return isWord(c) || c == ':' })
		// A label's colon may stand behind a dotted word only as "::".
		for rest[n-1] == ':' {
			n--
		}
		t := l.take(dotted, n)
		t.text = t.text[1:]
		return t
	case c == '"':
		end := strings.IndexAny(rest[1:], "\"\n")
		if end < 0 || rest[1+end] == '\n' {
			t := l.token(broken, "a string without its closing quote")
			l.pos += max(end+1, 1)
			return t
		}
		t := l.take(str, end+2)
		t.text = t.text[1 : len(t.text)-1]
		return t
	case c > 0x20 && c < 0x7f:
		return l.take(punct, 1)
	}
	t := l.token(broken, fmt.Sprintf("a byte %#02x", c))
	l.pos++
	return t
}

func (l *lexer) newline() {
	l.pos++
	l.line++
	l.lineStart = l.pos
	l.glued = false
}

func (l *lexer) token(kind tokenKind, text string) token {
	return token{kind: kind, text: text, line: l.line, col: l.pos - l.lineStart + 1, glued: l.glued}
}

func (l *lexer) take(kind tokenKind, n int) token {
	t := l.token(kind, l.src[l.pos:l.pos+n])
	l.pos += n
	return t
}

// blockComment reads one line of a /* */ comment.
func (l *lexer) blockComment() token {
	rest := l.src[l.pos:]
	end := strings.Index(rest, "*/")
	eol := strings.IndexByte(rest, '\n')
	switch {
	case end >= 0 && (eol < 0 || end < eol):
		t := l.token(remark, cleanComment(rest[:end]))
		l.pos += end + 2
		l.inBlock = false
		return t
	case eol >= 0:
		t := l.token(remark, cleanComment(rest[:eol]))
		l.pos += eol
		l.newline()
		return t
	}
	l.inBlock = false
	l.pos = len(l.src)
	return l.token(broken, fmt.Sprintf("the comment of line %d without its end", l.blockStart))
}

// cleanComment makes a comment's text such that it reads the same when it is
// printed behind "// ".
func cleanComment(s string) string { return strings.TrimSpace(strings.ToValidUTF8(s, "?")) }

func scan(s string, from int, in func(byte) bool) int {
	for from < len(s) && in(s[from]) {
		from++
	}
	return from
}

// scanNumber returns the length of the number that s starts with. What is glued to
// it is taken along, so that 12abc is one bad number and not a number and a word.
func scanNumber(s string) int {
	n := scan(s, 1, isWord)
	decimal := len(s) < 2 || s[0] != '0' || !strings.ContainsRune("xXfFdDbB", rune(s[1]))
	if !decimal {
		return n
	}
	if n < len(s) && s[n] == '.' {
		n = scan(s, n+1, isWord)
	}
	if last := s[n-1]; (last == 'e' || last == 'E') && n < len(s) && (s[n] == '+' || s[n] == '-') {
		n = scan(s, n+1, isWord)
	}
	return n
}
