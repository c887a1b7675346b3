package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"tilework/internal/bench"
)

func versionCommand() *cobra.Command {
	var sbom bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version, the commit and the Go release it was built with",
		Long: `version prints what this program is and was built with. --sbom prints what it is
made of: each module, with its version and checksum, as a software bill of materials
in CycloneDX's JSON, taken from the program itself.`,
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
	c.Flags().BoolVar(&sbom, "sbom", false, "print the software bill of materials of this program instead")
	return c
}

// writeVersion prints the version, the commit, the Go release and the platform.
func writeVersion(w io.Writer) error {
	e := bench.Host()
	v := cmp.Or(e.Version, "(devel)")
	if e.Commit != "" {
		v += " " + e.Commit[:min(12, len(e.Commit))]
	}
	if e.Modified {
		v += " modified"
	}
	_, err := fmt.Fprintf(w, "tilework %s %s %s/%s\n", v, e.Go, e.OS, e.Arch)
	return err
}

// The part of CycloneDX 1.6 that a Go program needs
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
		PURL       string         `json:"purl"` // a package URL, https://github.com/package-url
		Properties []billProperty `json:"properties,omitempty"`
	}
	billProperty struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
)

// writeSBOM prints the modules that the linker noted in the program. There is no date
// and no serial number in it: the same program has the same bill.
func writeSBOM(w io.Writer) error {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return errors.New("version --sbom: this program was built without its list of modules")
	}
	subject := componentOf("application", info.Main.Path, cmp.Or(info.Main.Version, "(devel)"))
	for _, s := range info.Settings { // what decides on the program's bytes, beside its modules
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
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(bill)
}

func componentOf(kind, path, version string) component {
	purl := "pkg:golang/" + path
	if version != "(devel)" {
		purl += "@" + url.QueryEscape(version)
	}
	return component{Type: kind, Ref: purl, Name: path, Version: version, PURL: purl}
}
