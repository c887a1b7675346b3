package peers

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/cpu"

	"tilework/dtype"
	"tilework/internal/dl"
	"tilework/internal/gemm"
	"tilework/internal/names"
)

// Library describes a library.
type Library struct {
	Name    string // in flags: "openblas"
	Title   string // in texts: "OpenBLAS"
	CoreEnv string // environment variable that selects its kernels, if any
	// spinEnv is the environment variable for the time that idle threads spin. It is set to the
	// short time spin, because spinning threads keep the cores busy in the next subject's turn.
	spinEnv, spin string
	dl.Source

	*api
	procs                  []string // functions in addition to those of api
	setThreads, getThreads string   // functions in procs that set and get the number of threads

	prepare  func(*Peer) error  // runs before the first call, which could otherwise end the process
	describe func(*Peer)        // sets Version, Config, Core and threadsPerCaller
	caveat   func(*Peer) string // see Peer.Caveat
}

// api is the programming interface for products, which several libraries may share.
type api struct {
	// procs are the functions. The loaded file is identified by the first one.
	procs []string
	types []dtype.Type // supported types of A and B
	// onlyAB reports that only α = 1 and β = 0 are supported.
	onlyAB  bool
	product func(*Peer, *gemm.Problem) (func(*gemm.Buffers) error, error)
}

// libraries lists all libraries. Everything else is derived from it.
var libraries = []*Library{
	{
		Name: "openblas", Title: "OpenBLAS", CoreEnv: "OPENBLAS_CORETYPE",
		spinEnv: "OPENBLAS_THREAD_TIMEOUT", spin: "20", // 2²⁰ cycles, about 0.5 ms; the default is 2²⁶ or 2²⁸
		Source: dl.Source{
			Env:     "TILEWORK_OPENBLAS",
			Install: "apt install libopenblas0-pthread, or pip's scipy-openblas64",
			// On Fedora, libopenblas is serial and libopenblasp is multithreaded.
			Stems:    []string{"openblasp", "openblas", "openblas64", "scipy_openblas64_"},
			Versions: []string{"0", ""},
		},
		api: blas,
		procs: []string{"openblas_set_num_threads", "openblas_get_num_threads", "openblas_get_config",
			"openblas_get_corename", "openblas_get_parallel"},
		setThreads: "openblas_set_num_threads", getThreads: "openblas_get_num_threads",
		describe: describeOpenBLAS,
		caveat:   caveatAVX512("Haswell", "Zen"),
	},
	{
		Name: "blis", Title: "BLIS",
		Source: dl.Source{
			Env: "TILEWORK_BLIS", Install: "apt install libblis4-pthread",
			Stems: []string{"blis", "blis-mt"}, Versions: []string{"5", "4", "3", ""},
		},
		api: blas,
		procs: []string{"bli_thread_set_num_threads", "bli_thread_get_num_threads", "bli_init",
			"bli_info_get_version_str", "bli_arch_query_id", "bli_arch_string"},
		setThreads: "bli_thread_set_num_threads", getThreads: "bli_thread_get_num_threads",
		describe: describeBLIS,
		caveat:   caveatAVX512("haswell", "zen", "zen2", "zen3"),
	},
	{
		Name: "mkl", Title: "MKL",
		spinEnv: "KMP_BLOCKTIME", spin: "1", // ms; the default is 200
		Source: dl.Source{
			Env: "TILEWORK_MKL", Install: "pip's mkl with intel-openmp",
			Stems: []string{"mkl_rt"}, Versions: []string{"3", "2", "1", ""},
		},
		api:        blas,
		procs:      []string{"MKL_Set_Num_Threads", "MKL_Get_Max_Threads", "MKL_Get_Version", "MKL_Get_Version_String"},
		setThreads: "MKL_Set_Num_Threads", getThreads: "MKL_Get_Max_Threads",
		prepare:  prepareMKL,
		describe: describeMKL,
	},
	{
		Name: "onednn", Title: "oneDNN",
		spinEnv: "GOMP_SPINCOUNT", spin: "10000", // iterations, about 0.5 ms; the default is 300,000
		Source: dl.Source{
			Env: "TILEWORK_ONEDNN", Install: "apt install libdnnl3, or pip's onednn-cpu-gomp",
			Stems: []string{"dnnl"}, Versions: []string{"3", ""}, Scope: dl.DeepBind,
		},
		api: matmul,
		// The OpenMP builds of oneDNN take the number of threads from OpenMP.
		procs:      []string{"dnnl_version", "dnnl_get_effective_cpu_isa", "omp_set_num_threads", "omp_get_max_threads"},
		setThreads: "omp_set_num_threads", getThreads: "omp_get_max_threads",
		prepare:  prepareOneDNN,
		describe: describeOneDNN,
	},
}

// Libraries returns the supported libraries.
func Libraries() []*Library { return append([]*Library(nil), libraries...) }

