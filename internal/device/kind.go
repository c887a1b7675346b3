package device

// Also makes an error one of another kind too, without a word more: the error's own
// say enough.
func Also(kind, err error) error { return &also{err, kind} }

type also struct {
	error
	kind error
}

func (e *also) Unwrap() []error { return []error{e.error, e.kind} }
