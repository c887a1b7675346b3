package bench

import (
	"errors"
	"fmt"
	"testing"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// TestCountOn checks that each subject computes one product, which is verified and counted, and
// that a failed subject has no counts.
func TestCountOn(t *testing.T) {
	boom := errors.New("boom")
	c := new(clock)
	l := newFakeDevice(t, c)
	good := &fakeDeviceSubject{device: l, fake: fake{name: "good", clock: c}}
	wrong := &fakeDeviceSubject{device: l, fake: fake{name: "wrong", clock: c,
		spoil: func(p *gemm.Problem, b gemm.Buffers) { p.Out().Set(b[gemm.C], 5, 1e3) }}}
	fails := &fakeDeviceSubject{device: l, fake: fake{name: "fails", clock: c, fail: func(int) error { return boom }}}
	other := &fakeDeviceSubject{device: l, fake: fake{name: "other", clock: c,
		refuse: fmt.Errorf("%w: such products", gemm.ErrUnsupported)}}
	counted := int64(0)
	count := func(product func() error) (*Counts, error) {
		counted++
		return &Counts{Instructions: counted}, product()
	}
	o := quick(c)
	o.Cold = true
	records, err := CountOn(t.Context(), l, shape(t, Cube(8), dtype.F32, dtype.F32), []DeviceSubject{good, wrong, fails},
		[]DeviceSubject{other}, count, o)
	if !errors.Is(err, gemm.ErrVerify) || !errors.Is(err, boom) || errors.Is(err, gemm.ErrUnsupported) {
		t.Errorf("got error %v, want ErrVerify and boom, without ErrUnsupported", err)
	}
	l.checkFreed(t)
	if good.calls != 1 || wrong.calls != 1 {
		t.Errorf("good computed %d products and wrong %d, want 1 each", good.calls, wrong.calls)
	}
	if len(records) != 4 {
		t.Fatalf("got %d records, want 4", len(records))
	}
	for i, r := range records {
		if err := r.check(); err != nil {
			t.Errorf("the record of %s is invalid: %v", r.Subject, err)
		}
		if ok := i == 0; ok != (r.Counts != nil) || ok != r.Verified || ok != (r.Error == "") || r.Timed() || r.Cold {
			t.Errorf("record %+v: want counts only if it succeeded", r)
		}
		if r.Unsupported != (r.Subject == "other") {
			t.Errorf("%s: Unsupported is %v", r.Subject, r.Unsupported)
		}
	}
	if n := records[0].Counts.Instructions; n != 1 {
		t.Errorf("got %d instructions, want 1, the count of the first product", n)
	}
}
