package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"tilework/internal/matio"
	"tilework/internal/names"
	"tilework/internal/regular"
	"tilework/ptx"
	"tilework/ptx/emu"
)

// kernelLaunch is a launch as the flags or a script describe it.
type kernelLaunch struct {
	Entry   string   `json:"entry"`
	Grid    string   `json:"grid"`
	Block   string   `json:"block"`
	Cluster string   `json:"cluster"`
	Smem    string   `json:"smem"`
	Args    []string `json:"args"`
	place   string   // the script and the number of the launch; empty for flags
}

// in adds the place of the launch to an error.
func (l *kernelLaunch) in(err error) error {
	if l.place == "" {
		return err
	}
	return fmt.Errorf("%s: %w", l.place, err)
}

// wrong returns an error about a flag, or about a field of a launch in a script.
func (l *kernelLaunch) wrong(field string, err error) error {
	if l.place == "" {
		return fmt.Errorf("--%s %w", field, err)
	}
	return fmt.Errorf("%s: %s %w", l.place, field, err)
}

// example returns arguments as they are spelled in the flags or the script.
func (l *kernelLaunch) example(args ...string) string {
	if l.place == "" {
		return flagArgs(args)
	}
	return fmt.Sprintf(`"%s"`, strings.Join(args, `", "`))
}

// flagArgs returns a flag for each argument.
func flagArgs(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return "--arg " + strings.Join(args, " --arg ")
}

// launch returns a launch of one of the kernels of p with arguments. File is the file of p.
func (f *emulateFlags) launch(
	file string, p *emu.Program, kernels *entryNames, l *kernelLaunch, args []kernelArg,
) (emu.Launch, error) {
	launch := emu.Launch{Seed: f.seed, MaxInstructions: f.maxInstructions, Workers: f.workers}
	var err error
	if launch.Entry, err = l.chooseEntry(file, kernels); err != nil {
		return launch, err
	}
	if launch.Grid, err = parseDim3(l.Grid); err != nil {
		return launch, l.wrong("grid", err)
	}
	if launch.Block, err = parseDim3(l.Block); err != nil {
		return launch, l.wrong("block", err)
	}
	if l.Cluster != "" {
		if launch.Cluster, err = parseDim3(l.Cluster); err != nil {
			return launch, l.wrong("cluster", err)
		}
	}
	if launch.Shared, err = parseBytes(l.Smem); err != nil {
		return launch, l.wrong("smem", err)
	}
	launch.Params, err = l.pack(p, launch.Entry, args)
	return launch, err
}

// pack returns the bytes of the kernel's parameters.
func (l *kernelLaunch) pack(p *emu.Program, entry string, args []kernelArg) ([]byte, error) {
	params, err := p.Params(entry)
	if err != nil {
		return nil, err
	}
	if len(args) != len(params) {
		example := ""
		if len(params) > 0 {
			example = ", such as " + l.example(exampleArgs(params)...)
		}
		flag := "--arg"
		if l.place != "" {
			flag = plural("argument", len(args))
		}
		return nil, l.in(fmt.Errorf("kernel %s has %d %s, found %d %s: want one for each%s", entry,
			len(params), plural("parameter", len(params)), len(args), flag, example))
	}
	values := make([]any, len(args))
	for i, a := range args {
		values[i] = a.value
	}
	packed, err := p.Pack(entry, values...)
	return packed, l.argError(err)
}

// argError returns an error of [emu.Program.Pack] in terms of the arguments.
func (l *kernelLaunch) argError(err error) error {
	var wrong *emu.ArgumentError
	if !errors.As(err, &wrong) {
		return err
	}
	forms := paramForms(wrong.Param)
	if forms.pointer {
		forms.example = "a.npy"
	}
	v := wrong.Param
	typ := fmt.Sprintf("a .%v", v.Type)
	if isArray(v) {
		typ = fmt.Sprintf("a structure or array of %d bytes", v.Size())
		if v.Size() == ptx.TensorMapBytes {
			typ = "a tensor map"
		}
	}
	return l.wrong("arg", fmt.Errorf("%s (argument %d): parameter %s is %s: want %s, such as %s",
		l.Args[wrong.Index], wrong.Index+1, v.Name, typ, forms.want, l.example(forms.example)))
}

