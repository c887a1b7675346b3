package gpu

import (
	"errors"
	"fmt"
	"testing"

	"tilework/internal/backend"
	"tilework/internal/device"
	"tilework/internal/device/emu"
	"tilework/internal/device/faulty"
	"tilework/internal/sentinel"
)

// TestOpen checks that all users of a device share it, and that it is closed after the last
// release, unless a [Backend] has opened it.
func TestOpen(t *testing.T) {
	opened := 0
	var last *faulty.Device
	restore := Substitute(func(backend.DeviceName) (device.Device, error) {
		inner, err := emu.Open(emu.Options{})
		opened++
		last = faulty.New(inner)
		return last, err
	})
	d := backend.DeviceName{Kind: backend.Emulator}
	open := func(wantOpened int) (b any, release func() error) {
		t.Helper()
		b, release, err := Open(d)
		if err != nil || opened != wantOpened || !IsOpen(d) {
			t.Fatalf("opened %d times, want %d, error %v", opened, wantOpened, err)
		}
		return b, release
	}
	check := func(release func() error, wantClosed bool) {
		t.Helper()
		if err := release(); err != nil || last.Closed() != wantClosed {
			t.Errorf("closed: %v, want %v, error %v", last.Closed(), wantClosed, err)
		}
	}
	first, releaseFirst := open(1)
	second, releaseSecond := open(1)
	if first != second {
		t.Error("two users have different backends")
	}
	check(releaseFirst, false)
	check(releaseFirst, false) // does nothing
	check(releaseSecond, true)
	if IsOpen(d) {
		t.Error("the device is in the list of open devices after it was closed")
	}

	_, release := open(2)
	if err := (Backend{d}).Open(); err != nil || opened != 2 {
		t.Errorf("opened %d times, error %v", opened, err)
	}
	check(release, false)
	check(restore, true)
}

// TestEachMember opens all GPUs of a host with four. A failure to open one of them must be an error
// and not the end of the list.
func TestEachMember(t *testing.T) {
	for _, failure := range []error{nil, sentinel.ErrNoDevice, device.ErrOutOfMemory, device.ErrLost} {
		restore := Substitute(func(d backend.DeviceName) (device.Device, error) {
			switch {
			case d.Index >= 4:
				return nil, fmt.Errorf("%w: GPU %d of 4", device.ErrIndex, d.Index)
			case d.Index == 2 && failure != nil:
				return nil, fmt.Errorf("%w: GPU %d", failure, d.Index)
			}
			return emu.Open(emu.Options{})
		})
		opened := 0
		err := EachMember(backend.DeviceName{Kind: backend.GPU, List: backend.AllGPUs}, func(d backend.DeviceName) error {
			_, err := Keep(d)
			if err == nil {
				opened++
			}
			return err
		})
		switch {
		case failure == nil && (err != nil || opened != 4):
			t.Errorf("opened %d GPUs, want 4, error %v", opened, err)
		case failure != nil && (!errors.Is(err, failure) || !errors.Is(err, sentinel.ErrNoDevice)):
			t.Errorf("opened %d GPUs, error %v, want %v and ErrNoDevice", opened, err, failure)
		}
		if err := restore(); err != nil {
			t.Error(err)
		}
	}
}
