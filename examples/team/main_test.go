package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"

	"tilework/ranks"
)

// The two ranks are goroutines here, and processes in the program.
func Example() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	var all sync.WaitGroup
	for r := range 2 {
		all.Go(func() {
			place := ranks.Config{Rank: r, Size: 2, Address: listener.Addr().String(), Listener: listener}
			if err := run(context.Background(), place, "cpu", os.Stdout); err != nil {
				fmt.Println(err)
			}
		})
	}
	all.Wait()
	// Output:
	// rank 0: rows 0 to 255 have the sum 33554432
	// rank 1: rows 256 to 511 have the sum 33554944
}
