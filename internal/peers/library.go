package peers

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/cpu"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// Library is a row of the table of libraries.
type Library struct {
	Name    string // as users write it: "openblas"
	Title   string // as its authors write it: "OpenBLAS"
	CoreEnv string // the variable that picks its kernels, if it has one
	// restEnv is the variable that says how long its threads spin once they have no work,
	// and rest a short time: they take the cores from whoever's turn is next.
	restEnv, rest string
	source

	*face
	procs                  []string // the functions used, beside those of the face
	setThreads, getThreads string   // those of procs that set and get the number of threads

	prepare  func(*Peer) error  // before the first call: what would kill the process otherwise
	describe func(*Peer)        // fills in Version, Config, Core and threadsPerCaller
	caveat   func(*Peer) string // see Peer.Caveat
}

// face is how a library is asked for a product.
type face struct {
	// procs are the functions. The first one tells which file has been loaded.
	procs []string
	types []dtype.Type // of the elements of A and B
	// plain says that only α = 1 and β = 0 are offered.
	plain   bool
	product func(*Peer, *gemm.Problem) (func(gemm.Buffers) error, error)
}

// libraries holds one row for each; everything else ranges over it.
var libraries = []*Library{
	{
		Name: "openblas", Title: "OpenBLAS", CoreEnv: "OPENBLAS_CORETYPE",
		restEnv: "OPENBLAS_THREAD_TIMEOUT", rest: "20", // 2²⁰ cycles, half a millisecond, instead of 2²⁶ or 2²⁸
		source: source{
			Env:     "TILEWORK_OPENBLAS",
			Install: "apt install libopenblas0-pthread, or pip's scipy-openblas64",
			// Fedora's libopenblas is serial and its libopenblasp has threads.
			stems:    []string{"openblasp", "openblas", "openblas64", "scipy_openblas64_"},
			versions: []string{"0", ""},
		},
		face:       blas,
		procs:      []string{"openblas_set_num_threads", "openblas_get_num_threads", "openblas_get_config", "openblas_get_corename", "openblas_get_parallel"},
		setThreads: "openblas_set_num_threads", getThreads: "openblas_get_num_threads",
		describe: describeOpenBLAS,
		caveat:   caveatAVX512("Haswell", "Zen"),
	},
	{
		Name: "blis", Title: "BLIS",
		source: source{
			Env: "TILEWORK_BLIS", Install: "apt install libblis4-pthread",
			stems: []string{"blis", "blis-mt"}, versions: []string{"5", "4", "3", ""},
		},
		face:       blas,
		procs:      []string{"bli_thread_set_num_threads", "bli_thread_get_num_threads", "bli_init", "bli_info_get_version_str", "bli_arch_query_id", "bli_arch_string"},
		setThreads: "bli_thread_set_num_threads", getThreads: "bli_thread_get_num_threads",
		describe: describeBLIS,
		caveat:   caveatAVX512("haswell", "zen", "zen2", "zen3"),
	},
	{
		Name: "mkl", Title: "MKL",
		restEnv: "KMP_BLOCKTIME", rest: "1", // ms, instead of 200
		source: source{
			Env: "TILEWORK_MKL", Install: "pip's mkl with intel-openmp",
			stems: []string{"mkl_rt"}, versions: []string{"3", "2", "1", ""},
		},
		face:       blas,
		procs:      []string{"MKL_Set_Num_Threads", "MKL_Get_Max_Threads", "MKL_Get_Version", "MKL_Get_Version_String"},
		setThreads: "MKL_Set_Num_Threads", getThreads: "MKL_Get_Max_Threads",
		prepare:  prepareMKL,
		describe: describeMKL,
	},
	{
		Name: "onednn", Title: "oneDNN",
		restEnv: "GOMP_SPINCOUNT", rest: "10000", // pauses, half a millisecond, instead of 300,000
		source: source{
			Env: "TILEWORK_ONEDNN", Install: "apt install libdnnl3, or pip's onednn-cpu-gomp",
			stems: []string{"dnnl"}, versions: []string{"3", ""}, scope: ownFirst,
		},
		face: matmul,
		// Its builds for OpenMP leave the number of threads to that.
		procs:      []string{"dnnl_version", "dnnl_get_effective_cpu_isa", "omp_set_num_threads", "omp_get_max_threads"},
		setThreads: "omp_set_num_threads", getThreads: "omp_get_max_threads",
		prepare:  prepareOneDNN,
		describe: describeOneDNN,
	},
}

