// Package cuda implements [device.Device] on an NVIDIA GPU with the CUDA driver API. It loads the
// driver library on first use and calls it without cgo.
//
// The package needs only the driver. Without one, [Open] and [List] return an error. driver.go
// lists the driver functions in one table, and all calls go through one method, which tests
// replace. A GPU uses the device's primary context, which it shares with other users in the
// process. Each method locks its goroutine to an OS thread and makes the context current there.
//
// The build tag nogpu excludes the driver: the program is statically linked and Open fails. The
// driver itself honours CUDA_VISIBLE_DEVICES.
package cuda

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"unsafe"

	"tilework/internal/device"
	"tilework/internal/sentinel"
	"tilework/ptx"
)

// Info describes a GPU. The driver reports all of it without creating a context. A value that it
// does not report is zero.
type Info struct {
	device.Info
	Index       int    // the argument of Open
	UUID        string // "GPU-" and 32 hexadecimal digits in groups
	PCI         string // "0000:1b:00.0"
	Link        string // "32.0 GT/s PCIe x16"; Linux only
	Clock       int    // maximum SM clock in MHz
	MemoryClock int    // MHz
	MemoryBus   int    // bits
	L2          int    // bytes

	handle   uintptr // the CUdevice
	maxPitch int     // maximum pitch of a 2D copy in bytes
	pools    bool    // supports memory pools (stream-ordered allocation)
}

var sharedLibrary = sync.OnceValues(openLibrary)

var sharedDriver = sync.OnceValues(func() (*driver, error) {
	lib, err := sharedLibrary()
	if err != nil {
		return nil, err
	}
	return newDriver(lib)
})

// CheckDriver returns an error if no driver is installed. It only loads the library, which is fast,
// and does not initialise it, which is slow. The error is ErrNoDevice and lists the files searched.
func CheckDriver() error {
	_, err := sharedLibrary()
	return err
}

// List returns the visible GPUs, at least one. If there is none, the error is ErrNoDevice and
// states the reason.
func List() ([]Info, error) {
	d, err := sharedDriver()
	if err != nil {
		return nil, err
	}
	return d.list()
}

// Open creates a context on the GPU with the given index, counted from 0. The error is ErrNoDevice
// or, because a context uses device memory, ErrOutOfMemory.
func Open(index int) (device.Device, error) {
	d, err := sharedDriver()
	if err != nil {
		return nil, err
	}
	return d.open(index)
}

// Find returns the index of the GPU whose UUID starts with uuid, such as "GPU-3f2a". The error is
// ErrNoDevice if no GPU or several GPUs match.
func Find(uuid string) (index int, err error) {
	d, err := sharedDriver()
	if err != nil {
		return 0, err
	}
	return d.find(uuid)
}

func (d *driver) find(uuid string) (int, error) {
	all, err := d.list()
	if err != nil {
		return 0, err
	}
	var uuids, found []string
	index := 0
	for _, in := range all {
		uuids = append(uuids, in.UUID)
		if strings.HasPrefix(in.UUID, uuid) {
			index = in.Index
			found = append(found, in.UUID)
		}
	}
	switch len(found) {
	case 0:
		return 0, fmt.Errorf("%w: GPU %s: the NVIDIA driver shows %s%s", sentinel.ErrNoDevice, uuid,
			strings.Join(uuids, ", "), visibleDevicesNote())
	case 1:
		return index, nil
	}
	return 0, fmt.Errorf("%w: GPU %s is ambiguous: want one of %s", sentinel.ErrNoDevice, uuid, strings.Join(found, ", "))
}

