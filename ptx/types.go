package ptx

// Type is a fundamental type of PTX, or a packed or alternate format that only instructions use
// (manual: "types", "alternate-floating-point-data-formats").
type Type uint8

const (
	NoType Type = iota
	B1
	B8
	B16
	B32
	B64
	B128
	B8x4 // four fp8 numbers, packed in a register of a matrix operand
	U4
	U8
	U16
	U32
	U64
	S4
	S8
	S16
	S32
	S64
	U16x2
	S16x2
	F16
	F16x2
	BF16
	BF16x2
	TF32
	E4M3
	E5M2
	E4M3x2
	E5M2x2
	E3M2
	E2M3
	E2M1
	E3M2x2
	E2M3x2
	E2M1x2
	UE8M0
	UE4M3
	UE8M0x2
	F32
	F32x2
	F64
	Pred
	TexRef
	SamplerRef
	SurfRef
)

// Class is the interpretation of a type's bits.
type Class uint8

const (
	NoClass  Class = iota
	Bits           // untyped: compatible with every type of the same width
	Unsigned       // compatible with Signed of the same width
	Signed
	Float
	Predicate
	Opaque // a texture, sampler or surface: variables can be declared, but instructions cannot use them
)

// TypeInfo describes a type.
type TypeInfo struct {
	Name  string
	Bits  int // width in bits; 1 for a predicate
	Class Class
	// Storage is the type of a register or variable that holds a value of this type. It differs
	// from the type itself if no variable can have that type: the alternate floating-point
	// formats are stored in untyped registers.
	Storage Type
	Need    Need // requirements of a register or variable of this type
}

var types = [...]TypeInfo{
	NoType: {Name: "none"},
	B1:     {Name: "b1", Bits: 1, Class: Bits, Storage: B32},
	B8:     {Name: "b8", Bits: 8, Class: Bits, Storage: B8},
	B16:    {Name: "b16", Bits: 16, Class: Bits, Storage: B16},
	B32:    {Name: "b32", Bits: 32, Class: Bits, Storage: B32},
	B64:    {Name: "b64", Bits: 64, Class: Bits, Storage: B64},
	B128:   {Name: "b128", Bits: 128, Class: Bits, Storage: B128, Need: need("8.3", "sm_70")},
	B8x4:   {Name: "b8x4", Bits: 32, Class: Bits, Storage: B32},
	U4:     {Name: "u4", Bits: 4, Class: Unsigned, Storage: B32},
	U8:     {Name: "u8", Bits: 8, Class: Unsigned, Storage: U8},
	U16:    {Name: "u16", Bits: 16, Class: Unsigned, Storage: U16},
	U32:    {Name: "u32", Bits: 32, Class: Unsigned, Storage: U32},
	U64:    {Name: "u64", Bits: 64, Class: Unsigned, Storage: U64},
	S4:     {Name: "s4", Bits: 4, Class: Signed, Storage: B32},
	S8:     {Name: "s8", Bits: 8, Class: Signed, Storage: S8},
	S16:    {Name: "s16", Bits: 16, Class: Signed, Storage: S16},
	S32:    {Name: "s32", Bits: 32, Class: Signed, Storage: S32},
	S64:    {Name: "s64", Bits: 64, Class: Signed, Storage: S64},
	U16x2:  {Name: "u16x2", Bits: 32, Class: Unsigned, Storage: B32},
	S16x2:  {Name: "s16x2", Bits: 32, Class: Signed, Storage: B32},
	F16:    {Name: "f16", Bits: 16, Class: Float, Storage: F16},
	F16x2:  {Name: "f16x2", Bits: 32, Class: Float, Storage: F16x2, Need: need("4.2", "sm_53")},
	BF16:   {Name: "bf16", Bits: 16, Class: Float, Storage: B16},
	BF16x2: {Name: "bf16x2", Bits: 32, Class: Float, Storage: B32},
	TF32:   {Name: "tf32", Bits: 32, Class: Float, Storage: B32},
	E4M3:   {Name: "e4m3", Bits: 8, Class: Float, Storage: B8},
	E5M2:   {Name: "e5m2", Bits: 8, Class: Float, Storage: B8},
	E4M3x2: {Name: "e4m3x2", Bits: 16, Class: Float, Storage: B16},
	E5M2x2: {Name: "e5m2x2", Bits: 16, Class: Float, Storage: B16},
	E3M2:   {Name: "e3m2", Bits: 6, Class: Float, Storage: B8},
	E2M3:   {Name: "e2m3", Bits: 6, Class: Float, Storage: B8},
	E2M1:   {Name: "e2m1", Bits: 4, Class: Float, Storage: B8},
	// The 6-bit elements of a pair are in the low bits of its bytes.
	E3M2x2:  {Name: "e3m2x2", Bits: 16, Class: Float, Storage: B16},
	E2M3x2:  {Name: "e2m3x2", Bits: 16, Class: Float, Storage: B16},
	E2M1x2:  {Name: "e2m1x2", Bits: 8, Class: Float, Storage: B8},
	UE8M0:   {Name: "ue8m0", Bits: 8, Class: Float, Storage: B8},
	UE4M3:   {Name: "ue4m3", Bits: 8, Class: Float, Storage: B8},
	UE8M0x2: {Name: "ue8m0x2", Bits: 16, Class: Float, Storage: B16},
	F32:     {Name: "f32", Bits: 32, Class: Float, Storage: F32},
	F32x2:   {Name: "f32x2", Bits: 64, Class: Float, Storage: B64},
	F64:     {Name: "f64", Bits: 64, Class: Float, Storage: F64},
	Pred:    {Name: "pred", Bits: 1, Class: Predicate, Storage: Pred},

	TexRef: {Name: "texref", Bits: 64, Class: Opaque}, SamplerRef: {Name: "samplerref", Bits: 64, Class: Opaque},
	SurfRef: {Name: "surfref", Bits: 64, Class: Opaque},
}

