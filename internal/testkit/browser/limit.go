package browser

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// period is the time in which a control group uses up its part of a core, in microseconds.
const period = 100_000

// limited returns a command whose processes together get a part of one core, until the test ends.
// It needs Linux and the right to make control groups, and else skips t with a message.
func limited(t testing.TB, cores float64, path string, args ...string) *exec.Cmd {
	t.Helper()
	quota := int(cores * period)
	folder, limits := "/sys/fs/cgroup/cpu", map[string]string{
		"cpu.cfs_period_us": fmt.Sprint(period), "cpu.cfs_quota_us": fmt.Sprint(quota),
	}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil { // version 2 of the interface
		folder, limits = "/sys/fs/cgroup", map[string]string{"cpu.max": fmt.Sprintf("%d %d", quota, period)}
	}
	folder = filepath.Join(folder, fmt.Sprintf("tilework-%d-%d", os.Getpid(), time.Now().UnixNano()))
	err := os.Mkdir(folder, 0o755)
	if err == nil {
		t.Cleanup(func() {
			for end := time.Now().Add(limit); os.Remove(folder) != nil && time.Now().Before(end); {
				time.Sleep(50 * time.Millisecond) // processes of the browser have not ended
			}
		})
	}
	for name, value := range limits {
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, name), []byte(value), 0o644)
		}
	}
	if err != nil {
		t.Skipf("MISSING: no control group that limits the browser to %v of a core: %v", cores, err)
	}
	// The shell joins the group and becomes the browser, whose other processes inherit the group.
	script := []string{"-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(folder, "cgroup.procs"), path}
	return exec.Command("sh", append(script, args...)...)
}
