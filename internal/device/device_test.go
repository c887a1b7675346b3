package device

import (
	"bytes"
	"math"
	"strings"
	"testing"
)

func TestRowsCheck(t *testing.T) {
	for _, c := range []struct {
		rows Rows
		n    int
		want string // part of the error; empty for none
	}{
		{Whole(10), 10, ""},
		{Whole(0), 0, ""},
		{Rows{Count: 3, Width: 4, HostPitch: 8, DevicePitch: 16}, 20, ""},
		{Rows{Count: 0, Width: 4}, 0, ""},
		{Whole(11), 10, "exceed 10 bytes"},
		{Rows{Count: 3, Width: 4, HostPitch: 8, DevicePitch: 16}, 19, "exceed 19 bytes"},
		{Rows{Count: 3, Width: 8, HostPitch: 4, DevicePitch: 8}, 100, "4 bytes apart on the host and 8"},
		{Rows{Count: 3, Width: 8, HostPitch: 8, DevicePitch: 4}, 100, "8 bytes apart on the host and 4"},
		{Rows{Count: -1, Width: 8}, 100, "copy has -1 rows"},
		{Rows{Count: math.MaxInt, Width: 1, HostPitch: math.MaxInt, DevicePitch: math.MaxInt}, 100, "exceed 100 bytes"},
	} {
		err := c.rows.Check(c.n)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v.Check(%d) = %v, want an error containing %q", c.rows, c.n, err, c.want)
		}
	}
}

func TestParams(t *testing.T) {
	var p Params
	p.U32(1)
	p.Ptr(2)
	p.F32(1)
	p.U32(3)
	p.F32(-2)
	p.F64(1)
	want := []byte{
		1, 0, 0, 0, 0, 0, 0, 0,
		2, 0, 0, 0, 0, 0, 0, 0,
		0, 0, 0x80, 0x3f, 3, 0, 0, 0,
		0, 0, 0, 0xc0, 0, 0, 0, 0,
		0, 0, 0, 0, 0, 0, 0xf0, 0x3f,
	}
	if !bytes.Equal(p.Bytes(), want) {
		t.Errorf("got  % x\nwant % x", p.Bytes(), want)
	}
}
