package cuda

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"tilework/internal/device"
)

// nvml is the NVIDIA Management Library (NVML). nvml.h documents its functions, which return 0 on
// success.
type nvml struct {
	driver string // driver release: "580.159.04"
	procs  map[string]uintptr
	invoke func(proc uintptr, args ...uintptr) uintptr
}

const (
	nvmlInit          = "nvmlInit_v2"
	nvmlDriverVersion = "nvmlSystemGetDriverVersion"
	nvmlByUUID        = "nvmlDeviceGetHandleByUUID"
	nvmlClock         = "nvmlDeviceGetClockInfo"
	nvmlPower         = "nvmlDeviceGetPowerUsage"
	nvmlPowerLimit    = "nvmlDeviceGetEnforcedPowerLimit"
	nvmlTemperature   = "nvmlDeviceGetTemperature"
	nvmlEnergy        = "nvmlDeviceGetTotalEnergyConsumption"
)

var nvmlProcs = []string{nvmlInit, nvmlDriverVersion, nvmlByUUID, nvmlClock, nvmlPower, nvmlPowerLimit, nvmlTemperature,
	nvmlEnergy}

// sharedNVML loads and initialises NVML on first use.
var sharedNVML = sync.OnceValues(func() (*nvml, error) {
	m, err := openNVML()
	if err != nil {
		return nil, fmt.Errorf("%w: NVML: %w", errors.ErrUnsupported, err)
	}
	return m, m.begin()
})

// begin initialises the library.
func (m *nvml) begin() error {
	if err := m.call(nvmlInit); err != nil {
		return err
	}
	var text [80]byte // NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE
	if err := m.call(nvmlDriverVersion, uintptr(unsafe.Pointer(&text)), uintptr(len(text))); err != nil {
		return err
	}
	m.driver = cString(text[:])
	return nil
}

//go:uintptrescapes
func (m *nvml) call(name string, args ...uintptr) error {
	if code := int32(m.invoke(m.procs[name], args...)); code != 0 {
		return fmt.Errorf("%w: %s returned %d", errors.ErrUnsupported, name, code)
	}
	return nil
}

// Sensors reads the GPU's clocks, power, temperature and energy from NVML, which is part of the
// driver.
func (g *GPU) Sensors() (device.Sensors, error) {
	m, err := sharedNVML()
	if err != nil {
		return device.Sensors{}, err
	}
	return m.sensors(g.info.UUID)
}

// DriverRelease returns the release of the driver, such as "580.159.04", or an empty string if NVML
// is not available.
func DriverRelease() string {
	m, err := sharedNVML()
	if err != nil {
		return ""
	}
	return m.driver
}

func (m *nvml) sensors(uuid string) (device.Sensors, error) {
	id := append([]byte(uuid), 0)
	var handle uintptr
	if err := m.call(nvmlByUUID, uintptr(unsafe.Pointer(unsafe.SliceData(id))),
		uintptr(unsafe.Pointer(&handle))); err != nil {
		return device.Sensors{}, err
	}
	const smClock, memoryClock = 1, 2 // nvmlClockType_t
	// A sensor that fails reads as 0.
	read := func(name string) float64 {
		var v uint32
		if m.call(name, handle, uintptr(unsafe.Pointer(&v))) != nil {
			return 0
		}
		return float64(v)
	}
	readLong := func(name string) float64 {
		var v uint64
		if m.call(name, handle, uintptr(unsafe.Pointer(&v))) != nil {
			return 0
		}
		return float64(v)
	}
	readKind := func(name string, kind uintptr) float64 {
		var v uint32
		if m.call(name, handle, kind, uintptr(unsafe.Pointer(&v))) != nil {
			return 0
		}
		return float64(v)
	}
	return device.Sensors{
		SMClock:     readKind(nvmlClock, smClock),
		MemoryClock: readKind(nvmlClock, memoryClock),
		Power:       read(nvmlPower) / 1000,
		PowerLimit:  read(nvmlPowerLimit) / 1000,
		Temperature: readKind(nvmlTemperature, 0), // NVML_TEMPERATURE_GPU
		Energy:      readLong(nvmlEnergy) / 1000,
	}, nil
}
