package matio

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Files numbers files from 0, so that specs of the same file are found without a comparison of all
// specs. The zero Files is empty.
type Files struct {
	known map[fileKey][]numberedFile
	count int
}

// fileKey is equal for specs of the same file, and differs for most others.
type fileKey struct {
	size int64  // of an existing file
	name string // of a file that does not exist
}

type numberedFile struct {
	info   fs.FileInfo // of an existing file, or of the folder of another one
	number int
}

// Number returns the number of the file that spec names, or whose member it names. The file need
// not exist. Number reports false if spec is invalid or the file cannot be examined.
func (f *Files) Number(spec string) (number int, ok bool) {
	p, err := parseInput(spec)
	if err != nil {
		return 0, false
	}
	key, info, err := identify(p.path)
	if err != nil {
		return 0, false
	}
	for _, known := range f.known[key] {
		if os.SameFile(known.info, info) {
			return known.number, true
		}
	}
	if f.known == nil {
		f.known = map[fileKey][]numberedFile{}
	}
	number = f.count
	f.known[key] = append(f.known[key], numberedFile{info, number})
	f.count++
	return number, true
}

// identify returns the key and the info of a file. Files that do not exist are the same if they
// have the same name in the same folder, so identify returns the info of the folder.
func identify(path string) (fileKey, fs.FileInfo, error) {
	info, err := os.Stat(path)
	if err == nil {
		return fileKey{size: info.Size()}, info, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return fileKey{}, nil, err
	}
	if path, err = resolve(path); err != nil {
		return fileKey{}, nil, err
	}
	info, err = os.Stat(filepath.Dir(path))
	return fileKey{name: filepath.Base(path)}, info, err
}
