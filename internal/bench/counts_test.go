package bench

import (
	"errors"
	"fmt"
	"testing"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// TestCountOn: each subject computes one product, which is verified and counted; what
// goes wrong leaves no counts.
func TestCountOn(t *testing.T) {
	boom := errors.New("boom")
	c := new(clock)
	l := newLab(t, c)
	good := &onLab{lab: l, fake: fake{name: "good", clock: c}}
	wrong := &onLab{lab: l, fake: fake{name: "wrong", clock: c, spoil: func(p *gemm.Problem, b gemm.Buffers) { p.C.Type.Set(b.C, 5, 1e3) }}}
	fails := &onLab{lab: l, fake: fake{name: "fails", clock: c, fail: func(int) error { return boom }}}
	other := &onLab{lab: l, fake: fake{name: "other", clock: c, refuse: fmt.Errorf("%w: such products", gemm.ErrUnsupported)}}
	counted := int64(0)
	count := func(product func() error) (*Counts, error) {
		counted++
		return &Counts{Instructions: counted}, product()
	}
	o := quick(c)
	o.Cold = true
	records, err := CountOn(t.Context(), l, shape(t, Cube(8), dtype.F32, dtype.F32), []DeviceSubject{good, wrong, fails}, []DeviceSubject{other}, count, o)
	if !errors.Is(err, gemm.ErrVerify) || !errors.Is(err, boom) || errors.Is(err, gemm.ErrUnsupported) {
		t.Errorf("error %v", err)
	}
	l.clean(t)
	if good.calls != 1 || wrong.calls != 1 {
		t.Errorf("%d and %d products, want one each", good.calls, wrong.calls)
	}
	if len(records) != 4 {
		t.Fatalf("%d records", len(records))
	}
	for i, r := range records {
		if err := r.check(); err != nil {
			t.Errorf("%s would not be read back: %v", r.Subject, err)
		}
		if ok := i == 0; ok != (r.Counts != nil) || ok != r.Verified || ok != (r.Error == "") || r.Timed() || r.Cold {
			t.Errorf("record %+v", r)
		}
		if r.Unsupported != (r.Subject == "other") {
			t.Errorf("%s is unsupported: %v", r.Subject, r.Unsupported)
		}
	}
	if n := records[0].Counts.Instructions; n != 1 {
		t.Errorf("%d instructions, want those of the first product", n)
	}
}
