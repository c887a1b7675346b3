// Package emu runs PTX text on the processor, for a grid of blocks, and tells
// observers what happens.
package emu

// Program is a module that was decoded to run.
type Program struct{}

// moduleData is a module's variables in a memory.
type moduleData struct{}
