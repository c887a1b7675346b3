package bench

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// maxSizes limits the length of one list, because a longer one is most likely a typing error.
const maxSizes = 10_000

// Shape holds the M, N and K of a product.
type Shape struct{ M, N, K int }

// Cube returns the shape of a product of two n×n matrices.
func Cube(n int) Shape { return Shape{n, n, n} }

func (s Shape) String() string { return fmt.Sprintf("%dx%dx%d", s.M, s.N, s.K) }

func (s Shape) elements() float64 {
	m, n, k := float64(s.M), float64(s.N), float64(s.K)
	return m*k + k*n + m*n
}

func (s Shape) flops() float64 { return 2 * float64(s.M) * float64(s.N) * float64(s.K) }

// ParseSizes parses a comma-separated list of sizes. An item is a number of at least 1 or a range.
// The range first..lastxF multiplies by F, first..last+D adds D, and both end at or before last:
// "7,64..512x2" is 7, 64, 128, 256, 512. None of the characters needs quoting in a shell.
func ParseSizes(list string) ([]int, error) {
	var sizes []int
	for item := range strings.SplitSeq(list, ",") {
		var err error
		if sizes, err = appendRange(sizes, strings.TrimSpace(item)); err != nil {
			return nil, err
		}
		if len(sizes) > maxSizes {
			return nil, fmt.Errorf("sizes %q: want at most %d sizes", list, maxSizes)
		}
	}
	return sizes, nil
}

func appendRange(sizes []int, item string) ([]int, error) {
	from, rest, isRange := strings.Cut(item, "..")
	if !isRange && item != "" && strings.Trim(item, "0123456789") == "" {
		n, err := parseSize(item)
		return append(sizes, n), err
	}
	operator := strings.IndexAny(rest, "x+")
	if operator < 0 {
		return nil, fmt.Errorf("size %q: want a number, or a range such as 64..1024x2 or 64..512+64", item)
	}
	var v [3]int
	for i, text := range []string{from, rest[:operator], rest[operator+1:]} {
		var err error
		if v[i], err = parseSize(text); err != nil {
			return nil, fmt.Errorf("range %q: %w", item, err)
		}
	}
	first, last, step := v[0], v[1], v[2]
	times := rest[operator] == 'x'
	if first > last {
		return nil, fmt.Errorf("range %q: %d is greater than %d", item, first, last)
	}
	if times && step == 1 {
		return nil, fmt.Errorf("range %q: factor 1: want at least 2", item)
	}
	for n := first; len(sizes) <= maxSizes; {
		sizes = append(sizes, n)
		// The comparisons are arranged so that nothing overflows.
		if times && n > last/step || !times && n > last-step {
			break
		}
		if times {
			n *= step
		} else {
			n += step
		}
	}
	return sizes, nil
}

// ParseShapes parses a comma-separated list of shapes. A shape is MxNxK, or one size for a cube:
// "1x768x3072,1024".
func ParseShapes(list string) ([]Shape, error) {
	var shapes []Shape
	for item := range strings.SplitSeq(list, ",") {
		item = strings.TrimSpace(item)
		parts := strings.Split(item, "x")
		if len(parts) == 1 {
			parts = []string{item, item, item}
		}
		if len(parts) != 3 {
			return nil, fmt.Errorf("shape %q: want MxNxK, such as 64x128x256", item)
		}
		var v [3]int
		for i := range v {
			var err error
			if v[i], err = parseSize(parts[i]); err != nil {
				return nil, fmt.Errorf("shape %q: %w", item, err)
			}
		}
		shapes = append(shapes, Shape{v[0], v[1], v[2]})
		if len(shapes) > maxSizes {
			return nil, fmt.Errorf("too many shapes: want at most %d", maxSizes)
		}
	}
	return shapes, nil
}

// parseSize parses decimal digits. It rejects signs and spaces.
func parseSize(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 63)
	switch {
	case err != nil && text != "" && strings.Trim(text, "0123456789") == "":
		return 0, fmt.Errorf("size %s: want at most %d", text, math.MaxInt)
	case err != nil:
		return 0, fmt.Errorf("size %q: want a number", text)
	case n < 1:
		return 0, fmt.Errorf("size %s: want at least 1", text)
	case n > math.MaxInt:
		return 0, fmt.Errorf("size %s: want at most %d", text, math.MaxInt)
	}
	return int(n), nil
}
