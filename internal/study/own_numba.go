package study

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"tilework/ptx"
)

// The parameters of a Numba array of n dimensions: these, n sides, and n strides in bytes.
const (
	numbaMeminfo = iota
	numbaParent
	numbaItems
	numbaItemSize
	numbaData
	numbaSides
)

// numbaType is the type of an argument of a kernel by Numba.
type numbaType struct {
	element string
	dims    int // 0 for a number
}

// params returns the number of parameters of the argument.
func (t numbaType) params() int {
	if t.dims == 0 {
		return 1
	}
	return numbaSides + 2*t.dims
}

func (t numbaType) String() string {
	return fmt.Sprintf("%s[%s]", t.element, strings.TrimPrefix(strings.Repeat(",:", t.dims), ","))
}

// numbaElements are the element types of arrays by their letters in the mangled name of a kernel.
var numbaElements = map[string]string{
	"h": "u8", "a": "int8", "t": "u16", "s": "s16", "j": "u32", "i": "int32", "y": "u64", "x": "s64", "Dh": "float16",
	"f": "float32", "d": "float64",
}

// numbaMangled matches an argument in the mangled name of a kernel: an array in C order, or a
// number.
var numbaMangled = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:5ArrayI([a-z]|Dh)Li([1-9])E1[AC]\d+[a-z]+\d+[a-z]+E|[a-z]|Dh)`)
})

// numbaArguments returns the types of the arguments of a kernel by Numba, from its mangled name. It
// returns nil for other kernels, and for those with arguments of other types.
func numbaArguments(f *ptx.Func) (list []numbaType) {
	params := 0
	for _, text := demangle(f.Name); text != ""; {
		m := numbaMangled().FindStringSubmatch(text)
		if m == nil {
			return nil
		}
		var t numbaType
		if m[1] != "" {
			t.element = numbaElements[m[1]]
			t.dims, _ = strconv.Atoi(m[2])
			if t.element == "" {
				return nil
			}
		}
		list = append(list, t)
		params += t.params()
		text = text[len(m[0]):]
	}
	if params != len(f.Params) || !slices.ContainsFunc(list, func(t numbaType) bool { return t.dims > 0 }) {
		return nil
	}
	return list
}

// values returns the values of the parameters of an array.
func (t numbaType) values(m *matrix) ([]any, error) {
	var want matrix
	if err := want.parseType(t.element); err != nil {
		return nil, err
	}
	if len(m.shape) != t.dims || m.array == nil || m.array.Type != want.array.Type {
		return nil, fmt.Errorf("an array of shape %v and type %s: want %v", m.shape, m.typeName, t)
	}
	values, size := make([]any, t.params()), m.array.Size()
	values[numbaMeminfo], values[numbaParent] = uint64(0), uint64(0)
	values[numbaItems], values[numbaItemSize], values[numbaData] = uint64(m.count()), uint64(size), m.at
	for k := t.dims - 1; k >= 0; k-- {
		values[numbaSides+k], values[numbaSides+t.dims+k] = uint64(m.shape[k]), uint64(size)
		size *= m.shape[k]
	}
	return values, nil
}