func (d *driver) list() ([]Info, error) {
	n, err := d.count()
	if err != nil {
		return nil, err
	}
	all := make([]Info, n)
	for i := range all {
		if all[i], err = d.info(i); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// count returns the number of visible GPUs. It is at least 1 unless there is an error.
func (d *driver) count() (int, error) {
	var n int32
	if err := d.call(cuDeviceCount, uintptr(unsafe.Pointer(&n))); err != nil {
		return 0, noDevice(err)
	}
	if n <= 0 {
		return 0, fmt.Errorf("%w: the NVIDIA driver shows no GPU%s", sentinel.ErrNoDevice, visibleDevicesNote())
	}
	return int(n), nil
}

// visibleDevicesNote returns a note on CUDA_VISIBLE_DEVICES for error messages, or an empty string.
func visibleDevicesNote() string {
	if v, ok := os.LookupEnv("CUDA_VISIBLE_DEVICES"); ok {
		return fmt.Sprintf(" (CUDA_VISIBLE_DEVICES is %q)", v)
	}
	return ""
}

// Attributes of a device: CUdevice_attribute of cuda.h.
const (
	attrMaxThreads  = 1
	attrMaxGridX    = 5
	attrMaxGridY    = 6
	attrMaxGridZ    = 7
	attrMaxPitch    = 11
	attrClock       = 13 // kHz
	attrSMs         = 16
	attrMemoryClock = 36 // kHz
	attrMemoryBus   = 37
	attrL2          = 38
	attrMajor       = 75
	attrMinor       = 76
	attrMaxShared   = 97 // opt-in maximum per block, above the default of 48 KiB
	attrPools       = 115
)

// info queries the properties of the GPU with the given index.
func (d *driver) info(index int) (Info, error) {
	n, err := d.count()
	if err != nil {
		return Info{}, err
	}
	if index < 0 || index >= n {
		err := fmt.Errorf("%w: GPU %d: the NVIDIA driver shows %d, numbered from 0%s", sentinel.ErrNoDevice, index, n,
			visibleDevicesNote())
		return Info{}, device.WithKind(device.ErrIndex, err)
	}
	var handle int32
	if err := d.call(cuDeviceGet, uintptr(unsafe.Pointer(&handle)), uintptr(index)); err != nil {
		return Info{}, noDevice(err)
	}
	in := Info{Index: index, handle: uintptr(handle)}
	in.Driver = d.version.String()

	var name [256]byte
	if err := d.call(cuDeviceName, uintptr(unsafe.Pointer(&name)), uintptr(len(name)), in.handle); err != nil {
		return Info{}, noDevice(err)
	}
	in.Name = cString(name[:])
	var memory uintptr
	if err := d.call(cuDeviceTotalMem, uintptr(unsafe.Pointer(&memory)), in.handle); err != nil {
		return Info{}, noDevice(err)
	}
	in.Memory = int64(memory)

	var major, minor, pools int
	for _, a := range []struct {
		attribute uintptr
		to        *int
		needed    bool
	}{
		{attrMajor, &major, true},
		{attrMinor, &minor, true},
		{attrSMs, &in.SMs, true},
		{attrMaxThreads, &in.MaxThreads, true},
		{attrMaxShared, &in.MaxShared, true},
		{attrMaxGridX, &in.MaxGrid.X, true},
		{attrMaxGridY, &in.MaxGrid.Y, true},
		{attrMaxGridZ, &in.MaxGrid.Z, true},
		{attrMaxPitch, &in.maxPitch, true},
		{attrClock, &in.Clock, false},
		{attrMemoryClock, &in.MemoryClock, false},
		{attrMemoryBus, &in.MemoryBus, false},
		{attrL2, &in.L2, false},
		{attrPools, &pools, false},
	} {
		var v int32
		if err := d.call(cuDeviceAttribute, uintptr(unsafe.Pointer(&v)), a.attribute,
			in.handle); err != nil && a.needed {
			return Info{}, noDevice(err)
		}
		*a.to = int(v)
	}
	in.Clock /= 1000
	in.MemoryClock /= 1000
	in.Target = target(major, minor, d.version)
	in.pools = pools != 0 && d.has(cuMemAllocFromPool)
	d.describe(&in)
	return in, nil
}

// target returns the highest PTX target for a compute capability. Architecture-specific targets
// such as sm_90a require a driver for CUDA 12.0 or later.
func target(major, minor int, v version) ptx.Target {
	t := ptx.Target{SM: 10*major + minor}
	specific := ptx.Target{SM: t.SM, Suffix: "a"}
	if _, known := specific.MinVersion(); known && v >= 12000 {
		return specific
	}
	return t
}

// describe sets the UUID, the PCI address and the link of in, as far as they are available.
func (d *driver) describe(in *Info) {
	var id [16]byte
	if d.call(cuDeviceUUID, uintptr(unsafe.Pointer(&id)), in.handle) == nil {
		in.UUID = fmt.Sprintf("GPU-%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
	}
	var pci [32]byte
	if d.call(cuDevicePCIBusID, uintptr(unsafe.Pointer(&pci)), uintptr(len(pci)), in.handle) == nil {
		in.PCI = strings.ToLower(cString(pci[:]))
		in.Link = link(in.PCI)
	}
}

// link returns the PCIe link of a device as Linux reports it, or an empty string. The driver API
// does not provide it.
func link(pci string) string {
	dir := filepath.Join("/sys/bus/pci/devices", pci)
	speed, err := os.ReadFile(filepath.Join(dir, "current_link_speed"))
	if err != nil {
		return ""
	}
	width, err := os.ReadFile(filepath.Join(dir, "current_link_width"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(speed)) + " x" + strings.TrimSpace(string(width))
}

// cString returns the bytes before the first zero byte as a string.
func cString(b []byte) string {
	s, _, _ := strings.Cut(string(b), "\x00")
	return s
}