// namedMemory returns the memory that a script declares under a name.
func (f *emulateFlags) namedMemory(name string) (kernelArg, error) {
	a, ok := f.named[name]
	if !ok {
		if len(f.named) == 0 {
			return a, errors.New(`no memory has a name: want "memory" in a file of --script`)
		}
		return a, names.Unknown("memory", name, slices.Sorted(maps.Keys(f.named)))
	}
	a.file, a.output = "", false // the declaration writes the file
	return a, nil
}

// maxScript is the maximal size of a script in bytes.
const maxScript = 1 << 20

// readScript reads the launches of the script, and the memory that they share. It adds the files of
// the memory to uses.
func (f *emulateFlags) readScript(
	ctx context.Context, mem *emu.Memory, uses *fileUses,
) ([]kernelLaunch, []kernelArg, error) {
	fail := func(err error) ([]kernelLaunch, []kernelArg, error) {
		return nil, nil, fmt.Errorf("%s: %w", f.script, err)
	}
	file, err := regular.Open(f.script)
	if err != nil {
		return nil, nil, matio.FileError(err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxScript+1))
	if err != nil {
		return nil, nil, err
	}
	if len(text) > maxScript {
		return fail(fmt.Errorf("more than %d bytes: want a list of launches in JSON", maxScript))
	}
	var script struct {
		Memory   map[string]string `json:"memory"`
		Launches []json.RawMessage `json:"launches"`
	}
	if err := decodeStrictly(text, &script); err != nil {
		return fail(err)
	}
	if len(script.Launches) == 0 {
		return fail(errors.New(`no launch: want "launches" with at least one`))
	}
	var args []kernelArg
	named := map[string]kernelArg{}
	for _, name := range slices.Sorted(maps.Keys(script.Memory)) {
		text := script.Memory[name]
		a, err := f.parseArg(ctx, mem, text)
		switch {
		case err != nil:
			return fail(fmt.Errorf("memory %s: %s: %w", name, text, err))
		case a.at == 0:
			return fail(fmt.Errorf("memory %s: %s: want a file, out:TYPE:MxN:FILE, inout:A.npy:FILE or scratch:TYPE:MxN",
				name, text))
		case uses.add(&a, fileUse{}) != nil:
			return fail(fmt.Errorf("memory %s: %s: other memory has the same file, want another", name, text))
		}
		named[name] = a
		args = append(args, a)
	}
	f.named = named
	launches := make([]kernelLaunch, len(script.Launches))
	for i, text := range script.Launches {
		l := kernelLaunch{Grid: f.Grid, Block: f.Block, Smem: f.Smem, place: fmt.Sprintf("%s: launch %d", f.script, i+1)}
		if err := decodeStrictly(text, &l); err != nil {
			return nil, nil, l.in(err)
		}
		launches[i] = l
	}
	return launches, args, nil
}

// decodeStrictly decodes one JSON value without unknown fields.
func decodeStrictly(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	var wrong *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &wrong) && wrong.Field == "":
		return fmt.Errorf("found a JSON %s: want an object", wrong.Value)
	case errors.As(err, &wrong):
		return fmt.Errorf("field %s is a JSON %s: want %s", wrong.Field, wrong.Value, jsonKind(wrong))
	case errors.As(err, &syntax):
		return fmt.Errorf("line %d: %w", 1+bytes.Count(text[:syntax.Offset], []byte("\n")), syntax)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the JSON ends early: want an object")
	case err != nil: // an unknown field
		t := reflect.TypeOf(v).Elem()
		var fields []string
		for i := range t.NumField() {
			if name := t.Field(i).Tag.Get("json"); name != "" {
				fields = append(fields, name)
			}
		}
		return fmt.Errorf("%s: want %s", strings.TrimPrefix(err.Error(), "json: "), strings.Join(fields, ", "))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON object: want only the object")
	}
	return nil
}

// jsonKind describes the JSON value that a field takes.
func jsonKind(wrong *json.UnmarshalTypeError) string {
	switch wrong.Type.Kind() {
	case reflect.Slice:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "an object"
	}
	return `a string, such as "16"`
}