// Find returns the library with the given name.
func Find(name string) (*Library, error) {
	i, err := names.Find("peer", name, libraries, func(l **Library) string { return (*l).Name })
	if err != nil {
		return nil, err
	}
	return libraries[i], nil
}

// affix is a prefix and suffix that a build adds to the names of its functions.
type affix struct{ prefix, suffix string }

func (a affix) symbol(name string) string { return a.prefix + name + a.suffix }

// affixes lists those of common builds: none, of builds with 64-bit integers (sgemm_64_), and of
// SciPy's builds (scipy_sgemm_64_).
var affixes = []affix{{"", ""}, {"", "64_"}, {"scipy_", "64_"}, {"scipy_", ""}}

// describeOpenBLAS parses "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH … MAX_THREADS=64".
func describeOpenBLAS(p *Peer) {
	const openMP = 2 // openblas_get_parallel: 0 is serial, 1 is pthreads
	p.Config = dl.String(p.call("openblas_get_config"))
	if fields := strings.Fields(p.Config); len(fields) > 1 && fields[0] == "OpenBLAS" {
		p.Version = fields[1]
	}
	p.Core = dl.String(p.call("openblas_get_corename"))
	p.threadsPerCaller = int32(p.call("openblas_get_parallel")) == openMP
}

// describeBLIS assumes that the number of threads is stored per OS thread. That holds for releases
// since 1.0 and for AMD's. Earlier ones store it per process, and no function tells them apart.
func describeBLIS(p *Peer) {
	p.call("bli_init") // otherwise bli_arch_query_id aborts if BLIS_ARCH_TYPE is set
	p.Version = dl.String(p.call("bli_info_get_version_str"))
	p.Core = dl.String(p.call("bli_arch_string", p.call("bli_arch_query_id")))
	p.threadsPerCaller = true
}

// prepareMKL loads the OpenMP runtime that MKL's default threading layer needs. Without the
// runtime, or without the other libraries of MKL, MKL's first call ends the process.
func prepareMKL(p *Peer) error {
	dir := filepath.Dir(p.Path)
	if findIn(dir, "mkl_core") == "" {
		return fmt.Errorf("%s: found no libmkl_core in the same directory", p.Path)
	}
	switch layer := os.Getenv("MKL_THREADING_LAYER"); strings.ToUpper(layer) {
	case "", "INTEL":
	default:
		return nil // set by the user, who is responsible for it
	}
	file := findIn(dir, "iomp5")
	if file == "" {
		file = dl.FileName("iomp5", "")
	}
	if _, err := dl.Open(file, dl.Global); err != nil {
		return fmt.Errorf("%s needs Intel's OpenMP runtime (pip's intel-openmp) in the same directory: %w", p.Path, err)
	}
	return nil
}

// describeMKL parses "Intel(R) oneAPI Math Kernel Library Version 2026.2-Product Build 20260915 …",
// and the field "… (Intel(R) AVX-512) … enabled processors" of the structure MKLVersion in
// mkl_types.h.
func describeMKL(p *Peer) {
	text := make([]byte, 512)
	p.call("MKL_Get_Version_String", uintptr(unsafe.Pointer(unsafe.SliceData(text))), uintptr(len(text)-1))
	p.Config = string(text[:bytes.IndexByte(text, 0)])
	if _, rest, ok := strings.Cut(p.Config, "Version "); ok {
		p.Version, _, _ = strings.Cut(rest, "-")
	}
	var v struct {
		major, minor, update               int32
		status, build, processor, platform uintptr
	}
	p.call("MKL_Get_Version", uintptr(unsafe.Pointer(&v)))
	p.Core = dl.String(v.processor)
	if _, rest, ok := strings.Cut(p.Core, "(Intel(R) "); ok {
		p.Core, _, _ = strings.Cut(rest, ")")
	}
}

// caveatAVX512 returns a caveat for a library that runs kernels without AVX-512 on a CPU that has
// it, at half its speed. Older releases run the kernels of the nearest CPU that they know.
func caveatAVX512(without ...string) func(*Peer) string {
	return func(p *Peer) string {
		if !cpu.X86.HasAVX512 || !slices.Contains(without, p.Core) {
			return ""
		}
		s := fmt.Sprintf("%s %s runs its %s kernels on a CPU with AVX-512", p.Library.Title, p.Version, p.Core)
		if p.Library.CoreEnv != "" {
			s += fmt.Sprintf("; set %s=SKYLAKEX", p.Library.CoreEnv)
		}
		return s
	}
}

// findIn returns the path of lib<stem> of any version in dir, or the empty string.
func findIn(dir, stem string) string {
	for _, pattern := range []string{dl.FileName(stem, ""), dl.FileName(stem, "*")} {
		if found, _ := fs.Glob(os.DirFS(dir), pattern); len(found) > 0 {
			return filepath.Join(dir, found[0])
		}
	}
	return ""
}
