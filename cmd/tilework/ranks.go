package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tilework/internal/release"
	"tilework/ranks"
)

// ranksFlags are the flags of `tilework mul` for several processes.
type ranksFlags struct {
	ranks, rank, address, secretFile string
	timeout                          time.Duration
}

// rankVersion is the version that ranks compare. Tests replace it.
var rankVersion = release.Version

// ranksFromLauncher is the value of --ranks that takes the rank from the variables of a launcher.
const ranksFromLauncher = "env"

func (f *ranksFlags) declare(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.ranks, "ranks", "",
		"divide C among several processes: their `NUMBER`, to start them on this machine, or \"env\" in each process that "+
			"torchrun, Open MPI, Slurm or Kubernetes has started")
	fl.StringVar(&f.rank, "rank", "",
		"the `NUMBER` of this process, from 0 on, if they are started by hand; needs --ranks N and --address")
	fl.StringVar(&f.address, "address", "",
		"the `HOST:PORT` at which rank 0 listens (default: the variable "+ranks.EnvAddress+", or that of the launcher)")
	fl.StringVar(&f.secretFile, "secret-file", "",
		"a `FILE` with the secret of the ranks (default: the variable "+ranks.EnvSecret+", or the file in "+
			ranks.EnvSecretFile+")")
	fl.DurationVar(&f.timeout, "rank-timeout", ranks.DefaultTimeout,
		"the `TIME` for all ranks to join, and for which one may give no sign of life")
	complete(c, "ranks", ranksFromLauncher, "2", "4")
}

// given reports whether the product is one of several processes.
func (f *ranksFlags) given() bool { return f.ranks+f.rank+f.address+f.secretFile != "" }

// parse returns the place of this process in the group, and whether it starts the others.
func (f *ranksFlags) parse() (place ranks.Config, starts bool, err error) {
	place = ranks.Config{Address: f.address, SecretFile: f.secretFile, Timeout: f.timeout, Version: rankVersion}
	rank := -1
	if f.rank != "" {
		if rank, err = strconv.Atoi(f.rank); err != nil || rank < 0 {
			return place, false, fmt.Errorf("--rank %s: want a number, 0 or more", f.rank)
		}
	}
	if f.ranks == ranksFromLauncher {
		if rank >= 0 {
			return place, false, fmt.Errorf("--rank %d with --ranks env: want only one of them, or --ranks N", rank)
		}
		return place, false, nil
	}
	size, err := strconv.Atoi(f.ranks)
	switch {
	case f.ranks == "":
		return place, false, errors.New("--rank, --address and --secret-file are for several processes: want --ranks N or " +
			"--ranks env too")
	case err != nil || size < 1 || size > ranks.MaxSize:
		return place, false, fmt.Errorf("--ranks %s: want a number from 1 to %d, or env", f.ranks, ranks.MaxSize)
	case rank >= size:
		return place, false, fmt.Errorf("--rank %d with --ranks %d: want a lower rank", rank, size)
	case rank < 0 && (f.address != "" || f.secretFile != ""):
		return place, false, fmt.Errorf("--ranks %d with --address or --secret-file, and without --rank: want the number of "+
			"this process too", size)
	case rank < 0 && size > maxProcesses:
		return place, false, fmt.Errorf("--ranks %d: want at most %d processes on this machine", size, maxProcesses)
	}
	place.Rank, place.Size = max(rank, 0), size
	return place, rank < 0, nil
}

// processes are the other ranks, on this machine, if mul has started them.
type processes struct {
	all   []*exec.Cmd
	ended sync.WaitGroup
	fail  context.CancelCauseFunc // of the context of joining

	mu   sync.Mutex
	logs map[int]*tail // of the ranks that have crashed
}

