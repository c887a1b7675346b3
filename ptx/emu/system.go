package emu

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"unsafe"

	"tilework/ptx"
)

// deviceFuncs holds the functions that the CUDA driver provides to kernels. A module only declares
// them. Each receives a lane and its arguments.
var deviceFuncs = map[string]func(w *warp, in *inst, lane int, args []uint64) (result uint64){
	"vprintf":      deviceVprintf,
	"__assertfail": deviceAssertFail,
	"malloc":       deviceMalloc,
	"free":         deviceFree,
}

// featureOf returns the feature of a function of the CUDA driver, for an error message.
func featureOf(name string) string {
	switch {
	case strings.HasPrefix(name, "__cudaCDP"), strings.HasPrefix(name, "cudaLaunchDevice"),
		strings.HasPrefix(name, "cudaGetParameterBuffer"):
		return "dynamic parallelism: "
	case strings.HasPrefix(name, "cudaCG"):
		return "cooperative groups of the device runtime: "
	}
	return ""
}

// deviceCall decodes a call of a function that is declared but not defined.
func (d *decoder) deviceCall(callee *function, results, args []ptx.Operand) execFunc {
	exec := deviceFuncs[callee.Name]
	if exec == nil {
		d.fail(unsupported(d.i.Pos, "%sfunction %s, which is declared but not defined,", featureOf(callee.Name), callee.Name))
		return nil
	}
	c := &call{fn: callee}
	for k, arg := range args {
		c.args = append(c.args, d.passed(arg, callee.Params[k], false))
	}
	if len(results) > 0 {
		if _, sink := results[0].(*ptx.Sink); !sink {
			c.result, c.returns = d.passed(results[0], callee.Results[0], true), true
		}
	}
	return func(w *warp, in *inst) {
		for m := w.active; m != 0; m &= m - 1 {
			lane := firstLane(m)
			values := make([]uint64, len(c.args))
			for k, from := range c.args {
				var word [8]byte
				copy(word[:], from.bytes(w, w.frame, lane))
				values[k] = binary.LittleEndian.Uint64(word[:])
			}
			result := binary.LittleEndian.AppendUint64(nil, exec(w, in, lane, values))
			if c.returns {
				copy(c.result.bytes(w, w.frame, lane), result)
			}
		}
		if c.returns && w.tracks {
			w.passUndefined(c.result, w.frame, passedValue{register: true, size: c.result.size}, w.frame) // defined
		}
	}
}

// deviceMalloc implements malloc. The result is 0 if there is no memory. Unlike on a GPU, the heap
// has no limit of its own. Addresses depend on the schedule of the workers.
func deviceMalloc(w *warp, in *inst, lane int, args []uint64) uint64 {
	if len(args) != 1 {
		w.misuse(in, "malloc has %d arguments: want 1", len(args))
		return 0
	}
	if args[0] == 0 || args[0] > math.MaxInt64 {
		return 0
	}
	addr, err := w.block.run.mem.Alloc(int(args[0]))
	if err != nil {
		return 0
	}
	return addr
}

// deviceFree implements free.
func deviceFree(w *warp, in *inst, lane int, args []uint64) uint64 {
	if len(args) != 1 {
		w.misuse(in, "free has %d arguments: want 1", len(args))
		return 0
	}
	if err := w.block.run.mem.Free(args[0]); err != nil {
		w.misuse(in, "%v", err)
	}
	clear(w.worker.lastRegion) // can refer to the freed memory
	return 0
}

// deviceAssertFail implements __assertfail(message, file, line, function, charsize).
func deviceAssertFail(w *warp, in *inst, lane int, args []uint64) uint64 {
	if len(args) < 4 {
		w.misuse(in, "__assertfail has %d arguments: want 5", len(args))
		return 0
	}
	w.fail(fmt.Errorf("%v: thread %v of block %v: %s:%d: %s: assertion %q failed: %w", in.site, w.thread(lane),
		w.block.index,
		w.cString(in, lane, args[1]), uint32(args[2]), w.cString(in, lane, args[3]), w.cString(in, lane, args[0]), ErrAssert))
	return 0
}

// peek returns n bytes at a generic address of a lane, or nil if the range is not mapped.
func (w *warp) peek(in *inst, lane int, addr uint64, n int) []byte {
	t := &w.at
	w.resolve(t, in, &access{space: ptx.Generic}, addr)
	off := addr - t.window - t.base
	if off >= t.size || uint64(n) > t.size-off {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Add(t.mem, off+uint64(lane)*t.stride)), n)
}

