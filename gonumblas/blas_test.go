package gonumblas

import (
	"testing"

	"gonum.org/v1/gonum/blas/testblas"
)

// The tests below are gonum's tests of the replaced routines, which cover float64 only.

func TestDgemm(t *testing.T)  { testblas.TestDgemm(t, Implementation{}) }
func TestDsymm(t *testing.T)  { testblas.DsymmTest(t, Implementation{}) }
func TestDsyrk(t *testing.T)  { testblas.DsyrkTest(t, Implementation{}) }
func TestDsyr2k(t *testing.T) { testblas.Dsyr2kTest(t, Implementation{}) }
func TestDtrmm(t *testing.T)  { testblas.DtrmmTest(t, Implementation{}) }
func TestDtrsm(t *testing.T)  { testblas.DtrsmTest(t, Implementation{}) }
func TestDgemv(t *testing.T)  { testblas.DgemvTest(t, Implementation{}) }
func TestDger(t *testing.T)   { testblas.DgerTest(t, Implementation{}) }
func TestDtrmv(t *testing.T)  { testblas.DtrmvTest(t, Implementation{}) }
func TestDtrsv(t *testing.T)  { testblas.DtrsvTest(t, Implementation{}) }
