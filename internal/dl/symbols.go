package dl

import "unsafe"

// Symbols returns the addresses of functions by name. The error names the first missing one.
func Symbols(handle uintptr, names []string) (map[string]uintptr, error) {
	all := map[string]uintptr{}
	for _, name := range names {
		var err error
		if all[name], err = Symbol(handle, name); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// String copies the C string at address p.
func String(p uintptr) string {
	if p == 0 {
		return ""
	}
	at := *(*unsafe.Pointer)(unsafe.Pointer(&p)) // p points to memory of C, which does not move
	n := 0
	for *(*byte)(unsafe.Add(at, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(at), n))
}
