package main

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"tilework/internal/bench"
	"tilework/internal/release"
)

func versionCommand() *cobra.Command {
	var sbom bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version, the commit and the Go release",
		Long: `version prints the version of tilework, the commit and Go release that it was built from, and
the platform. --sbom prints a software bill of materials in the CycloneDX JSON format instead: the
modules that the program contains, with versions and checksums.`,
		Example: `  tilework version
  tilework version --sbom > tilework.cdx.json`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if sbom {
				return writeSBOM(c.OutOrStdout())
			}
			return writeVersion(c.OutOrStdout())
		},
	}
	c.Flags().BoolVar(&sbom, "sbom", false, "print a software bill of materials (CycloneDX JSON)")
	return c
}

// writeVersion prints the version, the commit, the Go release and the platform.
func writeVersion(w io.Writer) error {
	e := bench.Host()
	v := e.Version
	if e.Commit != "" {
		v += " " + e.Commit[:min(12, len(e.Commit))]
	}
	if e.Modified {
		v += " modified"
	}
	_, err := fmt.Fprintf(w, "tilework %s %s %s/%s\n", v, e.Go, e.OS, e.Arch)
	return err
}

// These types are the part of CycloneDX 1.6 that describes a Go program
// (https://cyclonedx.org/docs/1.6/json).
type (
	billOfMaterials struct {
		Format     string      `json:"bomFormat"`
		Spec       string      `json:"specVersion"`
		Version    int         `json:"version"`
		Metadata   billSubject `json:"metadata"`
		Components []component `json:"components"`
	}
	billSubject struct {
		Component component `json:"component"`
	}
	component struct {
		Type       string         `json:"type"`
		Ref        string         `json:"bom-ref"`
		Name       string         `json:"name"`
		Version    string         `json:"version"`
		PURL       string         `json:"purl"` // package URL, https://github.com/package-url
		Properties []billProperty `json:"properties,omitempty"`
	}
	billProperty struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
)

// writeSBOM prints the modules that the linker recorded in the program. The bill has no date and no
// serial number, so that it is reproducible.
func writeSBOM(w io.Writer) error {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return errors.New("version --sbom: the program has no build information, want a build with module support")
	}
	subject := componentOf("application", info.Main.Path, "v"+release.Version)
	for _, s := range info.Settings { // with the modules, they determine the program's bytes
		if s.Value != "" {
			subject.Properties = append(subject.Properties, billProperty{"go:build:" + s.Key, s.Value})
		}
	}
	bill := billOfMaterials{
		Format: "CycloneDX", Spec: "1.6", Version: 1, Metadata: billSubject{subject},
		Components: []component{componentOf("library", "std", strings.TrimPrefix(info.GoVersion, "go"))},
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		c := componentOf("library", m.Path, m.Version)
		if m.Sum != "" {
			c.Properties = []billProperty{{"go:sum", m.Sum}} // as in go.sum
		}
		bill.Components = append(bill.Components, c)
	}
	return writeJSON(w, bill)
}

func componentOf(kind, path, version string) component {
	purl := "pkg:golang/" + path + "@" + url.QueryEscape(version)
	return component{Type: kind, Ref: purl, Name: path, Version: version, PURL: purl}
}