var typeNames = func() map[string]Type {
	m := make(map[string]Type, len(types))
	for t := B1; int(t) < len(types); t++ {
		m[types[t].Name] = t
	}
	return m
}()

// Types returns all types in table order.
func Types() []Type {
	all := make([]Type, 0, len(types)-1)
	for t := B1; int(t) < len(types); t++ {
		all = append(all, t)
	}
	return all
}

// ParseType returns the type with the given name, without the dot: "f32".
func ParseType(name string) (Type, bool) {
	t, ok := typeNames[name]
	return t, ok
}

// Info returns the description of t.
func (t Type) Info() *TypeInfo {
	if int(t) >= len(types) {
		return &types[NoType]
	}
	return &types[t]
}

// Bits returns t's width in bits.
func (t Type) Bits() int { return t.Info().Bits }

// Bytes returns t's size in memory, in bytes.
func (t Type) Bytes() int { return (t.Info().Bits + 7) / 8 }

// Class returns the interpretation of t's bits.
func (t Type) Class() Class { return t.Info().Class }

// Declarable reports whether a variable or a register can have type t.
func (t Type) Declarable() bool { return t.Info().Storage == t && t != NoType }

// String returns t's name without the dot.
func (t Type) String() string { return t.Info().Name }

// wide returns the integer type of twice t's width, the result type of mul.wide.
func (t Type) wide() Type {
	switch t {
	case U16:
		return U32
	case U32:
		return U64
	case S16:
		return S32
	case S32:
		return S64
	}
	return NoType
}

// agrees reports whether a register of type reg can be an operand of type want. If wider is set,
// the register may also be wider than the operand, as for ld, st and cvt (manual:
// "operand-type-checking-rules", "relaxed-type-checking-rules").
func agrees(reg, want Type, wider bool) bool {
	r, w := reg.Info(), want.Info()
	if reg == want {
		return true
	}
	if w.Storage != want {
		return reg == w.Storage // no register has type want
	}
	switch {
	case r.Class == Predicate || w.Class == Predicate:
		return false
	case r.Bits != w.Bits:
		return wider && r.Bits > w.Bits && r.Bits <= 64 &&
			(r.Class == Bits || w.Class == Bits || r.Class != Float && w.Class != Float)
	}
	return r.Class == Bits || w.Class == Bits || r.Class != Float && w.Class != Float
}

// Space is a state space (manual: "state-spaces").
type Space uint8

const (
	NoSpace Space = iota
	Generic       // the value of the address determines its space: global, shared, local, const or param
	RegSpace
	Global
	Const
	Shared        // the block's own shared memory
	SharedCluster // shared memory of any block of the cluster
	Local
	Param
	Tensor // tensor memory; an address holds the lane in its upper and the column in its lower 16 bits
)

// spaces maps modifiers to the state spaces that they name. A suffix after "::" selects a part of
// the space.
var spaces = map[string]Space{
	"reg":             RegSpace,
	"global":          Global,
	"const":           Const,
	"shared":          Shared,
	"shared::cta":     Shared,
	"shared::cluster": SharedCluster,
	"local":           Local,
	"param":           Param,
	"param::entry":    Param,
}

var spaceNames = [...]string{
	NoSpace: "none", Generic: "generic", RegSpace: "reg", Global: "global", Const: "const",
	Shared: "shared", SharedCluster: "shared::cluster", Local: "local", Param: "param",
	Tensor: "tensor",
}

// String returns the name of s without the dot.
func (s Space) String() string {
	if int(s) >= len(spaceNames) {
		return spaceNames[NoSpace]
	}
	return spaceNames[s]
}
