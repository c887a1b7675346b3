package ranks

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"tilework/internal/release"
)

// Config describes the place of this process in a group. [Join] takes the other settings from the
// environment, so the zero Config suits a process that a launcher has started.
type Config struct {
	// Rank is the number of this process, from 0 to Size-1. It counts only if Size is set. Otherwise
	// both are those of the launcher.
	Rank, Size int
	// Address is the host and port at which rank 0 listens.
	Address string
	// Secret proves that processes belong to the group. It is never sent. It has at least 16 bytes,
	// which should be random, because others can test guesses of it. It may be empty only if Address
	// is on the loopback interface, and every user of the machine can then join. SecretFile names a
	// file with it instead, which only its owner may read or write.
	Secret     []byte
	SecretFile string
	// Timeout limits the time to join, and the time for which a rank may give no sign of life. A rank
	// may compute for longer. 0 is DefaultTimeout.
	Timeout time.Duration
	// Version is the version of the program, which all ranks must have alike. Empty is that of
	// tilework.
	Version string
	// Listener, if set, is used by rank 0 instead of listening on Address. Join closes it.
	Listener net.Listener
	// Warn, if set, is called by rank 0 with a warning about a group that more processes can reach
	// than intended.
	Warn func(text string)

	// local is 1 plus the number of this process among those of its host, or 0 if that is not known.
	local int
}

const (
	// DefaultTimeout is the default of [Config.Timeout].
	DefaultTimeout = time.Minute
	// minTimeout leaves time for signs of life; there are 8 in each timeout.
	minTimeout = 100 * time.Millisecond
	// MaxSize is the maximum number of ranks.
	MaxSize = 1 << 16
	// minSecret is the minimum number of bytes of a secret.
	minSecret = 16
)

// warn calls Warn, if it is set.
func (c *Config) warn(format string, args ...any) {
	if c.Warn != nil {
		c.Warn(fmt.Sprintf(format, args...))
	}
}

// The variables of tilework's own.
const (
	EnvAddress    = "TILEWORK_ADDRESS"     // Config.Address; replaces that of the launcher
	EnvRanks      = "TILEWORK_RANKS"       // Config.Size, of a Kubernetes job
	EnvSecret     = "TILEWORK_SECRET"      // Config.Secret
	EnvSecretFile = "TILEWORK_SECRET_FILE" // a file with Config.Secret
)

// launcher describes the variables that a launcher sets for each rank.
type launcher struct {
	name              string
	rank, size, local string
	// address returns the address of rank 0, or the reason why the launcher does not tell it.
	address func(lookup) (address, reason string)
}

// launchers lists the launchers. One that runs inside another comes first.
var launchers = []launcher{
	{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", func(lookup) (string, string) {
		return "", "MASTER_ADDR and MASTER_PORT are not set"
	}},
	{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", openMPIAddress},
	{"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", slurmAddress},
	{"Kubernetes", "JOB_COMPLETION_INDEX", EnvRanks, "", func(lookup) (string, string) {
		return "", "a Kubernetes job does not tell it"
	}},
}

// lookup returns the value of an environment variable, without blanks around it, or "".
type lookup func(name string) string

