package emu

import "fmt"

// Dim3 is the size of a grid or a block, or an index in one. x is fastest.
type Dim3 struct{ X, Y, Z int }

// String is "(x,y,z)".
func (d Dim3) String() string { return fmt.Sprintf("(%d,%d,%d)", d.X, d.Y, d.Z) }
