package device

// SensorReader is a [Device] with sensors.
type SensorReader interface {
	// Sensors reads the sensors. The error is errors.ErrUnsupported if the system provides
	// none.
	Sensors() (Sensors, error)
}

// Sensors holds the sensor readings of a device at one moment. A reading that the device does
// not provide is 0.
type Sensors struct {
	SMClock, MemoryClock float64 // MHz
	Power, PowerLimit    float64 // W
	Temperature          float64 // °C
	Energy               float64 // J, used since the driver was loaded
}
