package ptx

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// maxDepth is the maximum nesting depth of blocks and of initializers.
const maxDepth = 64

// maxMods is the maximum number of modifiers of an instruction, several times that of any
// instruction of the manual.
const maxMods = 64

// Parse parses PTX source. The name of the file appears in positions and error messages. Parse
// skips debug sections and comments inside statements, and NUL bytes at the end, which NVRTC
// counts as part of the text. The module keeps everything else, with its positions.
//
// Parse checks the grammar, and [Verify] all other rules. The error is of type [Errors]. It holds
// a limited number of errors, which wrap ErrSyntax or ErrUnsupported.
func Parse(file, text string) (*Module, error) {
	p := &parser{lex: lexer{src: strings.TrimRight(text, "\x00"), line: 1}, file: file, m: &Module{AddressSize: 32}}
	p.advance()
	p.module()
	if err := p.errs.err(); err != nil {
		return nil, err
	}
	return p.m, nil
}

type parser struct {
	lex     lexer
	file    string
	tok     token
	m       *Module
	errs    Errors
	remarks []*Comment // comments directly before tok
}

// bail is the panic value that abandons a statement with an error. The statement loops recover
// it.
type bail struct{}

// advance moves to the next token and collects the comments before it. Comments that have not
// been taken by the next call are inside a statement: they are dropped.
func (p *parser) advance() {
	lastLine := p.tok.line
	p.remarks = nil
	for {
		p.tok = p.lex.next()
		if p.tok.kind != remark {
			return
		}
		trailing := p.tok.line == lastLine && len(p.remarks) == 0
		p.remarks = append(p.remarks, &Comment{Pos: p.pos(), Text: p.tok.text, Trailing: trailing})
	}
}

func (p *parser) pos() Pos { return Pos{p.file, p.tok.line, p.tok.col} }

// fail adds an error and abandons the statement.
func (p *parser) fail(at Pos, kind error, format string, args ...any) {
	if len(p.errs) < maxErrors {
		p.errs = append(p.errs, &Error{Pos: at, Kind: kind, Msg: fmt.Sprintf(format, args...)})
	} else {
		p.errs[maxErrors-1].Truncated = true
	}
	panic(bail{})
}

// full reports whether an error was left out. Parsing then stops.
func (p *parser) full() bool { return len(p.errs) == maxErrors && p.errs[maxErrors-1].Truncated }

// want fails with an error about the current token.
func (p *parser) want(what string) { p.fail(p.pos(), ErrSyntax, "found %v, want %s", p.tok, what) }

// try calls f and reports whether it returned without an error.
func (p *parser) try(f func()) (ok bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, mine := r.(bail); !mine {
				panic(r)
			}
		}
	}()
	f()
	return true
}

// is reports whether the current token is the given character.
func (p *parser) is(punctuation byte) bool {
	return p.tok.kind == punct && p.tok.text[0] == punctuation
}

// accept skips the given character, if it is next, and reports whether it was.
func (p *parser) accept(punctuation byte) bool {
	if !p.is(punctuation) {
		return false
	}
	p.advance()
	return true
}

// expect skips the given character, and fails if another token is next.
func (p *parser) expect(punctuation byte) {
	if !p.accept(punctuation) {
		p.want(strconv.Quote(string(punctuation)))
	}
}

// acceptDot skips one of the given words after a dot, if it is next, and returns it.
func (p *parser) acceptDot(names ...string) (name string, ok bool) {
	if p.tok.kind != dotted || !slices.Contains(names, p.tok.text) {
		return "", false
	}
	name = p.tok.text
	p.advance()
	return name, true
}

// text skips a token of the given kind and returns its text. It fails if another token is next.
func (p *parser) text(kind tokenKind, what string) string {
	if p.tok.kind != kind {
		p.want(what)
	}
	s := p.tok.text
	p.advance()
	return s
}

// takeRemarks returns the comments before the current token and clears the list.
func (p *parser) takeRemarks() []*Comment {
	r := p.remarks
	p.remarks = nil
	return r
}

// statement passes the comments before a statement to keep, then parses the statement with f.
// After an error it skips the rest of the statement.
func (p *parser) statement(keep func(*Comment), f func()) {
	for _, c := range p.takeRemarks() {
		keep(c)
	}
	if p.tok.kind == eof || p.is('}') {
		return
	}
	start := p.tok
	if !p.try(f) {
		if p.tok == start {
			p.advance()
		}
		for p.tok.kind != eof && !p.is(';') && !p.is('{') && !p.is('}') {
			p.advance()
		}
		p.accept(';')
	}
}

func (p *parser) module() {
	keep := func(c *Comment) {
		c.Trailing = c.Trailing && len(p.m.Decls) > 0 && !isComment(p.m.Decls[len(p.m.Decls)-1])
		p.m.Decls = append(p.m.Decls, c)
	}
	for _, c := range p.takeRemarks() {
		keep(c)
	}
	if !p.try(p.header) {
		return
	}
	for p.tok.kind != eof && !p.full() {
		if p.is('}') {
			p.try(func() { p.want("a declaration") })
			p.advance()
			continue
		}
		p.statement(keep, p.decl)
	}
	for _, c := range p.takeRemarks() {
		keep(c)
	}
}

