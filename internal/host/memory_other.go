//go:build !linux

package host

func systemBudgets() []budget  { return nil }
func processBudgets() []budget { return nil }
func limited() bool            { return false }

func fileSystemOf(string) (FileSystem, bool) { return FileSystem{}, false }
