package build

import (
	"reflect"
	"strings"
	"testing"

	"tilework/ptx"
)

// TestZeroArguments calls each method of Kernel, and those of the values that it returns, with zero
// values for all arguments, and functions that are nil or empty. Errors belong into the result of
// Build.
func TestZeroArguments(t *testing.T) {
	for _, get := range []func(k *Kernel) any{
		func(k *Kernel) any { return k },
		func(k *Kernel) any { return k.Pointer("p", ptx.F32) },
		func(k *Kernel) any { return k.Param("n", ptx.U32) },
		func(k *Kernel) any { return k.Shared("s", ptx.F32, 4, 4) },
		func(k *Kernel) any { return k.Matrix(k.Pointer("p", ptx.F32), 4, 4, 4) },
		func(k *Kernel) any { return k.Mbarriers("b", 1) },
		func(k *Kernel) any { return k.Tensor("t") },
		func(k *Kernel) any { return k.If(k.Eq(k.ThreadIdx(X), 0), func() {}) },
		func(*Kernel) any { return Wgmma{} },
		func(*Kernel) any { return Reg{} },
	} {
		kind := reflect.TypeOf(get(New("k")))
		for i := range kind.NumMethod() {
			callWithZeros(t, kind.Method(i).Name, get)
		}
	}
}

func callWithZeros(t *testing.T, name string, get func(k *Kernel) any) {
	defer func() {
		if r := recover(); r != nil {
			t.Errorf("%s: panic: %v", name, r)
		}
	}()
	k := New("k")
	f := reflect.ValueOf(get(k)).MethodByName(name)
	var args []reflect.Value
	for n := range f.Type().NumIn() {
		if last := n == f.Type().NumIn()-1; !last || !f.Type().IsVariadic() {
			args = append(args, reflect.Zero(f.Type().In(n)))
		}
	}
	f.Call(args)
	_, _ = k.Build()
}

// TestNilFunctions checks that a nil function is an error that names the method.
func TestNilFunctions(t *testing.T) {
	for method, write := range map[string]func(k *Kernel, p Reg){
		"If":          func(k *Kernel, p Reg) { k.If(p, nil) },
		"Else":        func(k *Kernel, p Reg) { k.If(p, func() {}).Else(nil) },
		"When":        func(k *Kernel, p Reg) { k.When(p, nil) },
		"While":       func(k *Kernel, p Reg) { k.While(func() Reg { return p }, nil) },
		"For":         func(k *Kernel, p Reg) { k.For(0, k.ThreadIdx(X), nil) },
		"ForUnrolled": func(k *Kernel, p Reg) { k.ForUnrolled(0, k.ThreadIdx(X), 4, nil) },
	} {
		k := New("k")
		write(k, k.Eq(k.ThreadIdx(X), 0))
		if _, err := k.Build(); err == nil || !strings.Contains(err.Error(), method+": a function is nil") {
			t.Errorf("%s: got error %v", method, err)
		}
	}
}
