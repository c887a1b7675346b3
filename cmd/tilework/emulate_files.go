package main

import "tilework/internal/matio"

// files returns a and its fields, which can have files.
func (a *kernelArg) files() []kernelArg { return append([]kernelArg{*a}, a.fields...) }

// fileUses are the uses of files by arguments. The zero fileUses is empty.
type fileUses struct {
	files matio.Files
	of    map[int]fileUse // by the number of the file
}

// fileUse is an argument that uses a file: the first one of the last launch that has any.
type fileUse struct {
	launch *kernelLaunch // nil for the memory of a script
	arg    int
	output bool
}

// add records that the argument a uses its files. It returns an earlier use of the same file, or
// nil if there is none or neither of the two writes the file.
func (u *fileUses) add(a *kernelArg, use fileUse) *fileUse {
	for _, x := range a.files() {
		n, ok := u.files.Number(x.file)
		if !ok {
			continue
		}
		earlier, used := u.of[n]
		if used && (x.output || earlier.output) {
			return &earlier
		}
		if u.of == nil {
			u.of = map[int]fileUse{}
		}
		if use.output = x.output; !used || earlier.launch != use.launch {
			u.of[n] = use
		}
	}
	return nil
}
