package cuda

import (
	"errors"
	"slices"
	"testing"

	"tilework/internal/device"
)

// newFakeNVML returns an NVML double with one GPU that fails the functions named by lacks.
func newFakeNVML(lacks ...string) *nvml {
	m := &nvml{procs: map[string]uintptr{}}
	for i, name := range nvmlProcs {
		m.procs[name] = uintptr(i + 1)
	}
	m.invoke = func(proc uintptr, a ...uintptr) uintptr {
		name := nvmlProcs[proc-1]
		if slices.Contains(lacks, name) {
			return 3 // NVML_ERROR_NOT_SUPPORTED
		}
		const handle = 0x1234
		switch name {
		case nvmlDriverVersion:
			copy(at[[80]byte](a[0])[:a[1]], "580.159.04\x00")
		case nvmlByUUID:
			if goString(a[0]) != "GPU-1" {
				return 6 // NVML_ERROR_NOT_FOUND
			}
			*at[uintptr](a[1]) = handle
		case nvmlClock:
			*at[uint32](a[2]) = uint32(1000 * a[1])
		case nvmlPower:
			*at[uint32](a[1]) = 512_500
		case nvmlPowerLimit:
			*at[uint32](a[1]) = 700_000
		case nvmlTemperature:
			*at[uint32](a[2]) = 61
		case nvmlEnergy:
			*at[uint64](a[1]) = 5_000_000_250
		}
		return 0
	}
	return m
}

func TestSensors(t *testing.T) {
	m := newFakeNVML()
	if err := m.begin(); err != nil || m.driver != "580.159.04" {
		t.Errorf("driver %q, error %v", m.driver, err)
	}
	want := device.Sensors{SMClock: 1000, MemoryClock: 2000, Power: 512.5, PowerLimit: 700, Temperature: 61,
		Energy: 5_000_000.25}
	if s, err := m.sensors("GPU-1"); err != nil || s != want {
		t.Errorf("%+v, error %v, want %+v", s, err, want)
	}
	if _, err := m.sensors("GPU-2"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("unknown GPU: got error %v", err)
	}
	if s, err := newFakeNVML(nvmlPower).sensors("GPU-1"); err != nil || s.Power != 0 || s.SMClock != 1000 {
		t.Errorf("without a power sensor: got %+v, error %v", s, err)
	}
	for _, call := range []string{nvmlInit, nvmlDriverVersion} {
		if err := newFakeNVML(call).begin(); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("without %s: error %v", call, err)
		}
	}
}

func TestGPUSensors(t *testing.T) {
	g := openGPU(t)
	s, err := g.Sensors()
	if err != nil || s.SMClock <= 0 || s.Power <= 0 || s.PowerLimit < s.Power/2 || s.Temperature <= 0 || s.Energy <= 0 ||
		DriverRelease() == "" {
		t.Errorf("driver %q: %+v, error %v", DriverRelease(), s, err)
	}
}
