// Package cuda is a [device.Device] on an NVIDIA GPU: the driver's own library,
// loaded when it is first asked for and called without cgo.
//
// Nothing but the driver is needed, and where that is missing [Open] and [List] say
// so. The functions of the driver are a table in driver.go; every call goes through
// one place, where tests put a double. A device's primary context is shared with
// whatever else in the process uses the GPU, and each method makes that context current
// on a thread of its own for as long as it runs.
//
// The build tag nogpu leaves the driver out: the program is then static, and Open
// fails. The driver itself obeys CUDA_VISIBLE_DEVICES.
package cuda

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"unsafe"

	"tilework/internal/device"
	"tilework/ptx"
)

// Info is what the driver tells of a GPU without beginning to use it. What it does
// not tell is zero.
type Info struct {
	device.Info
	Index       int    // as Open takes it
	UUID        string // "GPU-" and 32 hexadecimal digits in groups
	PCI         string // "0000:1b:00.0"
	Link        string // "32.0 GT/s PCIe x16", where the system tells
	Driver      string // the driver's version: "CUDA 13.0"
	Clock       int    // the SMs' highest, in MHz
	MemoryClock int    // MHz
	MemoryBus   int    // bits
	L2          int    // bytes

	handle   uintptr // the CUdevice
	maxPitch int     // bytes between the rows of a copy
	pools    bool    // whether memory can be reserved in the stream's order
}

var theLibrary = sync.OnceValues(openLibrary)

var theDriver = sync.OnceValues(func() (*driver, error) {
	lib, err := theLibrary()
	if err != nil {
		return nil, err
	}
	return newDriver(lib)
})

// Present finds out whether there is a driver, which takes no time, without beginning
// with it, which does. The error is ErrNoDevice, with what was looked for.
func Present() error {
	_, err := theLibrary()
	return err
}

// List lists the GPUs that the driver shows. The error is ErrNoDevice, with what was
// looked for; without an error there is at least one.
func List() ([]Info, error) {
	d, err := theDriver()
	if err != nil {
		return nil, err
	}
	return d.list()
}

// Open begins to use a GPU, by its number from 0. The errors are ErrNoDevice and, as
// a context takes some, ErrOutOfMemory.
func Open(index int) (device.Device, error) {
	d, err := theDriver()
	if err != nil {
		return nil, err
	}
	return d.open(index)
}

// Find is the number of the GPU whose UUID begins so: "GPU-3f2a". The error is
// ErrNoDevice, also where several do.
func Find(uuid string) (index int, err error) {
	d, err := theDriver()
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
	var there, found []string
	index := 0
	for _, in := range all {
		there = append(there, in.UUID)
		if strings.HasPrefix(in.UUID, uuid) {
			index = in.Index
			found = append(found, in.UUID)
		}
	}
	switch len(found) {
	case 0:
		return 0, fmt.Errorf("%w: GPU %s: the NVIDIA driver shows %s%s", device.ErrNoDevice, uuid, strings.Join(there, ", "), visible())
	case 1:
		return index, nil
	}
	return 0, fmt.Errorf("%w: GPU %s: it may be any of %s", device.ErrNoDevice, uuid, strings.Join(found, ", "))
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

// count is how many GPUs there are, never 0 without an error.
func (d *driver) count() (int, error) {
	var n int32
	if err := d.call(cuDeviceCount, uintptr(unsafe.Pointer(&n))); err != nil {
		return 0, noDevice(err)
	}
	if n <= 0 {
		return 0, fmt.Errorf("%w: the NVIDIA driver shows no GPU%s", device.ErrNoDevice, visible())
	}
	return int(n), nil
}

// visible is what hides devices, for a message.
func visible() string {
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
	attrMaxShared   = 97 // what a kernel can be allowed, above the usual 48 KiB
	attrPools       = 115
)

func (d *driver) info(index int) (Info, error) {
	n, err := d.count()
	if err != nil {
		return Info{}, err
	}
	if index < 0 || index >= n {
		return Info{}, fmt.Errorf("%w: GPU %d: the NVIDIA driver shows %d, numbered from 0%s", device.ErrNoDevice, index, n, visible())
	}
	var handle int32
	if err := d.call(cuDeviceGet, uintptr(unsafe.Pointer(&handle)), uintptr(index)); err != nil {
		return Info{}, noDevice(err)
	}
	in := Info{Index: index, Driver: d.version.String(), handle: uintptr(handle)}

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
		if err := d.call(cuDeviceAttribute, uintptr(unsafe.Pointer(&v)), a.attribute, in.handle); err != nil && a.needed {
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

// target is the most that kernels may be written for. The features of one
// architecture alone, sm_90a, need a driver that knows a PTX with them.
func target(major, minor int, v version) ptx.Target {
	t := ptx.Target{SM: 10*major + minor}
	special := ptx.Target{SM: t.SM, Suffix: "a"}
	if _, known := special.MinVersion(); known && v >= 12000 {
		return special
	}
	return t
}

// describe adds what only people ask for, and what may be missing.
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

// link is the PCIe link of a device. The driver does not tell; Linux does.
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

// cString is the bytes up to the first that is zero.
func cString(b []byte) string {
	s, _, _ := strings.Cut(string(b), "\x00")
	return s
}
