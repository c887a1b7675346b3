package cuda

import (
	"slices"
	"strings"
	"unsafe"
)

// do performs the driver function s.
func (f *fake) do(s *symbol, a []uintptr) code {
	switch s {
	case cuInit, cuMemPoolSetAttribute, cuMemPoolTrimTo:
	case cuDriverVersion:
		*at[int32](a[0]) = f.version
	case cuDeviceCount:
		*at[int32](a[0]) = int32(f.devices)
	case cuDeviceGet:
		*at[int32](a[0]) = int32(a[1])
	case cuDeviceName:
		copy(unsafe.Slice(at[byte](a[0]), a[1]), "Fake GPU\x00")
	case cuDeviceTotalMem:
		*at[uintptr](a[0]) = 1 << 30
	case cuDeviceAttribute:
		return f.attribute(at[int32](a[0]), a[1])
	case cuDevicePCIBusID:
		copy(unsafe.Slice(at[byte](a[0]), a[1]), "0000:FF:00.0\x00")
	case cuDeviceUUID:
		for i := range at[[16]byte](a[0]) {
			at[[16]byte](a[0])[i] = byte(i)
		}
		at[[16]byte](a[0])[0] = byte(a[1])
	case cuPrimaryCtxRetain:
		f.retained[a[1]]++
		*at[uintptr](a[0]) = contextOf(a[1])
	case cuPrimaryCtxRelease:
		return f.release(a[0])
	case cuDeviceCanAccessPeer:
		*at[int32](a[0]) = 1
		if f.alone {
			*at[int32](a[0]) = 0
		}
	case cuCtxSetCurrent:
		f.current[thread()] = a[0]
	default:
		if f.current[thread()] == 0 {
			return fakeContext
		}
		return f.doInContext(s, a)
	}
	return success
}

func (f *fake) attribute(to *int32, which uintptr) code {
	values := map[uintptr]int32{
		1: 1024, 5: 1<<31 - 1, 6: 65535, 7: 65535, 11: 1<<31 - 1, 13: 1980000, 16: 132,
		36: 3201000, 37: 6144, 38: 60 << 20, 75: 9, 76: 0, 97: 227 << 10, 115: 0,
	}
	if f.pools {
		values[115] = 1
	}
	v, ok := values[which]
	if !ok {
		return invalidValue
	}
	*to = v
	return success
}

