package team

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"sync"
)

// tcp is a transport over connections between all pairs of ranks.
//
// A transfer is a header and the bytes of the part, row by row. The header has the number of the
// exchange, the number of the transfer between the two ranks in it, and the number of bytes.
type tcp struct {
	store       store
	connections []io.ReadWriteCloser // by rank
	buffers     [][2][]byte          // by rank, to send and to receive
	exchanges   uint32
	reason      string // why the ranks do not use NCCL
}

const (
	tcpHeader = 16
	tcpBuffer = 1 << 20
)

func newTCP(s store, connections []io.ReadWriteCloser, reason string) *tcp {
	return &tcp{store: s, connections: connections, buffers: make([][2][]byte, len(connections)), reason: reason}
}

func (t *tcp) String() string { return fmt.Sprintf("TCP (%s)", t.reason) }

// exchange implements [transport]. Each connection has a goroutine for each direction.
func (t *tcp) exchange(parent context.Context, sends, receives []transfer) error {
	t.exchanges++
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	stop := context.AfterFunc(ctx, t.abort) // so that reads and writes return
	defer stop()
	var wait sync.WaitGroup
	start := func(direction int, all []transfer, move func(context.Context, transfer, uint32, []byte) error) {
		perRank := make([][]transfer, len(t.connections))
		for _, x := range all {
			perRank[x.rank] = append(perRank[x.rank], x)
		}
		for rank, list := range perRank {
			if len(list) == 0 {
				continue
			}
			wait.Go(func() {
				buffer := &t.buffers[rank][direction]
				if *buffer == nil {
					*buffer = make([]byte, tcpBuffer)
				}
				for i, x := range list {
					if err := move(ctx, x, uint32(i), *buffer); err != nil {
						cancel(err)
						return
					}
				}
			})
		}
	}
	start(0, sends, t.send)
	start(1, receives, t.receive)
	wait.Wait()
	return context.Cause(ctx)
}

// header returns the header of a transfer.
func (t *tcp) header(x transfer, i uint32) []byte {
	b := binary.BigEndian.AppendUint32(nil, t.exchanges)
	b = binary.BigEndian.AppendUint32(b, i)
	return binary.BigEndian.AppendUint64(b, uint64(x.part.bytes()))
}

func (t *tcp) send(ctx context.Context, x transfer, i uint32, buffer []byte) error {
	c := t.connections[x.rank]
	if _, err := c.Write(t.header(x, i)); err != nil {
		return broken("to", x.rank, err)
	}
	return x.part.pieces(len(buffer), func(p part) error {
		b := buffer[:p.bytes()]
		if err := t.store.read(ctx, copies, b, p.width, p); err != nil {
			return err
		}
		_, err := c.Write(b)
		return broken("to", x.rank, err)
	})
}

func (t *tcp) receive(ctx context.Context, x transfer, i uint32, buffer []byte) error {
	c := t.connections[x.rank]
	var got [tcpHeader]byte
	if _, err := io.ReadFull(c, got[:]); err != nil {
		return broken("from", x.rank, err)
	}
	if want := t.header(x, i); string(got[:]) != string(want) {
		return broken("from", x.rank, fmt.Errorf("unexpected header % x, want % x", got, want))
	}
	return x.part.pieces(len(buffer), func(p part) error {
		b := buffer[:p.bytes()]
		if _, err := io.ReadFull(c, b); err != nil {
			return broken("from", x.rank, err)
		}
		return t.store.write(ctx, copies, p, b, p.width)
	})
}

// broken returns the error of a connection.
func broken(direction string, rank int, err error) error {
	if err == nil {
		return nil
	}
	return &brokenError{fmt.Errorf("connection %s rank %d: %w", direction, rank, err)}
}

// abort implements [transport].
func (t *tcp) abort() {
	for _, c := range t.connections {
		if c != nil {
			c.Close()
		}
	}
}

// close implements [transport]. The system still sends written data.
func (t *tcp) close(context.Context) error {
	t.abort()
	return nil
}
