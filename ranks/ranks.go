// Package ranks joins processes, on one or several hosts, to a group. Each process is a rank.
// [Join] connects it to rank 0 over TCP. The ranks then exchange small data, and each learns at
// once if another one fails. Large data does not pass through these connections.
//
// The connections are TLS 1.3, with a key pair that follows from a secret of the group: only
// processes that know the secret can join, and read or change the messages.
package ranks

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// The sentinel errors of this package. Each message names the rank, the variable or the address,
// with the found and the wanted value.
var (
	// ErrJoin reports settings or variables that are missing or contradict each other.
	ErrJoin = errors.New("ranks not configured")
	// ErrSecret reports another secret, or an empty one where one is required.
	ErrSecret = errors.New("wrong secret")
	// ErrDisagree reports ranks that disagree: on the version, the number of ranks or a value.
	ErrDisagree = errors.New("ranks disagree")
	// ErrRank reports a rank that failed, was lost or did not join in time. The error is a *Failure.
	ErrRank = errors.New("a rank failed")
)

// Group is a group of ranks as one of them sees it. Its methods may be called from several
// goroutines. The group fails as a whole: after the failure of a rank, all methods of all ranks
// return an error that names it.
type Group struct {
	config   Config
	identity *tls.Config
	id       string

	mu    sync.Mutex
	links []*link // rank 0: those to the other ranks; other ranks: the one to rank 0

	failed context.Context // ends when the group fails, with the cause
	fail   context.CancelCauseFunc
	all    sync.WaitGroup // the goroutines of the group

	exchanging sync.Mutex // one exchange at a time
	exchanges  uint32     // the number of exchanges so far
}

// grace is the time for the last messages of a group that has ended.
const grace = 2 * time.Second

// Join makes this process a rank of a group and returns when all ranks have joined. Settings
// that c leaves out are those of the launcher that started the process, the first of
//
//	torchrun    RANK, WORLD_SIZE, LOCAL_RANK
//	Open MPI    OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_RANK
//	Slurm       SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID
//	Kubernetes  JOB_COMPLETION_INDEX of an indexed job, and TILEWORK_RANKS
//
// The address of rank 0 is that in TILEWORK_ADDRESS, in MASTER_ADDR and MASTER_PORT, or the one
// that the launcher tells. The secret is that in TILEWORK_SECRET, or in the file that
// TILEWORK_SECRET_FILE names.
//
// The error is ErrJoin, ErrSecret, ErrDisagree, ErrRank or the context's. It names the variable,
// the address or the rank, and every rank gets one.
func Join(ctx context.Context, c Config) (*Group, error) {
	if err := c.complete(os.Getenv); err != nil {
		return nil, err
	}
	g, err := newGroup(c)
	if err != nil {
		return nil, err
	}
	if len(c.Secret) == 0 && c.Size > 1 && c.Rank == 0 {
		c.warn("every user of this machine can join the ranks, as they have no secret: want one in %s or %s", EnvSecret,
			EnvSecretFile)
	}
	join := g.lead
	if c.Rank > 0 {
		join = g.follow
	}
	if err := join(ctx); err != nil {
		g.Fail(err)
		return nil, err
	}
	if err := g.findID(ctx); err != nil {
		return nil, err
	}
	if err := g.findLocalRank(ctx); err != nil {
		return nil, err
	}
	return g, nil
}

// newGroup returns a group without links to other ranks.
func newGroup(c Config) (*Group, error) {
	g := &Group{config: c}
	g.failed, g.fail = context.WithCancelCause(context.Background())
	var err error
	if g.identity, err = newIdentity(c.Secret); err != nil {
		return nil, fmt.Errorf("%w: key pair: %w", ErrJoin, err)
	}
	return g, nil
}

// idBytes is the number of random bytes in the name of a group.
const idBytes = 8

// findID sets the name of the group to the one that rank 0 chooses.
func (g *Group) findID(ctx context.Context) error {
	id := make([]byte, idBytes)
	rand.Read(id)
	id, err := g.Broadcast(ctx, "the name of the group", 0, id)
	if err == nil && len(id) != idBytes {
		err = fmt.Errorf("%w: rank 0 sent %d bytes as the name of the group, want %d", ErrDisagree, len(id), idBytes)
		g.Fail(err)
	}
	g.id = hex.EncodeToString(id)
	return err
}

// findLocalRank sets the local rank to the number of lower ranks on the same host, unless it is
// known.
func (g *Group) findLocalRank(ctx context.Context) error {
	host, err := os.Hostname()
	if err != nil {
		host = fmt.Sprintf("host of rank %d", g.config.Rank)
	}
	hosts, err := g.Gather(ctx, "the names of the hosts", []byte(host))
	if err != nil || g.config.local > 0 {
		return err
	}
	g.config.local = 1
	for _, other := range hosts[:g.config.Rank] {
		if string(other) == host {
			g.config.local++
		}
	}
	return nil
}