func (f *fake) doInContext(s *symbol, a []uintptr) code {
	switch s {
	case cuStreamCreate:
		f.make("stream", a[0])
	case cuStreamQuery:
		return f.query(f.find("stream", a[0]), a[0], nil)
	case cuStreamSynchronize:
		if f.find("stream", a[0]) == nil {
			return fakeHandle
		}
		f.run(a[0], nil)
	case cuStreamWaitEvent:
		e := f.objects[a[1]] // of any context
		if e == nil || e.kind != "event" || f.find("stream", a[0]) == nil {
			return fakeHandle
		}
		if e.record != nil {
			f.enqueue(a[0], queued{wait: e.record})
		}
	case cuStreamDestroy:
		return f.destroy("stream", a[0])

	case cuEventCreate:
		f.make("event", a[0])
	case cuEventRecord:
		e := f.find("event", a[0])
		if e == nil || f.find("stream", a[1]) == nil {
			return fakeHandle
		}
		e.record, e.queried = &recording{pending: true}, false
		f.enqueue(a[1], queued{record: e.record})
	case cuEventQuery:
		e := f.find("event", a[0])
		if e == nil {
			return fakeHandle
		}
		return f.query(e, f.streamOf(e.record), e.record)
	case cuEventElapsedTime:
		*at[float32](a[0]) = 1.5
	case cuEventDestroy:
		return f.destroy("event", a[0])

	case cuMemAlloc, cuMemAllocFromPool:
		if a[1] == 0 || s == cuMemAllocFromPool && (f.find("pool", a[2]) == nil || f.find("stream", a[3]) == nil) {
			return invalidValue
		}
		if a[1] > 1<<30 {
			return outOfMemory
		}
		f.make("memory", a[0]).data = make([]byte, a[1])
		f.next += a[1]
	case cuMemFree:
		return f.destroy("memory", a[0])
	case cuMemFreeAsync:
		f.enqueue(a[1], queued{do: func() { delete(f.objects, a[0]) }})
	case cuMemGetInfo:
		*at[uintptr](a[0]), *at[uintptr](a[1]) = 1000, 2000
	case cuMemHostAlloc:
		b := make([]byte, a[1])
		f.keep = append(f.keep, b)
		f.makeAt("pinned", uintptr(unsafe.Pointer(unsafe.SliceData(b))), a[0]).data = b
	case cuMemFreeHost:
		return f.destroy("pinned", a[0])
	case cuMemPoolCreate:
		f.make("pool", a[0])
	case cuMemPoolDestroy:
		return f.destroy("pool", a[0])

	case cuMemcpyIn:
		f.enqueue(a[3], queued{do: func() { copy(f.bytes(a[0], a[2]), unsafe.Slice(at[byte](a[1]), a[2])) }})
	case cuMemcpyOut:
		f.enqueue(a[3], queued{do: func() { copy(unsafe.Slice(at[byte](a[0]), a[2]), f.bytes(a[1], a[2])) }})
	case cuMemcpyOnDevice:
		if !f.reaches(a[0], a[1]) {
			return invalidValue
		}
		f.enqueue(a[3], queued{do: func() { copy(f.bytes(a[0], a[2]), f.bytes(a[1], a[2])) }})
	case cuMemcpy2D:
		return f.copy2D(a[0], a[1])
	case cuCtxEnablePeerAccess:
		pair := [2]uintptr{f.current[thread()], a[0]}
		if f.alone || a[1] != 0 || pair[0] == pair[1] {
			return invalidValue
		}
		if f.peers[pair] {
			return accessEnabled
		}
		f.peers[pair] = true
	case cuMemPoolSetAccess:
		o, access := f.objects[a[0]], at[[3]int32](a[1])
		if o == nil || o.kind != "pool" || access[0] != 1 || access[2] != 3 || a[2] != 1 {
			return invalidValue
		}
		f.peers[[2]uintptr{uintptr(access[1]), a[0]}] = true

	case cuModuleLoad:
		return f.load(a)
	case cuLibraryLoad:
		if text := goString(a[1]); strings.Contains(text, "wrong") {
			return fakeBadPTX
		}
		f.make("library", a[0])
		f.precompiled++
	case cuLibraryUnload:
		return f.destroy("library", a[0])
	case cuModuleUnload:
		return f.destroy("module", a[0])
	case cuModuleGetFunction:
		name := goString(a[2])
		if f.find("module", a[1]) == nil {
			return fakeHandle
		}
		if name == "missing" {
			return fakeNotFound
		}
		f.make("function", a[0]).name = name
	case cuFuncGetAttribute:
		*at[int32](a[0]) = map[uintptr]int32{0: 512, 1: 1 << 10, 3: 16, 4: 40}[a[1]]
	case cuFuncSetAttribute:
		f.objects[a[0]].dynamic = int32(a[2])
	case cuFuncGetParamInfo: // for the parameters u64, tensor map, u32
		*at[uintptr](a[2]), *at[uintptr](a[3]) = [...]uintptr{0, 48, 176}[a[1]], [...]uintptr{8, 128, 4}[a[1]]
	case cuLaunchKernel:
		return f.launch(a[8], a[0], launched{shared: uint32(a[7])}, a[10])
	case cuLaunchKernelEx:
		return f.launchEx(a)
	case cuTensorMapEncodeTiled:
		if a[0]%64 != 0 || a[2] > 5 {
			return invalidValue
		}
		at[[128]byte](a[0])[0] = byte(at[[5]uint64](a[4])[0])
		at[[128]byte](a[0])[127] = byte(a[9])
	case cuTensorMapEncodeIm2col:
		at[[128]byte](a[0])[0] = byte(at[[3]int32](a[6])[1] - at[[3]int32](a[7])[1])
		at[[128]byte](a[0])[127] = byte(a[9]) + byte(at[[5]uint32](a[10])[2])
	default:
		panic("the fake does not implement " + s.name)
	}
	return success
}

// launchEx decodes a CUlaunchConfig and its attributes of 72 bytes each.
func (f *fake) launchEx(a []uintptr) code {
	l := launched{shared: *at[uint32](a[0] + 24)}
	attributes := *at[uintptr](a[0] + 40)
	for i := range *at[uint32](a[0] + 48) {
		attribute := attributes + 72*uintptr(i)
		switch *at[uint32](attribute) {
		case 2:
			l.cooperative = *at[uint32](attribute + 8) == 1
		case 4:
			l.cluster = *at[[3]uint32](attribute + 8)
		case 6:
			l.pdl = *at[uint32](attribute + 8) == 1
		default:
			return invalidValue
		}
	}
	return f.launch(*at[uintptr](a[0] + 32), a[1], l, a[3])
}

// query reports notReady on the first query of an object. On the second it performs the pending
// work and reports success.
func (f *fake) query(o *object, stream uintptr, until *recording) code {
	switch {
	case o == nil:
		return fakeHandle
	case f.stuck, !o.queried && (until == nil || until.pending):
		o.queried = true
		return notReady
	case until == nil || until.pending:
		f.run(stream, until)
	}
	o.queried = false
	return success
}

// streamOf returns the stream that has a recording in its queue.
func (f *fake) streamOf(r *recording) uintptr {
	for stream, queue := range f.queues {
		if slices.ContainsFunc(queue, func(q queued) bool { return q.record == r }) {
			return stream
		}
	}
	return 0
}

func (f *fake) destroy(kind string, handle uintptr) code {
	if f.find(kind, handle) == nil {
		return fakeHandle
	}
	delete(f.objects, handle)
	return success
}
