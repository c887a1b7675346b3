package ptx

import (
	"math"
	"strconv"
	"strings"
)

// block parses a block, including its braces.
func (p *parser) block(depth int) *Block {
	b := &Block{Pos: p.pos()}
	if depth > maxDepth {
		p.fail(b.Pos, ErrSyntax, "blocks are nested more than %d deep", maxDepth)
	}
	p.expect('{')
	keep := func(c *Comment) {
		c.Trailing = c.Trailing && (len(b.Stmts) == 0 || !isComment(b.Stmts[len(b.Stmts)-1]))
		b.Stmts = append(b.Stmts, c)
	}
	for !p.is('}') {
		if p.tok.kind == eof || p.full() {
			p.want(`"}"`)
		}
		p.statement(keep, func() { b.Stmts = append(b.Stmts, p.stmt(depth)...) })
	}
	for _, c := range p.takeRemarks() {
		keep(c)
	}
	p.advance()
	return b
}

func (p *parser) stmt(depth int) []Stmt {
	switch {
	case p.is('{'):
		return []Stmt{p.block(depth + 1)}
	case p.is('@') || p.tok.kind == word:
		return []Stmt{p.instrOrLabel()}
	case p.tok.kind != dotted:
		p.want("a statement")
	}
	switch p.tok.text {
	case "loc":
		return []Stmt{p.loc()}
	case "pragma":
		return []Stmt{p.pragma()}
	}
	var stmts []Stmt
	for _, v := range p.vars(p.pos(), "") {
		stmts = append(stmts, v)
	}
	return stmts
}

// targets parses a .branchtargets or .calltargets directive after its label.
func (p *parser) targets(t *Targets) *Targets {
	p.advance()
	for {
		t.List = append(t.List, &Name{Name: p.text(word, "a label or a function")})
		if !p.accept(',') {
			break
		}
	}
	p.expect(';')
	return t
}

// prototype parses a .callprototype directive after its label.
func (p *parser) prototype(pos Pos, name string) *Prototype {
	p.advance()
	f := &Func{Pos: pos, Name: name}
	if p.is('(') {
		f.Results = p.params()
	}
	p.text(word, "a name or _")
	p.signature(f)
	p.expect(';')
	return &Prototype{pos, f}
}

// loc parses a .loc directive, such as .loc 1 12 3. It skips the name of an inlined function.
func (p *parser) loc() *Loc {
	l := &Loc{Pos: p.pos()}
	p.advance()
	l.File, l.Line, l.Col = p.smallInt("a file's number"), p.smallInt("a line"), p.smallInt("a column")
	for p.accept(',') {
		switch p.text(word, "function_name or inlined_at") {
		case "function_name":
			p.text(word, "a label")
			if p.accept('+') {
				p.smallInt("an offset")
			}
		case "inlined_at":
			l.InlinedAt = &Loc{File: p.smallInt("a file's number"), Line: p.smallInt("a line"), Col: p.smallInt("a column")}
		}
	}
	return l
}

func (p *parser) instrOrLabel() Stmt {
	i := &Instr{Pos: p.pos()}
	if p.accept('@') {
		neg := p.accept('!')
		i.Guard = &Guard{Neg: neg, Pred: &Name{Name: p.text(word, "a predicate")}}
	}
	i.Op = p.text(word, "an instruction")
	if i.Guard == nil && p.accept(':') {
		switch {
		case p.tok.kind != dotted:
		case p.tok.text == "branchtargets" || p.tok.text == "calltargets":
			return p.targets(&Targets{Pos: i.Pos, Name: i.Op, Call: p.tok.text == "calltargets"})
		case p.tok.text == "callprototype":
			return p.prototype(i.Pos, i.Op)
		}
		return &Label{Pos: i.Pos, Name: i.Op}
	}
	for p.tok.kind == dotted {
		if len(i.Mods) == maxMods {
			p.fail(i.Pos, ErrSyntax, "%s has more than %d modifiers", i.Op, maxMods)
		}
		i.Mods = append(i.Mods, p.tok.text)
		p.advance()
	}
	for !p.accept(';') {
		if len(i.Args) > 0 {
			if !p.is(',') {
				p.want(`"," or ";"`)
			}
			p.advance()
		}
		i.Args = append(i.Args, p.operand(true))
	}
	return i
}

// name parses a name and its member, if any.
func (p *parser) name(what string) *Name {
	n := &Name{Name: p.text(word, what)}
	if p.tok.kind == dotted && p.tok.glued {
		n.Member = p.tok.text
		p.advance()
	}
	return n
}