// complete sets the fields of c that are not set from environment variables, which get returns as
// [os.Getenv] does: rank and size from those of a launcher, the address and the secret from
// tilework's own or the launcher's. The error wraps ErrJoin.
func (c *Config) complete(get func(name string) string) error {
	env := lookup(func(name string) string { return strings.TrimSpace(get(name)) })
	var of *launcher
	if c.Size == 0 {
		var err error
		if of, err = env.launcher(); err != nil {
			return err
		}
		if err := c.place(env, of); err != nil {
			return err
		}
	}
	if c.Address == "" {
		if err := c.findAddress(env, of); err != nil {
			return err
		}
	}
	if err := c.readSecret(env); err != nil {
		return err
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Version == "" {
		c.Version = release.Version
	}
	return c.check()
}

// launcher returns the launcher whose variables are set.
func (env lookup) launcher() (*launcher, error) {
	var names []string
	for i := range launchers {
		l := &launchers[i]
		if env(l.rank) != "" {
			return l, nil
		}
		names = append(names, fmt.Sprintf("%s (%s)", l.rank, l.name))
	}
	for _, l := range launchers {
		if n := env(l.size); n != "" {
			return nil, fmt.Errorf("%w: %s is %s and %s is not set: want both, from %s", ErrJoin, l.size, n, l.rank, l.name)
		}
	}
	return nil, fmt.Errorf("%w: no variable of a launcher is set, want one of %s, or a rank, size and address", ErrJoin,
		strings.Join(names, ", "))
}

// place sets the rank, size and local rank from the variables of a launcher.
func (c *Config) place(env lookup, l *launcher) error {
	number := func(name string, least int) (int, error) {
		text := env(name)
		n, err := strconv.Atoi(text)
		switch {
		case text == "":
			return 0, fmt.Errorf("%w: %s is %s and %s is not set: want both, from %s", ErrJoin, l.rank, env(l.rank), name,
				l.name)
		case err != nil || n < least || n > MaxSize:
			return 0, fmt.Errorf("%w: %s is %q: want a number from %d to %d", ErrJoin, name, text, least, MaxSize)
		}
		return n, nil
	}
	rank, err := number(l.rank, 0)
	if err != nil {
		return err
	}
	size, err := number(l.size, 1)
	if err != nil {
		return err
	}
	if rank >= size {
		return fmt.Errorf("%w: %s is %d and %s is %d: want a lower rank", ErrJoin, l.rank, rank, l.size, size)
	}
	c.Rank, c.Size = rank, size
	if l.local == "" || env(l.local) == "" {
		return nil
	}
	local, err := number(l.local, 0)
	switch {
	case err != nil:
		return err
	case local >= size:
		return fmt.Errorf("%w: %s is %d and %s is %d: want a lower rank", ErrJoin, l.local, local, l.size, size)
	}
	c.local = local + 1
	return nil
}

// findAddress sets the address. l is the launcher that set the rank, or nil.
func (c *Config) findAddress(env lookup, l *launcher) error {
	if c.Address = env(EnvAddress); c.Address != "" {
		return nil
	}
	if c.Size == 1 {
		c.Address = "127.0.0.1:0" // not used
		return nil
	}
	if l == nil {
		return fmt.Errorf("%w: rank %d of %d has no address: want the host and port of rank 0, also as %s", ErrJoin,
			c.Rank, c.Size, EnvAddress)
	}
	host, port := env("MASTER_ADDR"), env("MASTER_PORT")
	switch {
	case host != "" && port != "":
		n, err := strconv.Atoi(port)
		if err != nil || n < 1 || n > 65534 {
			return fmt.Errorf("%w: MASTER_PORT is %q: want a number from 1 to 65534", ErrJoin, port)
		}
		if env("TORCHELASTIC_RUN_ID") != "" {
			n++ // torchrun itself listens on the port
		}
		c.Address = net.JoinHostPort(host, strconv.Itoa(n))
		return nil
	case host != "":
		return fmt.Errorf("%w: MASTER_ADDR is %s and MASTER_PORT is not set: want both", ErrJoin, host)
	case port != "":
		return fmt.Errorf("%w: MASTER_PORT is %s and MASTER_ADDR is not set: want both", ErrJoin, port)
	}
	address, reason := l.address(env)
	if address == "" {
		return fmt.Errorf("%w: %s is %d and the address of rank 0 is not known (%s): want it as host:port in %s", ErrJoin,
			l.rank, c.Rank, reason, EnvAddress)
	}
	c.Address = address
	return nil
}

// loopback is the host of rank 0 if all ranks are on one host.
const loopback = "127.0.0.1"

// openMPIAddress returns the address of rank 0 of Open MPI, if all ranks are on this host.
func openMPIAddress(env lookup) (address, reason string) {
	local, size := env("OMPI_COMM_WORLD_LOCAL_SIZE"), env("OMPI_COMM_WORLD_SIZE")
	if local == "" || local != size {
		return "", fmt.Sprintf("OMPI_COMM_WORLD_LOCAL_SIZE is %q and OMPI_COMM_WORLD_SIZE %s, so there are several hosts",
			local, size)
	}
	return net.JoinHostPort(loopback, portOf(env("PMIX_NAMESPACE"), env("OMPI_MCA_ess_base_jobid"))), ""
}

// slurmAddress returns the address of rank 0 of Slurm: the first host of the step.
func slurmAddress(env lookup) (address, reason string) {
	list := env("SLURM_STEP_NODELIST")
	if list == "" {
		list = env("SLURM_JOB_NODELIST")
	}
	host := firstHost(list)
	switch {
	case host == "":
		return "", "SLURM_STEP_NODELIST and SLURM_JOB_NODELIST are not set"
	case host == list:
		host = loopback
	}
	return net.JoinHostPort(host, portOf(env("SLURM_JOB_ID"), env("SLURM_STEP_ID"))), ""
}

// firstHost returns the first host of a list in Slurm's syntax: "node07" for
// "node[07-09,12],login".
func firstHost(list string) string {
	var host strings.Builder
	for list != "" {
		end := strings.IndexAny(list, "[,")
		if end < 0 {
			host.WriteString(list)
			break
		}
		host.WriteString(list[:end])
		if list[end] == ',' {
			break
		}
		numbers, rest, closed := strings.Cut(list[end+1:], "]")
		if !closed {
			return ""
		}
		first, _, _ := strings.Cut(numbers, ",")
		first, _, _ = strings.Cut(first, "-")
		host.WriteString(first)
		list = rest
	}
	return host.String()
}

// portOf returns a port for a job, the same on all of its ranks: from 20000 to 29999, which systems
// do not assign by themselves.
func portOf(names ...string) string {
	h := fnv.New32a()
	for _, name := range names {
		fmt.Fprintln(h, name)
	}
	return strconv.Itoa(20000 + int(h.Sum32()%10000))
}

// readSecret sets the secret, unless it is set, from a file or from a variable.
func (c *Config) readSecret(env lookup) error {
	secret, file := env(EnvSecret), env(EnvSecretFile)
	switch {
	case c.Secret != nil && c.SecretFile != "":
		return fmt.Errorf("%w: a secret and a file with one, %s: want one of them", ErrJoin, c.SecretFile)
	case c.Secret != nil:
		return nil
	case c.SecretFile != "":
		file = c.SecretFile
	case secret != "" && file != "":
		return fmt.Errorf("%w: %s and %s are set: want one", ErrJoin, EnvSecret, EnvSecretFile)
	case file == "":
		c.Secret = []byte(secret)
		return nil
	}
	var err error
	c.Secret, err = secretIn(file)
	return err
}

// maxSecret is the maximum number of bytes of a file with a secret.
const maxSecret = 4 << 10

// secretIn reads a secret from a file. Blanks and line ends around it do not belong to it.
func secretIn(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("%w: file with the secret: %w", ErrJoin, err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxSecret {
		return nil, fmt.Errorf("%w: file with the secret: %s: want a regular file of at most %d bytes", ErrJoin, path,
			maxSecret)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 && runtime.GOOS != "windows" {
		return nil, fmt.Errorf("%w: file with the secret: %s has the permissions %v: want only those of its owner "+
			"(chmod 600)", ErrJoin, path, mode)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: file with the secret: %w", ErrJoin, err)
	}
	if text = bytes.TrimSpace(text); len(text) == 0 {
		return nil, fmt.Errorf("%w: file with the secret: %s is empty", ErrJoin, path)
	}
	return text, nil
}

// check returns an error that wraps ErrJoin unless all fields are valid.
func (c *Config) check() error {
	host, port, err := net.SplitHostPort(c.Address)
	switch n, portErr := strconv.Atoi(port); {
	case c.Size < 1 || c.Size > MaxSize || c.Rank < 0 || c.Rank >= c.Size:
		return fmt.Errorf("%w: rank %d of %d: want 1 to %d ranks, and a number below", ErrJoin, c.Rank, c.Size, MaxSize)
	case c.Timeout < minTimeout:
		return fmt.Errorf("%w: a timeout of %v: want at least %v", ErrJoin, c.Timeout, minTimeout)
	case len(c.Secret) > 0 && len(c.Secret) < minSecret:
		return fmt.Errorf("%w: a secret of %d bytes: want at least %d, such as those of openssl rand -hex 16", ErrJoin,
			len(c.Secret), minSecret)
	case c.Size == 1:
		return nil
	case err != nil || portErr != nil || host == "" || n < 1 || n > 65535:
		return fmt.Errorf("%w: address %q: want the host and port of rank 0, such as 10.0.0.1:29500", ErrJoin, c.Address)
	case len(c.Secret) == 0 && !isLoopback(host):
		return fmt.Errorf("%w: address %s without a secret: want one in %s or %s, as other machines can connect", ErrJoin,
			c.Address, EnvSecret, EnvSecretFile)
	}
	return nil
}

// isLoopback reports whether only processes on the same host can connect to a host.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
