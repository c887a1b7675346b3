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
	// (3, 4) is in quadrant 1
	// (-1, 2) is in quadrant 2
	// (-5, -1) is in quadrant 3
	// (2, -2) is in quadrant 4
	// (0.5, 0.25) is in quadrant 1
}