// Limits of vprintf and __assertfail.
const (
	maxString  = 64 << 10 // bytes of a string; longer ones are cut
	maxPrinted = 64 << 20 // bytes of a launch
	maxSpec    = 64       // bytes of a conversion such as %08.3
)

// cString reads a zero-terminated string. Its bytes count as instructions for the time until the
// worker checks whether it must stop.
func (w *warp) cString(in *inst, lane int, addr uint64) string {
	var b strings.Builder
	for b.Len() < maxString {
		c := w.peek(in, lane, addr, 1)
		if c == nil || c[0] == 0 {
			break
		}
		b.WriteByte(c[0])
		addr++
	}
	w.worker.unreported += b.Len() / lanes
	return b.String()
}

// print prints a part of the output of vprintf. It returns false, and ends the launch, if that is
// too long.
func (w *warp) print(in *inst, s string) bool {
	if w.block.run.printed.Add(int64(len(s))) > maxPrinted {
		w.misuse(in, "vprintf prints more than %s in a launch", bytesText(maxPrinted))
		return false
	}
	w.block.printed = append(w.block.printed, s...)
	return true
}

// deviceVprintf implements vprintf(format, arguments). The arguments are stored one after the
// other, each aligned to its size. The result is their number, or -1 if the list is not readable.
func deviceVprintf(w *warp, in *inst, lane int, args []uint64) uint64 {
	if len(args) != 2 {
		w.misuse(in, "vprintf has %d arguments: want 2", len(args))
		return 0
	}
	at, count := args[1], 0
	missing := false
	next := func(size int) uint64 {
		at = alignUp(at, size)
		var word [8]byte
		b := w.peek(in, lane, at, size)
		missing = missing || b == nil
		copy(word[:], b)
		at += uint64(size)
		count++
		return binary.LittleEndian.Uint64(word[:])
	}
	format := w.cString(in, lane, args[0])
	for {
		plain, rest, found := strings.Cut(format, "%")
		if !w.print(in, plain) {
			return 0
		}
		if !found {
			break
		}
		var s string
		if s, format = w.convert(in, lane, rest, next); !w.print(in, s) {
			return 0
		}
	}
	if missing {
		return math.MaxUint64
	}
	return uint64(count)
}

// convert formats the conversion at the start of format, after its %, as C's printf does. It
// returns the formatted text and the rest of format.
func (w *warp) convert(in *inst, lane int, format string, next func(size int) uint64) (text, rest string) {
	spec, size := "%", 4
	precise := false
	for n := 0; n < min(len(format), maxSpec); n++ {
		switch c := format[n]; c {
		case '-', '+', ' ', '#', '.', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			precise = precise || c == '.'
			spec += string(c)
		case '*':
			spec += fmt.Sprint(int32(next(4)))
		case 'l', 'j', 'z', 't':
			size = 8
		case 'h', 'L':
		default:
			return w.conversion(in, lane, c, spec, size, precise, next), format[n+1:]
		}
	}
	return spec, format[min(len(format), maxSpec):] // the format ends within a conversion, or it is too long
}

func (w *warp) conversion(in *inst, lane int, verb byte, spec string, size int, precise bool,
	next func(size int) uint64) string {
	signed := func() int64 {
		if v := next(size); size == 8 {
			return int64(v)
		} else {
			return int64(int32(v))
		}
	}
	switch verb {
	case '%':
		return "%"
	case 'd', 'i':
		return fmt.Sprintf(spec+"d", signed())
	case 'u':
		return fmt.Sprintf(spec+"d", next(size))
	case 'x', 'X', 'o':
		return fmt.Sprintf(spec+string(verb), next(size))
	case 'c':
		return fmt.Sprintf(spec+"s", string([]byte{byte(next(4))}))
	case 's':
		return fmt.Sprintf(spec+"s", w.cString(in, lane, next(8)))
	case 'p':
		return fmt.Sprintf(spec+"s", fmt.Sprintf("0x%x", next(8)))
	case 'e', 'E', 'f', 'F', 'g', 'G', 'a', 'A':
		f := math.Float64frombits(next(8))
		switch {
		case verb == 'a' || verb == 'A':
			verb += 'x' - 'a'
		case !precise && (verb == 'g' || verb == 'G'):
			spec += ".6"
		}
		return strings.Replace(strings.ToLower(fmt.Sprintf(spec+string(verb), f)), "+inf", "inf", 1)
	}
	return spec + string(verb)
}
