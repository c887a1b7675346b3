package main

import (
	"context"
	"fmt"
	"os"
)

func Example() {
	if err := run(context.Background(), "emu", os.Stdout); err != nil {
		fmt.Println(err)
	}
	// Output:
	// (3, 4) lies in quadrant 1
	// (-1, 2) lies in quadrant 2
	// (-5, -1) lies in quadrant 3
	// (2, -2) lies in quadrant 4
	// (0.5, 0.25) lies in quadrant 1
}