// String returns a text of the form "rank 1 of 4".
func (g *Group) String() string {
	if g == nil {
		return "no group"
	}
	return fmt.Sprintf("rank %d of %d", g.Rank(), g.Size())
}

// Format prints the text of String with every verb, because others would print the secret.
func (g *Group) Format(s fmt.State, _ rune) { io.WriteString(s, g.String()) }

// Rank returns the number of this rank, from 0 on.
func (g *Group) Rank() int { return g.config.Rank }

// Size returns the number of ranks.
func (g *Group) Size() int { return g.config.Size }

// LocalRank returns the number of this rank among those of its host, from 0 on.
func (g *Group) LocalRank() int { return g.config.local - 1 }

// ID returns a random name of the group, the same on all ranks: 16 hexadecimal digits.
func (g *Group) ID() string { return g.id }

// Context returns a copy of parent that also ends when the group fails. The caller calls stop when
// it no longer uses the context. [Group.Err] then returns the reason.
func (g *Group) Context(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	undo := context.AfterFunc(g.failed, func() { cancel(context.Cause(g.failed)) })
	return ctx, func() { undo(); cancel(nil) }
}

// Err returns the reason for the end of the group, or nil.
func (g *Group) Err() error { return context.Cause(g.failed) }

// Fail ends the group because of err, a failure of this rank. All other ranks get an error that
// names this rank and has the text of err. If the group has ended, Fail does nothing.
func (g *Group) Fail(err error) {
	var known *Failure
	if !errors.As(err, &known) {
		known = failureOf(g.config.Rank, err)
	}
	g.end(kindFailure, known.encode(), known)
	g.all.Wait()
}

// errLeft is the cause of the end of a group that this rank has left.
var errLeft = errors.New("this rank has left the group")

// Close leaves the group. The other ranks continue, and fail if they then need this one.
func (g *Group) Close() error {
	g.end(kindLeave, nil, errLeft)
	g.all.Wait()
	return nil
}

// end sends a last message to all neighbours, once.
func (g *Group) end(k kind, payload []byte, cause error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.Err() != nil {
		return
	}
	g.fail(cause)
	for _, l := range g.links {
		g.all.Go(func() { l.finish(k, payload) })
	}
}

// watch adds a link and starts its goroutines: one reads, the other sends signs of life.
func (g *Group) watch(l *link) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.links = append(g.links, l)
	g.all.Go(func() { g.read(l) })
	g.all.Go(func() { g.beat(l) })
	if f := g.failure(); f != nil { // meanwhile
		g.all.Go(func() { l.finish(kindFailure, f.encode()) })
	}
}

// failure returns the failure that ended the group, or nil.
func (g *Group) failure() (f *Failure) {
	errors.As(g.Err(), &f)
	return f
}

// beat sends signs of life until the group ends, several within the timeout of each side. A link
// that does not take them is lost.
func (g *Group) beat(l *link) {
	tick := time.NewTicker(max(min(g.config.Timeout, l.timeout), minTimeout) / 8)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := l.write(g.config.Timeout, frame{kind: kindBeat}); err != nil {
				g.checkLeft(l, err)
				return
			}
		case <-l.ended:
			return
		case <-g.failed.Done():
			return
		}
	}
}

// read receives messages until the connection or the group ends.
func (g *Group) read(l *link) {
	defer close(l.ended)
	defer l.conn.NetConn().Close() // without waiting for a rank that reads nothing
	for {
		f, err := l.read(g.config.Timeout)
		if err != nil {
			if !l.left.Load() {
				g.lose(l, err)
			}
			return
		}
		switch f.kind {
		case kindBeat:
		case kindLeave:
			l.left.Store(true)
		case kindFailure:
			failure, err := decodeFailure(f.payload)
			if err != nil {
				g.lose(l, err)
				return
			}
			g.end(kindFailure, failure.encode(), failure)
		case kindData:
			m, err := decodeMessage(f.payload)
			if err != nil {
				g.lose(l, err)
				return
			}
			select {
			case l.messages <- m:
			case <-g.failed.Done():
			}
		default:
			g.lose(l, fmt.Errorf("unexpected message %d", f.kind))
			return
		}
	}
}

// checkLeft ends the group because of a failed write, unless the rank has left. The reader may
// still have to read that it has.
func (g *Group) checkLeft(l *link, err error) {
	select {
	case <-l.ended:
	case <-g.failed.Done():
	case <-time.After(grace):
	}
	if !l.left.Load() {
		g.lose(l, err)
	}
}

// lose ends the group because the connection to a rank has failed.
func (g *Group) lose(l *link, err error) {
	reason := fmt.Sprintf("connection lost (%v)", err)
	if isTimeout(err) {
		reason = fmt.Sprintf("no sign of life for %v", g.config.Timeout)
	}
	f := &Failure{Rank: l.rank, code: codeLost, text: reason}
	g.end(kindFailure, f.encode(), f)
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
