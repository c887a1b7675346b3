package program

import (
	"errors"

	"tilework/internal/device"
)

// Reserve reserves the memory of a plan with reserve. While a device has too little, it frees the
// memory that it reserved with free, and takes the next smaller plan, until smaller returns false.
// It returns the plan that fits, or the last one and its error, without memory.
func Reserve[P any](plan P, reserve, free func(P) error, smaller func(P) (P, bool)) (P, error) {
	for {
		err := reserve(plan)
		if err == nil {
			return plan, nil
		}
		if err = device.Join(err, free(plan)); !errors.Is(err, device.ErrOutOfMemory) {
			return plan, err
		}
		less, ok := smaller(plan)
		if !ok {
			return plan, err
		}
		plan = less
	}
}
