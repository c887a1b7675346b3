package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/spf13/cobra"

	"tilework/internal/matio"
	"tilework/internal/study/site"
)

// studyFlags are the flags of `tilework study`.
type studyFlags struct {
	addr, export  string
	noOpen, force bool
}

func studyCommand() *cobra.Command {
	var f studyFlags
	c := &cobra.Command{
		Use:   "study",
		Short: "Study how a GPU multiplies matrices, in a browser",
		Long: `study serves a page on this machine and opens it in a browser. The page runs the GPU kernels in the
browser, on tilework's emulator, without a GPU and without a network: it checks and counts every
memory access, shows a block step by step, plants classic mistakes and shows the findings, runs
your own PTX, and computes occupancy.

The go command compiles the emulator to WebAssembly, from tilework's sources. The first time takes
up to a minute. --export writes the page's files for any web server instead.`,
		Example: `  tilework study
  tilework study --addr localhost:8080 --no-open
  tilework study --export study`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.run(c.Context(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.addr, "addr", "localhost:0", "serve at this `HOST:PORT` (port 0: any free port)")
	fl.BoolVar(&f.noOpen, "no-open", false, "do not open a browser")
	fl.StringVar(&f.export, "export", "", "write the page's files into this `FOLDER` instead of serving them")
	forceFlag(c, &f.force)
	exclusive(c, "addr", "export")
	exclusive(c, "no-open", "export")
	return c
}

func (f *studyFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	if f.export != "" {
		return f.write(ctx, stdout, stderr)
	}
	if f.force {
		return errors.New("--force without --export: nothing is written, want --export FOLDER")
	}
	host, _, err := net.SplitHostPort(f.addr)
	if err != nil {
		return fmt.Errorf("--addr %s: want a host and a port, such as localhost:8080", f.addr)
	}
	l, err := net.Listen("tcp", f.addr)
	if err != nil {
		return fmt.Errorf("--addr %s: %w", f.addr, err)
	}
	defer l.Close()
	files, err := buildSite(ctx, stderr)
	if err != nil {
		return err
	}
	url := "http://" + l.Addr().String() + "/"
	if _, err := fmt.Fprintln(stdout, url); err != nil {
		return err
	}
	fmt.Fprintln(stderr, "serving until Ctrl-C")
	if !f.noOpen {
		if err := openBrowser(ctx, url); err != nil {
			fmt.Fprintf(stderr, "no browser opened (%v): open %s\n", err, url)
		}
	}
	server := files.Server(host)
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil // an interruption is the usual end
}

func buildSite(ctx context.Context, stderr io.Writer) (site.Site, error) {
	fmt.Fprintln(stderr, "compiling the page's program")
	return site.New(ctx)
}

// write writes the files of the page into the folder f.export.
func (f *studyFlags) write(ctx context.Context, stdout, stderr io.Writer) error {
	// Report the usual errors before the page is compiled.
	if info, err := os.Stat(f.export); err == nil && !info.IsDir() {
		return fmt.Errorf("--export %s is a file: want a folder", f.export)
	}
	if err := matio.CheckReplace(filepath.Join(f.export, "index.html"), f.force); err != nil {
		return err
	}
	files, err := buildSite(ctx, stderr)
	if err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(files))
	for _, name := range names {
		if err := matio.CheckReplace(filepath.Join(f.export, name), f.force); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(f.export, 0o777); err != nil {
		return err
	}
	for _, name := range names {
		path := filepath.Join(f.export, name)
		if err := matio.WriteFile(path, files[name], f.force); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(stdout, path); err != nil {
			return err
		}
	}
	return nil
}

// openBrowser opens a page in the user's browser.
func openBrowser(ctx context.Context, url string) error {
	switch runtime.GOOS {
	case "darwin":
		return exec.CommandContext(ctx, "open", url).Start()
	case "windows":
		return exec.CommandContext(ctx, "rundll32", "url.dll,FileProtocolHandler", url).Start()
	}
	return exec.CommandContext(ctx, "xdg-open", url).Start()
}
