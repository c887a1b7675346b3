package device

// Sensing is a [Device] that tells of its state.
type Sensing interface {
	// Sensors reads the sensors. The error is errors.ErrUnsupported where there are
	// none.
	Sensors() (Sensors, error)
}

// Sensors is a device's state at one moment. What the device does not tell is 0.
type Sensors struct {
	SMClock, MemoryClock float64 // MHz
	Power, PowerLimit    float64 // W
	Temperature          float64 // °C
}