// operand parses an operand. Pairs, vectors, addresses and lists are accepted only if top is set.
func (p *parser) operand(top bool) Operand {
	switch {
	case p.tok.kind == number:
		return p.imm()
	case p.is('-'):
		at := p.pos()
		if p.advance(); p.tok.kind == word {
			return &Minus{p.name("a register")}
		}
		return p.constant(at, true)
	case p.is('!'):
		p.advance()
		return &Not{p.name("a predicate")}
	case p.is('[') && top:
		return p.addr()
	case p.is('{') && top:
		v := p.vector()
		if p.accept('|') {
			return &Pair{v, p.scalar()}
		}
		return v
	case p.is('(') && top:
		p.advance()
		a := &Args{}
		for !p.accept(')') {
			if len(a.List) > 0 {
				p.expect(',')
			}
			a.List = append(a.List, p.operand(false))
		}
		return a
	case p.tok.kind != word:
		p.want("an operand")
	}
	first := p.scalar()
	if top && p.accept('|') {
		return &Pair{first, p.scalar()}
	}
	return first
}

// scalar parses a register, a symbol, a sum or a sink.
func (p *parser) scalar() Operand {
	if p.tok.kind == word && p.tok.text == "_" {
		p.advance()
		return &Sink{}
	}
	return p.sum(p.name("a register"))
}

// sum parses the offset after the name of a variable, if any.
func (p *parser) sum(n *Name) Operand {
	if n.Member != "" {
		return n
	}
	if off := p.offset(); off != 0 {
		return &Sum{n, off}
	}
	return n
}

// offset parses +n after the base of an address, or returns 0 if there is none. It also accepts -n,
// which ptxas rejects.
func (p *parser) offset() int64 {
	neg := false
	switch {
	case p.accept('+'):
		neg = p.accept('-')
	case p.accept('-'):
		neg = true
	default:
		return 0
	}
	at, v := p.pos(), p.imm()
	if v.Kind != Int || int64(v.Bits) < 0 {
		p.fail(at, ErrSyntax, "found offset %s, want an integer below 1<<63", v.text())
	}
	if neg {
		return -int64(v.Bits)
	}
	return int64(v.Bits)
}

func (p *parser) vector() *Vector {
	p.expect('{')
	v := &Vector{}
	for {
		v.Elems = append(v.Elems, p.operand(false))
		if !p.accept(',') {
			break
		}
	}
	p.expect('}')
	return v
}

// addr parses an address in brackets.
func (p *parser) addr() *Addr {
	p.expect('[')
	a := &Addr{}
	if p.tok.kind == number || p.is('-') {
		a.Base = p.imm()
	} else {
		a.Base = &Name{Name: p.text(word, "a register, a variable or a number")}
	}
	a.Offset = p.offset()
	if p.accept(',') {
		if p.tok.kind == word {
			a.Sampler = &Name{Name: p.text(word, "a sampler")}
			p.expect(',')
		}
		if !p.is('{') {
			p.want("the coordinates of a tensor")
		}
		a.Coords = p.vector()
	}
	p.expect(']')
	return a
}

// imm parses an immediate with an optional sign.
func (p *parser) imm() *Imm {
	at := p.pos()
	return p.constant(at, p.accept('-'))
}

// constant parses an immediate after its sign. It starts at at.
func (p *parser) constant(at Pos, neg bool) *Imm {
	text := p.text(number, "a number")
	v, ok := parseImm(text)
	if ok && neg {
		switch v.Kind {
		case F32Bits:
			v.Bits ^= 1 << 31
		case F64Bits:
			v.Bits ^= 1 << 63
		default:
			ok = v.Bits <= 1<<63
			v.Kind, v.Bits = Int, -v.Bits
		}
	}
	if !ok {
		p.fail(at, ErrSyntax, "found %q, want a number of at most 64 bits", text)
	}
	return v
}

// parseImm parses a number without a sign. ok is false if it is malformed or has more than 64 bits.
func parseImm(s string) (v *Imm, ok bool) {
	if len(s) > 2 && s[0] == '0' {
		width, kind := 0, F32Bits
		switch s[1] {
		case 'f', 'F':
			width = 8
		case 'd', 'D':
			width, kind = 16, F64Bits
		}
		if width > 0 {
			bits, err := strconv.ParseUint(s[2:], 16, 64)
			return &Imm{kind, bits}, err == nil && len(s) == 2+width
		}
	}
	hex := strings.HasPrefix(s, "0x") || strings.HasPrefix(s, "0X")
	if !hex && strings.ContainsAny(s, ".eE") {
		f, err := strconv.ParseFloat(s, 64)
		return &Imm{F64Bits, math.Float64bits(f)}, err == nil && !strings.ContainsAny(s, "_xX")
	}
	bits, err := strconv.ParseUint(strings.TrimSuffix(s, "U"), 0, 64)
	if err != nil || strings.ContainsAny(s, "_oO") { // digits of Go, but not of PTX
		return nil, false
	}
	kind := Int
	if bits > math.MaxInt64 {
		kind = Uint
	}
	return &Imm{kind, bits}, true
}
