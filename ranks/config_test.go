package ranks

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestComplete reads the variables of launchers.
func TestComplete(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("  of a file, 20 bytes\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const withSecret = "TILEWORK_SECRET=" + testSecret
	secret, other, ofFile := []byte(testSecret), []byte(otherSecret), []byte("of a file, 20 bytes")
	torch := "RANK=3 WORLD_SIZE=8 LOCAL_RANK=1 MASTER_ADDR=head MASTER_PORT=29500 "
	slurm := "SLURM_PROCID=3 SLURM_NTASKS=8 SLURM_LOCALID=1 SLURM_JOB_ID=77 SLURM_STEP_ID=0 "
	mpi := "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_LOCAL_RANK=1 PMIX_NAMESPACE=9 "
	for _, test := range []struct {
		env  string
		c    Config // the explicit settings
		want Config // besides rank 3 of 8
	}{
		{torch, Config{}, Config{Address: "head:29500"}},
		{torch + "TORCHELASTIC_RUN_ID=none", Config{}, Config{Address: "head:29501"}},
		{torch + "TILEWORK_ADDRESS=other:1", Config{}, Config{Address: "other:1"}},
		{torch, Config{Address: "explicit:2"}, Config{Address: "explicit:2"}},
		{torch + slurm + mpi + "JOB_COMPLETION_INDEX=9", Config{}, Config{Address: "head:29500"}},
		{slurm + "SLURM_STEP_NODELIST=n[07-09,12]", Config{}, Config{Address: "n07:29169"}},
		{slurm + "SLURM_JOB_NODELIST=a,b", Config{}, Config{Address: "a:29169"}},
		{slurm + "SLURM_JOB_NODELIST=one", Config{}, Config{Address: "127.0.0.1:29169"}},
		{slurm + "MASTER_ADDR=head MASTER_PORT=5", Config{}, Config{Address: "head:5"}},
		{mpi + "OMPI_COMM_WORLD_LOCAL_SIZE=8", Config{}, Config{Address: "127.0.0.1:23680"}},
		{mpi + "OMPI_COMM_WORLD_LOCAL_SIZE=4 TILEWORK_ADDRESS=h:1", Config{}, Config{Address: "h:1"}},
		{mpi + slurm + "OMPI_COMM_WORLD_LOCAL_SIZE=8", Config{}, Config{Address: "127.0.0.1:23680"}},
		{"JOB_COMPLETION_INDEX=3 TILEWORK_RANKS=8 TILEWORK_ADDRESS=job-0.job:29500", Config{},
			Config{Address: "job-0.job:29500"}},
		{torch + withSecret, Config{}, Config{Address: "head:29500", Secret: secret}},
		{torch + "TILEWORK_SECRET_FILE=" + file, Config{}, Config{Address: "head:29500", Secret: ofFile}},
		{torch + withSecret, Config{Secret: other}, Config{Address: "head:29500", Secret: other}},
		{torch + withSecret, Config{SecretFile: file}, Config{Address: "head:29500", Secret: ofFile}},
		{"TILEWORK_ADDRESS=h:1", Config{Rank: 3, Size: 8}, Config{Address: "h:1"}},
		{torch, Config{Rank: 3, Size: 8, Address: "h:1"}, Config{Address: "h:1"}},
	} {
		got, want := test.c, test.want
		local := 2
		if test.c.Size > 0 || strings.HasPrefix(test.env, "JOB") {
			local = 0
		}
		if !strings.Contains(test.env, "TILEWORK_SECRET") && got.Secret == nil {
			got.Secret, want.Secret = secret, secret
		}
		err := got.complete(environment(test.env))
		if err != nil || got.Rank != 3 || got.Size != 8 || got.local != local || got.Address != want.Address ||
			string(got.Secret) != string(want.Secret) {
			t.Errorf("%s: got %+v, error %v, want %+v", test.env, got, err, want)
		}
	}
	alone := Config{}
	if err := alone.complete(environment("SLURM_PROCID=0 SLURM_NTASKS=1")); err != nil {
		t.Errorf("one rank: %+v, %v", alone, err)
	}
}

// environment returns a function that looks up variables in a text like "A=1 B=2".
func environment(text string) func(string) string {
	return func(name string) string {
		for _, f := range strings.Fields(text) {
			if value, ok := strings.CutPrefix(f, name+"="); ok {
				return value
			}
		}
		return ""
	}
}

// TestIncomplete checks the errors for variables and settings that are missing or wrong.
func TestIncomplete(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const job = "JOB_COMPLETION_INDEX=0 TILEWORK_RANKS=2 "
	for _, test := range []struct {
		env  string
		c    Config
		want string
	}{
		{"", Config{}, "no variable of a launcher is set, want one of RANK (torchrun), OMPI_COMM_WORLD_RANK (Open MPI), " +
			"SLURM_PROCID (Slurm), JOB_COMPLETION_INDEX (Kubernetes), or a rank, size and address"},
		{"RANK=0", Config{}, "RANK is 0 and WORLD_SIZE is not set: want both, from torchrun"},
		{"SLURM_NTASKS=4", Config{}, "SLURM_NTASKS is 4 and SLURM_PROCID is not set: want both, from Slurm"},
		{"JOB_COMPLETION_INDEX=1", Config{},
			"JOB_COMPLETION_INDEX is 1 and TILEWORK_RANKS is not set: want both, from Kubernetes"},
		{"RANK=x WORLD_SIZE=4", Config{}, `RANK is "x": want a number from 0 to 65536`},
		{"RANK=0 WORLD_SIZE=0", Config{}, `WORLD_SIZE is "0": want a number from 1 to 65536`},
		{"RANK=4 WORLD_SIZE=4", Config{}, "RANK is 4 and WORLD_SIZE is 4: want a lower rank"},
		{"RANK=1 WORLD_SIZE=4 LOCAL_RANK=4", Config{}, "LOCAL_RANK is 4 and WORLD_SIZE is 4: want a lower rank"},
		{"RANK=1 WORLD_SIZE=4 LOCAL_RANK=-1", Config{}, `LOCAL_RANK is "-1": want a number from 0 to 65536`},
		{"RANK=1 WORLD_SIZE=4", Config{},
			"RANK is 1 and the address of rank 0 is not known (MASTER_ADDR and MASTER_PORT are " +
				"not set): want it as host:port in TILEWORK_ADDRESS"},
		{"RANK=1 WORLD_SIZE=4 MASTER_ADDR=h", Config{}, "MASTER_ADDR is h and MASTER_PORT is not set: want both"},
		{"RANK=1 WORLD_SIZE=4 MASTER_PORT=1", Config{}, "MASTER_PORT is 1 and MASTER_ADDR is not set: want both"},
		{"RANK=1 WORLD_SIZE=4 MASTER_ADDR=h MASTER_PORT=p", Config{}, `MASTER_PORT is "p": want a number from 1 to 65534`},
		{"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=2", Config{},
			"OMPI_COMM_WORLD_RANK is 1 " +
				`and the address of rank 0 is not known (OMPI_COMM_WORLD_LOCAL_SIZE is "2" and OMPI_COMM_WORLD_SIZE 4, so there ` +
				"are several hosts): want it as host:port in TILEWORK_ADDRESS"},
		{"SLURM_PROCID=1 SLURM_NTASKS=2", Config{}, "SLURM_PROCID is 1 and the address of rank 0 is not known " +
			"(SLURM_STEP_NODELIST and SLURM_JOB_NODELIST are not set): want it as host:port in TILEWORK_ADDRESS"},
		{job, Config{},
			"JOB_COMPLETION_INDEX is 0 and the address of rank 0 is not known (a Kubernetes job does not tell it): " +
				"want it as host:port in TILEWORK_ADDRESS"},
		{job + "TILEWORK_ADDRESS=job-0:1", Config{}, "address job-0:1 without a secret: want one in TILEWORK_SECRET or " +
			"TILEWORK_SECRET_FILE, as other machines can connect"},
		{job + "TILEWORK_ADDRESS=job-0",
			Config{}, `address "job-0": want the host and port of rank 0, such as 10.0.0.1:29500`},
		{job + "TILEWORK_ADDRESS=:99", Config{}, `address ":99": want the host and port of rank 0, such as 10.0.0.1:29500`},
		{job + "TILEWORK_ADDRESS=h:99999", Config{}, `address "h:99999": want the host and port of rank 0, such as ` +
			"10.0.0.1:29500"},
		{job + "TILEWORK_ADDRESS=h:1 TILEWORK_SECRET=s TILEWORK_SECRET_FILE=f", Config{},
			"TILEWORK_SECRET and TILEWORK_SECRET_FILE are set: want one"},
		{job + "TILEWORK_ADDRESS=h:1 TILEWORK_SECRET_FILE=" + empty, Config{},
			"file with the secret: " + empty + " is empty"},
		{job + "TILEWORK_ADDRESS=h:1 TILEWORK_SECRET_FILE=/dev/zero", Config{}, "file with the secret: /dev/zero: want a " +
			"regular file of at most 4096 bytes"},
		{job + "TILEWORK_ADDRESS=h:1 TILEWORK_SECRET_FILE=/none", Config{},
			"file with the secret: stat /none: no such file or " +
				"directory"},
		{job + "TILEWORK_ADDRESS=h:1", Config{Secret: []byte("s"), SecretFile: "f"},
			"a secret and a file with one, f: want one " +
				"of them"},
		{"", Config{Rank: 1, Size: 2},
			"rank 1 of 2 has no address: want the host and port of rank 0, also as TILEWORK_ADDRESS"},
		{"", Config{Rank: 2, Size: 2, Address: "h:1"}, "rank 2 of 2: want 1 to 65536 ranks, and a number below"},
		{"", Config{Size: 2, Address: "h:1", Timeout: 1, Secret: []byte(testSecret)},
			"a timeout of 1ns: want at least 100ms"},
		{job + "TILEWORK_ADDRESS=127.0.0.1:1 TILEWORK_SECRET=hunter2", Config{},
			"a secret of 7 bytes: want at least 16, such as those of openssl rand -hex 16"},
		{job + "TILEWORK_ADDRESS=127.0.0.1:1", Config{Secret: []byte(testSecret[:15])},
			"a secret of 15 bytes: want at least 16, such as those of openssl rand -hex 16"},
	} {
		c := test.c
		err := c.complete(environment(test.env))
		if want := "ranks not configured: " + test.want; !errors.Is(err, ErrJoin) || err.Error() != want {
			t.Errorf("%s: error %v\nwant %s", test.env, err, want)
		}
	}
}

// TestSecretFile checks that a file with the secret is refused if others can read or change it.
func TestSecretFile(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files have no permissions for others")
	}
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(testSecret), 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, ok := range map[os.FileMode]bool{
		0o600: true, 0o400: true, 0o700: true, 0o640: false, 0o604: false, 0o644: false, 0o620: false, 0o602: false,
	} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		c := Config{Size: 2, Address: "h:1", SecretFile: path}
		err := c.complete(environment(""))
		if ok && (err != nil || string(c.Secret) != testSecret) {
			t.Errorf("%v: secret %q, error %v", mode, c.Secret, err)
		}
		want := fmt.Sprintf("%s has the permissions %v: want only those of its owner (chmod 600)", path, mode)
		if !ok && (!errors.Is(err, ErrJoin) || !strings.HasSuffix(err.Error(), want)) {
			t.Errorf("%v: error %v, want %s", mode, err, want)
		}
	}
}

// TestFirstHost finds the first host of lists in Slurm's syntax.
func TestFirstHost(t *testing.T) {
	for list, want := range map[string]string{
		"": "", "a": "a", "a,b": "a", "n[1-4]": "n1", "n[007-009,12]": "n007", "n[3,1]": "n3",
		"rack[1-2]n[08-09]": "rack1n08", "n[1-2]-ib,x": "n1-ib", "gpu-a-1,gpu-b[1-2]": "gpu-a-1", "n[1": "",
	} {
		if got := firstHost(list); got != want {
			t.Errorf("%q: got %q, want %q", list, got, want)
		}
	}
}
