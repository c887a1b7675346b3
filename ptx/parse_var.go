package ptx

import "strings"

// params parses the parameters or results of a function in parentheses.
func (p *parser) params() []*Var {
	p.expect('(')
	var vs []*Var
	for !p.accept(')') {
		if len(vs) > 0 {
			p.expect(',')
		}
		vs = append(vs, p.varHead(p.pos(), ""))
		p.varName(vs[len(vs)-1])
	}
	return vs
}

// vars parses a declaration up to its semicolon. It returns a Var for each name.
func (p *parser) vars(pos Pos, linkage string) []*Var {
	head := p.varHead(pos, linkage)
	var vs []*Var
	for {
		v := *head
		v.Pos = p.pos()
		if p.tok.kind != word || p.tok.text == "_" { // _ is allowed only for parameters
			p.want("a name")
		}
		p.varName(&v)
		switch {
		case !p.accept('='):
		case v.Type.Class() == Opaque:
			v.Init = &Init{Properties: p.properties()}
		default:
			v.Init = p.init(0)
		}
		vs = append(vs, &v)
		if !p.accept(',') {
			break
		}
	}
	p.expect(';')
	return vs
}

// varHead parses the part of a declaration before the name.
func (p *parser) varHead(pos Pos, linkage string) *Var {
	v := &Var{Pos: pos, Linkage: linkage}
	if p.tok.kind == dotted {
		v.Space = spaces[p.tok.text]
	}
	if v.Space == NoSpace || strings.Contains(p.tok.text, "::") {
		switch p.tok.text {
		case "alias", "tex", "sreg":
			p.fail(p.pos(), ErrUnsupported, "directive .%s is not supported", p.tok.text)
		}
		p.want("a state space such as .global")
	}
	p.advance()
	for v.Type == NoType {
		if p.tok.kind != dotted {
			p.want("a type")
		}
		at := p.pos()
		switch name := p.tok.text; name {
		case "align":
			p.advance()
			v.Align = p.alignment()
		case "attribute":
			p.advance()
			p.expect('(')
			if v.Attr = p.text(dotted, "an attribute"); v.Attr != "managed" {
				p.fail(at, ErrUnsupported, "attribute .%s is not supported", v.Attr)
			}
			p.expect(')')
		case "v2", "v4", "v8":
			v.Vec = int(name[1] - '0')
			p.advance()
		default:
			t, ok := ParseType(name)
			if !ok || !t.Declarable() && t.Class() != Opaque {
				p.want("a type that variables can have")
			}
			v.Type = t
			p.advance()
		}
	}
	if _, ok := p.acceptDot("ptr"); ok {
		v.Ptr = &Ptr{Space: Generic}
		if space, ok := p.acceptDot("global", "const", "shared", "local"); ok {
			v.Ptr.Space = spaces[space]
		}
		if _, ok := p.acceptDot("align"); ok {
			v.Ptr.Align = p.alignment()
		}
	}
	return v
}

func (p *parser) alignment() int {
	at, n := p.pos(), p.smallInt("an alignment")
	if n <= 0 || n&(n-1) != 0 {
		p.fail(at, ErrSyntax, "found alignment %d, want a power of two", n)
	}
	return n
}

// varName parses a variable's name, count and dimensions.
func (p *parser) varName(v *Var) {
	if p.tok.kind != word {
		return // parameters of a declaration can be unnamed
	}
	v.Name = p.text(word, "a name")
	if v.Name == "_" {
		v.Name = ""
	}
	if p.accept('<') {
		at := p.pos()
		if v.Count = p.smallInt("a count"); v.Count < 1 {
			p.fail(at, ErrSyntax, "found %s<%d>, want a count of at least 1", v.Name, v.Count)
		}
		p.expect('>')
	}
	for p.accept('[') {
		if p.accept(']') {
			v.Dims = append(v.Dims, -1)
			continue
		}
		v.Dims = append(v.Dims, p.smallInt("an array's length"))
		p.expect(']')
	}
}

// properties parses the initial value of a texture, sampler or surface, such as
// {width = 64, addr_mode_0 = wrap}. It returns the text between the braces.
func (p *parser) properties() string {
	p.expect('{')
	var all []string
	for !p.accept('}') {
		if len(all) > 0 {
			p.expect(',')
		}
		name := p.text(word, "a property")
		p.expect('=')
		if p.tok.kind != word && p.tok.kind != number {
			p.want("a value")
		}
		all = append(all, name+" = "+p.tok.text)
		p.advance()
	}
	return strings.Join(all, ", ")
}

// init parses an initial value. depth is the number of braces and masks around it.
func (p *parser) init(depth int) *Init {
	if depth > maxDepth {
		p.fail(p.pos(), ErrSyntax, "initializers are nested more than %d deep", maxDepth)
	}
	n := &Init{}
	if p.accept('{') {
		for !p.accept('}') {
			if len(n.List) > 0 {
				p.expect(',')
			}
			n.List = append(n.List, p.init(depth+1))
		}
		return n
	}
	switch {
	case p.tok.kind == word && p.tok.text == "generic":
		p.advance()
		p.expect('(')
		n.Generic, n.Value = true, &Name{Name: p.text(word, "a variable")}
		p.expect(')')
		n.Value = p.sum(n.Value.(*Name))
	case p.tok.kind == word:
		n.Value = p.sum(&Name{Name: p.text(word, "a variable")})
	default:
		v := p.imm()
		n.Value = v
		if p.accept('(') { // 0xFF(variable)
			if n.Mask = v.Bits; n.Mask == 0 || v.Kind > Uint {
				p.want("a mask")
			}
			inner := p.init(depth + 1)
			if inner.Value == nil || inner.Mask != 0 {
				p.want("a variable")
			}
			n.Value, n.Generic = inner.Value, inner.Generic
			p.expect(')')
		}
	}
	return n
}
