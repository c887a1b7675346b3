package tilework

import (
	"testing"

	"tilework/dtype"
	"tilework/ptx/build"
)

// vectorViews returns views of a 9×9 matrix that have n ≤ 8 elements in one row or one column, each
// with other elements.
func vectorViews[M interface {
	Sub(i, j, rows, cols int) M
	T() M
}](m M, n int) map[string]M {
	return map[string]M{
		"row":                   m.Sub(1, 1, 1, n),
		"transposed row":        m.Sub(2, 1, 1, n).T(),
		"column":                m.Sub(1, 3, n, 1),
		"transposed column":     m.Sub(0, 4, n, 1).T(),
		"row of a transpose":    m.T().Sub(5, 1, 1, n),
		"column of a transpose": m.T().Sub(1, 6, n, 1),
	}
}

// elements returns a new 1×n matrix with the elements of a vector.
func elements[T dtype.Element](v Matrix[T]) Matrix[T] {
	all := New[T](1, v.Rows()*v.Cols())
	for i := range all.data {
		all.data[i] = v.At(i%v.Rows(), i%v.Cols())
	}
	return all
}

// TestVectorViews checks that every view with one row or one column can be a bias, a scale and the
// data of a function, on the host and on one and several devices.
func TestVectorViews(t *testing.T) {
	ctx := t.Context()
	f, err := NewDeviceFunc(func(k *build.Kernel, e DeviceElement) build.Reg {
		return k.Add(e.Value, e.Data.At(e.Col).Load())
	})
	if err != nil {
		t.Fatal(err)
	}
	m := New[float32](9, 9)
	for i := range m.data {
		m.data[i] = float32(i%7 - 3)
	}
	a, b := m.Sub(0, 1, 5, 4).clone(), m.Sub(2, 1, 4, 7).clone()
	of := map[string]func(five, seven Operand[float32]) []Option{
		"row bias, scales": func(five, seven Operand[float32]) []Option {
			return []Option{WithRowBias(five), WithRowScale(five), WithColScale(seven)}
		},
		"column bias": func(_, seven Operand[float32]) []Option { return []Option{WithColBias(seven)} },
		"data":        func(_, seven Operand[float32]) []Option { return []Option{WithDeviceFunc(f, seven)} },
	}
	devices := map[string]*Device{"emu": on(t, "emu"), "emu:h200,h200": on(t, "emu:h200,h200")}
	five, seven := vectorViews(m, 5), vectorViews(m, 7)
	for view := range five {
		for options, of := range of {
			want, err := Mul(ctx, a, b, append(of(elements(five[view]), elements(seven[view])), WithDevice("emu"))...)
			if err != nil {
				t.Fatal(err)
			}
			for _, device := range []string{"cpu", "emu"} {
				if options == "data" && device == "cpu" {
					continue // only GPUs run a DeviceFunc
				}
				for _, c := range []Matrix[float32]{New[float32](5, 7), New[float32](7, 5).T()} {
					if err := Gemm(ctx, 1, a, b, 0, c, append(of(five[view], seven[view]), WithDevice(device))...); err != nil {
						t.Fatalf("%s as %s, on %s: %v", view, options, device, err)
					}
					equalTo(t, view+" as "+options+", on "+device, c, want)
				}
			}
			for device, d := range devices {
				dm := upload(t, d, m)
				c, err := Mul(ctx, upload(t, d, a), upload(t, d, b), of(vectorViews(dm, 5)[view], vectorViews(dm, 7)[view])...)
				if err != nil {
					t.Fatalf("%s as %s, on device %s: %v", view, options, device, err)
				}
				equalTo(t, view+" as "+options+", on device "+device, download(t, c), want)
			}
		}
	}
}

// TestVectorViewsOfGroups checks that the ends of groups may be any vector, on the host and on a
// device, and that a scale of rows in a column is divided among the groups.
func TestVectorViewsOfGroups(t *testing.T) {
	ctx, d := t.Context(), on(t, "emu")
	const rows, k, n = 4, 3, 2
	table := New[int32](9, 9)
	a, scales := New[float32](rows, k), New[float32](rows, 2)
	b := Batch[float32]{New[float32](k, n), New[float32](k, n)}
	for i, m := range []Matrix[float32]{a, scales, b[0], b[1]} {
		for j := range m.data {
			m.data[j] = float32((5*i+j)%7 - 2)
		}
	}
	scale := scales.Sub(0, 1, rows, 1)
	for _, v := range vectorViews(table, 2) {
		v.data[0], v.data[len(v.data)-1] = 3, rows
	}
	want, err := Mul(ctx, a, b, WithGroups(GroupEnds(3, 1)), WithDevice("cpu"))
	if err != nil {
		t.Fatal(err)
	}
	scaled, err := Mul(ctx, a, b, WithGroups(GroupEnds(3, 1)), WithRowScale(elements(scale)), WithDevice("cpu"))
	if err != nil {
		t.Fatal(err)
	}
	da, dt := upload(t, d, a), upload(t, d, table)
	db, err := Upload(ctx, d, b)
	if err != nil {
		t.Fatal(err)
	}
	onDevice := vectorViews(dt, 2)
	for name, ends := range vectorViews(table, 2) {
		for _, device := range []string{"cpu", "emu"} {
			c, err := Mul(ctx, a, b, WithGroups(ends), WithRowScale(scale), WithDevice(device))
			if err != nil {
				t.Fatalf("ends in a %s, on %s: %v", name, device, err)
			}
			equalTo(t, "ends in a "+name+", on "+device, c, scaled)
		}
		c, err := Mul(ctx, da, db, WithGroups(onDevice[name]))
		if err != nil {
			t.Fatalf("ends in a %s, on a device: %v", name, err)
		}
		equalTo(t, "ends in a "+name+", on a device", download(t, c), want)
	}
}
