package matio

import (
	"fmt"
	"strconv"
	"strings"

	"tilework/internal/gemm"
)

// npyDict is the Python dictionary of a NumPy header.
type npyDict struct {
	descr   string
	fortran bool
	shape   []uint64
}

// parseNpyDict parses a dictionary literal with exactly the three keys of a header, in any order.
// It evaluates no Python.
func parseNpyDict(text string) (npyDict, error) {
	var d npyDict
	p := pyParser{text: text}
	seen := map[string]bool{}
	if !p.accept('{') {
		return d, p.wrong("a dictionary")
	}
	for !p.accept('}') {
		key, ok := p.str()
		if !ok {
			return d, p.wrong("a key or }")
		}
		if seen[key] {
			return d, fmt.Errorf("%w: header key %q appears twice", ErrFormat, key)
		}
		seen[key] = true
		if !p.accept(':') {
			return d, p.wrong(":")
		}
		switch key {
		case "descr":
			if c := p.peek(); c == '[' || c == '(' {
				return d, fmt.Errorf("%w: elements have a structured type: want numbers", gemm.ErrUnsupported)
			}
			if d.descr, ok = p.str(); !ok {
				return d, p.wrong("a type such as '<f4'")
			}
		case "fortran_order":
			switch {
			case p.word("True"):
				d.fortran = true
			case !p.word("False"):
				return d, p.wrong("True or False")
			}
		case "shape":
			if d.shape, ok = p.tuple(); !ok {
				return d, p.wrong("a shape such as (2, 3)")
			}
		default:
			return d, fmt.Errorf("%w: unknown header key %.40q, want descr, fortran_order and shape", ErrFormat, key)
		}
		if !p.accept(',') && p.peek() != '}' {
			return d, p.wrong(", or }")
		}
	}
	if p.space(); p.pos < len(p.text) {
		return d, p.wrong("the end")
	}
	for _, key := range []string{"descr", "fortran_order", "shape"} {
		if !seen[key] {
			return d, fmt.Errorf("%w: header lacks the key %q", ErrFormat, key)
		}
	}
	return d, nil
}

// pyParser parses Python literals. Each method first skips white space. If the input does not
// match, it reports false and does not advance further.
type pyParser struct {
	text string
	pos  int
}

// space skips white space.
func (p *pyParser) space() {
	for p.pos < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.pos]) >= 0 {
		p.pos++
	}
}

// peek returns the next character, or 0 at the end.
func (p *pyParser) peek() byte {
	p.space()
	if p.pos == len(p.text) {
		return 0
	}
	return p.text[p.pos]
}

// accept consumes the character c.
func (p *pyParser) accept(c byte) bool {
	if p.peek() != c || p.pos == len(p.text) {
		return false
	}
	p.pos++
	return true
}

// word consumes the word w.
func (p *pyParser) word(w string) bool {
	p.space()
	if !strings.HasPrefix(p.text[p.pos:], w) {
		return false
	}
	p.pos += len(w)
	return true
}

// str parses a quoted string. It rejects backslashes, which no valid header contains.
func (p *pyParser) str() (string, bool) {
	quote := p.peek()
	if quote != '\'' && quote != '"' {
		return "", false
	}
	rest := p.text[p.pos+1:]
	end := strings.IndexByte(rest, quote)
	if end < 0 || strings.ContainsAny(rest[:end], "\\\n") {
		return "", false
	}
	p.pos += end + 2
	return rest[:end], true
}

// tuple parses a tuple of non-negative integers. As in Python, a single element needs a comma.
func (p *pyParser) tuple() ([]uint64, bool) {
	if !p.accept('(') {
		return nil, false
	}
	shape := []uint64{}
	comma := true
	for !p.accept(')') {
		n, ok := p.integer()
		if !ok || !comma {
			return nil, false
		}
		shape = append(shape, n)
		comma = p.accept(',')
	}
	return shape, len(shape) != 1 || comma
}

// integer parses a decimal number. It accepts the trailing L that Python 2 wrote.
func (p *pyParser) integer() (uint64, bool) {
	p.space()
	end := p.pos
	for end < len(p.text) && p.text[end] >= '0' && p.text[end] <= '9' {
		end++
	}
	n, err := strconv.ParseUint(p.text[p.pos:end], 10, 64)
	if err != nil {
		return 0, false
	}
	p.pos = end
	if p.pos < len(p.text) && p.text[p.pos] == 'L' {
		p.pos++
	}
	return n, true
}

// wrong returns an error that describes the text found at the current position and the text wanted.
func (p *pyParser) wrong(want string) error {
	p.space()
	if p.pos == len(p.text) {
		return fmt.Errorf("%w: header ends early, want %s", ErrFormat, want)
	}
	return fmt.Errorf("%w: header has %.24q at byte %d, want %s", ErrFormat, p.text[p.pos:], p.pos, want)
}
