package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"tilework/internal/gemm"
	"tilework/internal/names"
	"tilework/internal/peers"
	"tilework/internal/peers/pytorch"
)

// peer is a name in --peers.
type peer struct {
	name string
	form string // in the help, if it is not the name alone
	doc  string
	path bool // --peer-path can name its file
}

// peerGroup is a group of peers that are measured in the same way.
type peerGroup struct {
	where string
	how   string // continues the heading in the help
	peers []peer
}

// The indices of peerGroups.
const (
	peersOnCPU = iota
	peersOnGPU
	peersOnSeveral
	peersWithTransfers
)

// peerGroups lists all peers.
var peerGroups = [...]peerGroup{
	peersOnCPU: {"on the CPU", "", append(libraryPeers(),
		peer{name: readPeer, doc: "reads B and multiplies nothing: about the least time of a product with few rows"},
		peer{name: plainPeer, doc: "tilework's own product without the --epilogue"},
		peer{name: defaultPeer, doc: "tilework's own product without --row-invariant"})},
	peersOnGPU: {"on a GPU", "", []peer{
		{name: ltPeer, doc: "cuBLASLt, with the fastest of the algorithms that it proposes", path: true},
		{name: ltTF32Peer, doc: "cuBLASLt in TF32"},
		{name: ltFirstPeer, doc: "cuBLASLt, with the first of the algorithms that it proposes, which most programs use"},
		{name: ltFirstTF32Peer, doc: "the same in TF32"},
		{name: thenPeer, doc: "tilework's own product without the --epilogue, then the epilogue in a second launch"},
		{name: defaultPeer, doc: "tilework's own product without --row-invariant"},
		{name: densePeer, doc: "with --groups: one product without groups that has the same number of operations"},
		{name: kernelPeer, form: kernelPeer + ":ENTRY:ROWSxCOLS/XxY", path: true,
			doc: "the kernel ENTRY of the file in --peer-path " + kernelPeer + "=FILE.ptx, where a block of X×Y threads " +
				"computes ROWS×COLS elements of C (see docs/results/reference)"},
	}},
	peersOnSeveral: {"on several GPUs", ", measured by the host's clock", []peer{
		{name: torchPeer, path: true,
			doc: "PyTorch, with a process for each GPU: all-gather of B over NCCL, then matmul; on one GPU a matmul " +
				"(--peer-path " + torchPeer + "=FILE selects the Python to start, otherwise python3)"},
		{name: torchAsyncPeer, doc: "PyTorch's async tensor parallelism, which gathers A while it multiplies"},
		{name: mpPeer, path: true, doc: "cuBLASMp 0.10 or later, which gathers A while it multiplies"},
	}},
	peersWithTransfers: {"with --transfers", ", besides those on the CPU", []peer{
		{name: xtPeer, doc: "cuBLASXt, for float32 and float64", path: true},
		{name: xtPinnedPeer, doc: "the same after pinning the matrices, which is not timed"},
	}},
}

// libraryPeers returns the libraries for the CPU.
func libraryPeers() (all []peer) {
	for _, l := range peers.Libraries() {
		all = append(all, peer{name: l.Name, doc: l.Title, path: true})
	}
	return all
}

// peerNames returns the names of the peers that fit.
func peerNames(fits func(*peer) bool) (found []string) {
	for _, g := range peerGroups {
		for _, p := range g.peers {
			if fits(&p) && !slices.Contains(found, p.name) {
				found = append(found, p.name)
			}
		}
	}
	return found
}

// pathNames returns the peers that --peer-path can name.
func pathNames() []string { return peerNames(func(p *peer) bool { return p.path }) }

// names returns the names of the peers of a group.
func (g *peerGroup) names() (all []string) {
	for _, p := range g.peers {
		all = append(all, p.name)
	}
	return all
}

// unknownPeer returns the error for a name that is none of the peers of the groups.
func unknownPeer(name string, groups ...int) error {
	var want []string
	for _, g := range groups {
		want = append(want, peerGroups[g].names()...)
	}
	for _, g := range peerGroups {
		if slices.Contains(g.names(), name) {
			return fmt.Errorf("--peers: %s is a peer %s: %s want one of %s", name, g.where, peerGroups[groups[0]].where,
				strings.Join(want, ", "))
		}
	}
	return fmt.Errorf("--peers: %w", names.Unknown("peer", name, want))
}

// peerHelp lists the peers of each group.
func peerHelp() string {
	var b strings.Builder
	for _, g := range peerGroups {
		fmt.Fprintf(&b, "\nPeers %s%s:\n", g.where, g.how)
		var rows []definition
		for _, p := range g.peers {
			rows = append(rows, definition{p.name, p.doc})
			if p.form != "" {
				rows[len(rows)-1].term = p.form
			}
		}
		b.WriteString(definitions(15, rows) + "\n")
	}
	return strings.TrimRight(b.String(), "\n")
}

// mayLack reports whether a peer whose opening failed with err is left out: one that is not
// installed, or does not support this machine, if --peers does not name it.
func (f *benchFlags) mayLack(err error) bool {
	missing := errors.Is(err, peers.ErrNotFound) || errors.Is(err, pytorch.ErrNotFound) ||
		errors.Is(err, gemm.ErrUnsupported)
	return missing && (f.peers == "all" || f.optional)
}
