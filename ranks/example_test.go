package ranks_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"sync"

	"tilework/ranks"
)

// The ranks are usually processes that a launcher starts, and the Config is then empty.
func ExampleJoin() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	var processes sync.WaitGroup
	for rank := range 3 {
		place := ranks.Config{Rank: rank, Size: 3, Address: listener.Addr().String(), Listener: listener}
		processes.Go(func() { process(place) })
	}
	processes.Wait()
	// Output: the sum of 3 parts is 328350
}

// process adds the squares of every third number below 100.
func process(place ranks.Config) {
	ctx := context.Background()
	g, err := ranks.Join(ctx, place)
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close()
	part := 0
	for i := g.Rank(); i < 100; i += g.Size() {
		part += i * i
	}
	all, err := g.Gather(ctx, "the sums", []byte(fmt.Sprint(part)))
	if err != nil {
		log.Fatal(err) // if another rank has failed, err names it
	}
	sum := 0
	for _, text := range all {
		fmt.Sscan(string(text), &part)
		sum += part
	}
	if g.Rank() == 0 {
		fmt.Printf("the sum of %d parts is %d\n", len(all), sum)
	}
}