// startRanks starts ranks 1 and up of a group as processes with the arguments of c, and returns the
// place of this process. The context joining ends when one of them ends.
func startRanks(ctx context.Context, place ranks.Config, c *cobra.Command, args []string, verbose bool,
	stderr io.Writer) (_ ranks.Config, joining context.Context, p *processes, err error) {
	p = &processes{logs: map[int]*tail{}}
	joining, p.fail = context.WithCancelCause(ctx)
	if place.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return place, nil, nil, err
	}
	place.Address, place.Secret = place.Listener.Addr().String(), []byte(rand.Text())
	out := &prefixed{w: stderr}
	for rank := 1; rank < place.Size; rank++ {
		all := append(flagWords(c), fmt.Sprintf("--rank=%d", rank), "--address="+place.Address)
		cmd, err := selfCommand(context.WithoutCancel(ctx), append(append(all, "--"), args...)...)
		if err != nil {
			return place, nil, nil, errors.Join(err, place.Listener.Close())
		}
		log := &tail{}
		cmd.Env = append(cmd.Environ(), ranks.EnvSecret+"="+string(place.Secret), ranks.EnvSecretFile+"=")
		cmd.Stdout, cmd.Stderr = nil, log
		if verbose {
			cmd.Stderr = io.MultiWriter(log, out.of(fmt.Sprintf("rank %d: ", rank)))
		}
		if err := cmd.Start(); err != nil {
			p.kill()
			p.ended.Wait()
			return place, nil, nil, errors.Join(err, place.Listener.Close())
		}
		p.all = append(p.all, cmd)
		p.ended.Go(func() { p.watch(rank, cmd, log) })
	}
	return place, joining, p, nil
}

// flagWords returns the words of c's command line up to the arguments.
func flagWords(c *cobra.Command) []string {
	words := strings.Fields(c.CommandPath())[1:]
	c.Flags().Visit(func(f *pflag.Flag) { words = append(words, fmt.Sprintf("--%s=%s", f.Name, f.Value)) })
	return words
}

// watch waits for the end of a process.
func (p *processes) watch(rank int, cmd *exec.Cmd, log *tail) {
	err := cmd.Wait()
	if err == nil {
		return
	}
	if !slices.Contains(exitCodes, cmd.ProcessState.ExitCode()) {
		p.mu.Lock()
		p.logs[rank] = log
		p.mu.Unlock()
	}
	p.fail(fmt.Errorf("%w: rank %d ended (%v): %s", ranks.ErrRank, rank, err, log.message()))
}

// kill kills the processes that have not ended.
func (p *processes) kill() {
	for _, cmd := range p.all {
		_ = cmd.Process.Kill()
	}
}

// exitTime is the time that the other ranks have to end after this one.
const exitTime = 10 * time.Second

// end waits for the processes, whose group has ended, and kills those that do not end. It prints
// the last messages of processes that have crashed.
func (p *processes) end(stderr io.Writer) {
	late := time.AfterFunc(exitTime, p.kill)
	p.ended.Wait()
	late.Stop()
	for rank, log := range p.logs {
		for line := range strings.Lines(log.String()) {
			fmt.Fprintf(stderr, "rank %d: %s\n", rank, strings.TrimRight(line, "\n"))
		}
	}
}

// rankThreads returns the number of threads of each of n ranks on this machine.
func rankThreads(n int) int { return max(runtime.GOMAXPROCS(0)/n, 1) }

// tail keeps the last bytes that are written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(b []byte) (int, error) {
	const most = 8 << 10
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	t.text = t.text[max(len(t.text)-most, 0):]
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}

// message returns the error message of the command or, if there is none, the first line.
func (t *tail) message() (text string) {
	for line := range strings.Lines(t.String()) {
		line = strings.TrimSpace(line)
		if message, is := strings.CutPrefix(line, "tilework: "); is {
			return message
		}
		text = cmp.Or(text, line)
	}
	return text
}

// prefixed writes whole lines of several writers, each with a prefix.
type prefixed struct {
	mu sync.Mutex
	w  io.Writer
}

// of returns a writer with a prefix.
func (p *prefixed) of(prefix string) io.Writer { return &prefixedWriter{to: p, prefix: prefix} }

type prefixedWriter struct {
	to     *prefixed
	prefix string
	rest   []byte // the start of a line
}

func (w *prefixedWriter) Write(b []byte) (int, error) {
	w.rest = append(w.rest, b...)
	for {
		line, rest, whole := bytes.Cut(w.rest, []byte("\n"))
		if !whole {
			return len(b), nil
		}
		w.rest = rest
		w.to.mu.Lock()
		_, err := fmt.Fprintf(w.to.w, "%s%s\n", w.prefix, line)
		w.to.mu.Unlock()
		if err != nil {
			return 0, err
		}
	}
}

// groupError returns the error of this rank after err: that of the group if err is only its
// consequence.
func groupError(g *ranks.Group, err error) error {
	if failure := g.Err(); failure != nil && errors.Is(err, context.Canceled) {
		return failure
	}
	g.Fail(err)
	return err
}