func isComment(x any) bool {
	_, ok := x.(*Comment)
	return ok
}

// header parses .version, .target and .address_size.
func (p *parser) header() {
	if _, ok := p.acceptDot("version"); !ok {
		if other := p.otherFormat(); other != "" {
			p.fail(p.pos(), ErrSyntax, "this is %s: want PTX, such as that of nvcc -ptx", other)
		}
		p.want(`".version"`)
	}
	at, text := p.pos(), p.text(number, "a version such as 8.0")
	v, ok := ParseVersion(text)
	if !ok {
		p.fail(at, ErrSyntax, "found version %q, want one such as 8.0", text)
	}
	p.m.Version = v
	if _, ok := p.acceptDot("target"); !ok {
		p.want(`".target"`)
	}
	at, text = p.pos(), p.text(word, "a target such as sm_80")
	if p.m.Target, ok = ParseTarget(text); !ok {
		p.fail(at, ErrSyntax, "found target %q, want one such as sm_80", text)
	}
	for p.accept(',') {
		p.m.Options = append(p.m.Options, p.text(word, "a target's option"))
	}
	if _, ok := p.acceptDot("address_size"); ok {
		at := p.pos()
		if p.m.AddressSize = p.smallInt("32 or 64"); p.m.AddressSize != 32 && p.m.AddressSize != 64 {
			p.fail(at, ErrSyntax, "found address size %d, want 32 or 64", p.m.AddressSize)
		}
	}
}

// otherFormat names the format of a source that is not PTX, or returns "".
func (p *parser) otherFormat() string {
	src := p.lex.src
	switch {
	case strings.HasPrefix(src, "\x7fELF"):
		return "machine code"
	case p.is('#'), strings.Contains(src, "__global__"), strings.Contains(src, "__device__"):
		return "CUDA C"
	}
	return ""
}

func (p *parser) decl() {
	pos := p.pos()
	if p.tok.kind != dotted {
		p.want("a declaration such as .entry")
	}
	switch p.tok.text {
	case "file":
		p.advance()
		f := &File{Pos: pos, Index: p.smallInt("a file's number"), Path: p.text(str, "a file's name")}
		for p.accept(',') { // timestamp and size
			p.text(number, "a number")
		}
		p.m.Decls = append(p.m.Decls, f)
		return
	case "section":
		p.section()
		return
	case "pragma":
		p.m.Decls = append(p.m.Decls, p.pragma())
		return
	}
	linkage, _ := p.acceptDot("visible", "extern", "weak", "common")
	if kind, ok := p.acceptDot("entry", "func"); ok {
		p.function(&Func{Pos: pos, Linkage: linkage, Entry: kind == "entry"})
		return
	}
	for _, v := range p.vars(pos, linkage) {
		p.m.Decls = append(p.m.Decls, v)
	}
}

// section skips a debug section.
func (p *parser) section() {
	p.advance()
	for p.tok.kind == dotted || p.tok.kind == word {
		p.advance()
	}
	p.expect('{')
	for !p.accept('}') {
		if p.tok.kind == eof {
			p.want(`"}"`)
		}
		p.advance()
	}
}

func (p *parser) pragma() *Pragma {
	s := &Pragma{Pos: p.pos()}
	p.advance()
	s.Text = p.text(str, "a string")
	p.expect(';')
	return s
}

func (p *parser) function(f *Func) {
	if _, ok := p.acceptDot("attribute"); ok {
		p.fail(f.Pos, ErrUnsupported, ".attribute is not supported for functions")
	}
	if !f.Entry && p.is('(') {
		f.Results = p.params()
	}
	f.Name = p.text(word, "a function's name")
	p.signature(f)
	if p.is('{') {
		f.Body = p.block(1)
	} else if !p.accept(';') {
		p.want(`"{" or ";"`)
	}
	p.m.Decls = append(p.m.Decls, f)
}

// signature parses the parameters and directives after a function's name.
func (p *parser) signature(f *Func) {
	if p.is('(') {
		f.Params = p.params()
	}
	for p.tok.kind == dotted {
		row, ok := functionAttrs[p.tok.text]
		if !ok {
			p.want("a function's directive or its body")
		}
		a := Attr{Name: p.tok.text}
		p.advance()
		for len(a.Args) < row.args {
			a.Args = append(a.Args, p.smallInt("a number"))
			if !p.accept(',') {
				break
			}
		}
		f.Attrs = append(f.Attrs, a)
	}
}

// smallInt parses an integer outside of operands, such as a size or a line number. Error
// messages use the given name for it.
func (p *parser) smallInt(name string) int {
	n, ok := parseImm(p.tok.text)
	if p.tok.kind != number || !ok || n.Kind != Int || n.Bits > math.MaxInt32 {
		p.want(name)
	}
	p.advance()
	return int(n.Bits)
}