// Libraries lists the libraries that can be compared with.
func Libraries() []*Library { return append([]*Library(nil), libraries...) }

// Find returns the row of that name.
func Find(name string) (*Library, error) {
	var known []string
	for _, l := range libraries {
		if l.Name == name {
			return l, nil
		}
		known = append(known, l.Name)
	}
	return nil, fmt.Errorf("unknown peer %q (want one of %s)", name, strings.Join(known, ", "))
}

// decoration is what a build puts around the names of its functions.
type decoration struct{ prefix, suffix string }

func (d decoration) of(name string) string { return d.prefix + name + d.suffix }

// decorations lists those in use: none, that of builds with 64-bit integers
// (sgemm_64_), and those of SciPy's own builds (scipy_sgemm_64_).
var decorations = []decoration{{"", ""}, {"", "64_"}, {"scipy_", "64_"}, {"scipy_", ""}}

// describeOpenBLAS reads "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH … MAX_THREADS=64".
func describeOpenBLAS(p *Peer) {
	const openMP = 2 // openblas_get_parallel: 0 is serial, 1 threads of its own
	p.Config = goString(p.call("openblas_get_config"))
	if fields := strings.Fields(p.Config); len(fields) > 1 && fields[0] == "OpenBLAS" {
		p.Version = fields[1]
	}
	p.Core = goString(p.call("openblas_get_corename"))
	p.threadsPerCaller = int32(p.call("openblas_get_parallel")) == openMP
}

// describeBLIS: releases since 1.0 and AMD's keep the number of threads for each
// OS thread, earlier ones for the process, and nothing tells which this is.
func describeBLIS(p *Peer) {
	p.call("bli_init") // or asking for the core aborts where BLIS_ARCH_TYPE is set
	p.Version = goString(p.call("bli_info_get_version_str"))
	p.Core = goString(p.call("bli_arch_string", p.call("bli_arch_query_id")))
	p.threadsPerCaller = true
}

// prepareMKL loads the OpenMP runtime that MKL's default threading layer needs:
// without it, or without the files beside it, MKL's first call ends the process.
func prepareMKL(p *Peer) error {
	dir := filepath.Dir(p.Path)
	if beside(dir, "mkl_core") == "" {
		return fmt.Errorf("%s has no libmkl_core beside it, which it needs", p.Path)
	}
	switch layer := os.Getenv("MKL_THREADING_LAYER"); strings.ToUpper(layer) {
	case "", "INTEL":
	default:
		return nil // the user chose another, and answers for it
	}
	file := beside(dir, "iomp5")
	if file == "" {
		if err := safeSearch(); err != nil {
			return err
		}
		file = fileName("iomp5", "")
	}
	if _, err := dlopen(file, shared); err != nil {
		return fmt.Errorf("%s needs Intel's OpenMP runtime (pip's intel-openmp) beside it: %w", p.Path, err)
	}
	return nil
}

// describeMKL reads "Intel(R) oneAPI Math Kernel Library Version 2026.2-Product
// Build 20260915 …" and, of the structure MKLVersion in mkl_types.h, "… (Intel(R)
// AVX-512) … enabled processors".
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
	p.Core = goString(v.processor)
	if _, rest, ok := strings.Cut(p.Core, "(Intel(R) "); ok {
		p.Core, _, _ = strings.Cut(rest, ")")
	}
}

// caveatAVX512 warns where the library runs kernels without AVX-512 on a CPU that
// has it, and so at half its speed: older releases take a CPU that they do not
// know for the nearest that they do.
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

// beside finds lib<stem> of any version in dir.
func beside(dir, stem string) string {
	for _, pattern := range []string{fileName(stem, ""), fileName(stem, "*")} {
		if found, _ := filepath.Glob(filepath.Join(dir, pattern)); len(found) > 0 {
			return found[0]
		}
	}
	return ""
}

// goString copies the C string at address p.
func goString(p uintptr) string {
	if p == 0 {
		return ""
	}
	at := *(*unsafe.Pointer)(unsafe.Pointer(&p)) // p is C's memory, which does not move
	n := 0
	for *(*byte)(unsafe.Add(at, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(at), n))
}
