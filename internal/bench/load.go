package bench

import (
	"context"
	"slices"
	"time"
)

// Load summarizes the sensors of a device, sampled while its subjects were timed. Values that the
// device does not report are 0.
type Load struct {
	Samples     int     `json:"samples"`
	SMClock     Span    `json:"sm_mhz"`
	MemoryClock Span    `json:"memory_mhz"`
	Power       Span    `json:"watts"`
	PowerLimit  float64 `json:"watts_limit"`
	Temperature Span    `json:"celsius"`
}

// Span summarizes the samples of one sensor.
type Span struct {
	Min    float64 `json:"min"`
	Median float64 `json:"median"`
	Max    float64 `json:"max"`
}

func span(values []float64) Span {
	slices.Sort(values)
	return Span{Min: values[0], Median: quantile(values, 0.5), Max: values[len(values)-1]}
}

// sensorInterval is the time between two samples. A driver updates its readings every few
// milliseconds at most.
const sensorInterval = 20 * time.Millisecond

// watch samples the sensors until the returned function is called, which returns the summary, or
// nil if the device has no sensors.
func (o *Options) watch(ctx context.Context) func() *Load {
	if o.sense == nil {
		return func() *Load { return nil }
	}
	ctx, stop := context.WithCancel(ctx)
	result := make(chan *Load, 1)
	go func() { result <- o.gather(ctx) }()
	return func() *Load {
		stop()
		return <-result
	}
}

func (o *Options) gather(ctx context.Context) *Load {
	var all [4][]float64
	var limit float64
	for {
		s, err := o.sense()
		if err != nil {
			return nil
		}
		limit = s.PowerLimit
		for i, v := range [...]float64{s.SMClock, s.MemoryClock, s.Power, s.Temperature} {
			all[i] = append(all[i], v)
		}
		select {
		case <-ctx.Done():
			return &Load{Samples: len(all[0]), SMClock: span(all[0]), MemoryClock: span(all[1]), Power: span(all[2]),
				PowerLimit: limit, Temperature: span(all[3])}
		case <-time.After(sensorInterval):
		}
	}
}
