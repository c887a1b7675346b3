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
	remark           // a line of a comment; text is without the comment marks
	punct            // one character
	broken           // invalid input; text describes it
)

type token struct {
	kind      tokenKind
	text      string
	line, col int
	// glued reports whether the token directly follows the previous one, without space.
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

// lexer splits the source into tokens. It never fails: invalid input becomes a broken token.
type lexer struct {
	src        string
	pos        int
	line       int
	lineStart  int
	glued      bool
	inBlock    bool // inside a /* */ comment
	blockStart int  // first line of that comment, for error messages
	// read is the number of bytes that the lexer has looked at. Tests compare it with the length of
	// the source.
	read int
}

func isWordStart(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == '$' || c == '%'
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isWord(c byte) bool { return isWordStart(c) && c != '%' || isDigit(c) }

// isMark reports whether s starts with a % or $ that does not begin a word.
func isMark(s string) bool { return (s[0] == '%' || s[0] == '$') && (len(s) == 1 || !isWord(s[1])) }

// next returns the next token. A comment of several lines is a token for each line.
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
		end := l.scan(rest, 2, func(c byte) bool { return c != '\n' })
		t := l.token(remark, cleanComment(rest[2:end]))
		l.pos += end
		return t
	case strings.HasPrefix(rest, "/*"):
		l.inBlock, l.blockStart = true, l.line
		l.pos += 2
		return l.blockComment()
	case isWordStart(c) && !isMark(rest):
		return l.take(word, l.scan(rest, 1, isWord))
	case isDigit(c):
		return l.take(number, l.scanNumber(rest))
	case c == '.' && len(rest) > 1 && isWord(rest[1]):
		n := l.scan(rest, 1, func(c byte) bool { return isWord(c) || c == ':' })
		// A colon at the end is a separate token. Only "::" is part of a word.
		for rest[n-1] == ':' {
			n--
		}
		t := l.take(dotted, n)
		t.text = t.text[1:]
		return t
	case c == '"':
		end := l.scan(rest, 1, func(c byte) bool { return c != '"' && c != '\n' })
		if end == len(rest) || rest[end] == '\n' {
			t := l.token(broken, "an unterminated string")
			l.pos += end
			return t
		}
		t := l.take(str, end+1)
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

// token returns a token that starts at the current position.
func (l *lexer) token(kind tokenKind, text string) token {
	return token{kind: kind, text: text, line: l.line, col: l.pos - l.lineStart + 1, glued: l.glued}
}

// take returns the next n bytes as a token and moves after them.
func (l *lexer) take(kind tokenKind, n int) token {
	t := l.token(kind, l.src[l.pos:l.pos+n])
	l.pos += n
	return t
}

// blockComment reads one line of a /* */ comment. It looks at no byte after the line or the
// comment, so that the time for a text with many comments is proportional to its length.
func (l *lexer) blockComment() token {
	rest := l.src[l.pos:]
	end := l.scan(rest, 0, func(c byte) bool { return c != '*' && c != '\n' })
	for end < len(rest) && rest[end] == '*' && !strings.HasPrefix(rest[end:], "*/") {
		end = l.scan(rest, end+1, func(c byte) bool { return c != '*' && c != '\n' })
	}
	if end == len(rest) {
		l.inBlock = false
		l.pos = len(l.src)
		return l.token(broken, fmt.Sprintf("an unterminated comment that starts at line %d", l.blockStart))
	}
	t := l.token(remark, cleanComment(rest[:end]))
	l.pos += end
	if l.inBlock = rest[end] == '\n'; l.inBlock {
		l.newline()
	} else {
		l.pos += len("*/")
	}
	return t
}

// cleanComment returns the text of a comment in the form that is read back unchanged after it has
// been printed following "// ".
func cleanComment(s string) string { return strings.TrimSpace(strings.ToValidUTF8(s, "?")) }

// scan returns the end of the longest run of bytes in s, starting at from, that satisfy in.
func (l *lexer) scan(s string, from int, in func(byte) bool) int {
	end := from
	for end < len(s) && in(s[end]) {
		end++
	}
	l.read += end - from
	return end
}

// scanNumber returns the length of the number at the start of s. It includes letters that
// directly follow, so that 12abc is one invalid number instead of a number and a word.
func (l *lexer) scanNumber(s string) int {
	n := l.scan(s, 1, isWord)
	decimal := len(s) < 2 || s[0] != '0' || !strings.ContainsRune("xXfFdDbB", rune(s[1]))
	if !decimal {
		return n
	}
	if n < len(s) && s[n] == '.' {
		n = l.scan(s, n+1, isWord)
	}
	if last := s[n-1]; (last == 'e' || last == 'E') && n < len(s) && (s[n] == '+' || s[n] == '-') {
		n = l.scan(s, n+1, isWord)
	}
	return n
}
