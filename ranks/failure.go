package ranks

import (
	"context"
	"errors"
	"fmt"

	"tilework/internal/phrase"
)

// Failure is the failure of a rank, as the other ranks see it. It wraps [ErrRank] and, depending on
// the reason, ErrSecret, ErrDisagree or [context.Canceled].
type Failure struct {
	Rank int
	code code
	text string
}

// code is the kind of a failure.
type code uint8

const (
	codeFailed      code = iota + 1 // the rank reported an error
	codeInterrupted                 // the rank was interrupted
	codeLost                        // the connection broke
	codeAbsent                      // the rank did not join in time
	codeDisagree                    // the rank disagrees with others
	codeSecret                      // the rank has another secret
	codes           = iota
)

// maxText is the maximum number of bytes of the text of a failure.
const maxText = 1 << 10

// failureOf returns the failure of a rank because of err.
func failureOf(rank int, err error) *Failure {
	f := &Failure{Rank: rank, code: codeFailed, text: err.Error()}
	switch {
	case errors.Is(err, context.Canceled):
		f.code, f.text = codeInterrupted, ""
	case errors.Is(err, ErrDisagree):
		f.code = codeDisagree
	}
	return f
}

// Error implements error.
func (f *Failure) Error() string {
	text := phrase.Printable(f.text, maxText) // it may be that of another rank
	switch f.code {
	case codeInterrupted:
		return fmt.Sprintf("rank %d was interrupted", f.Rank)
	case codeLost:
		return fmt.Sprintf("rank %d: %s", f.Rank, text)
	case codeAbsent, codeDisagree, codeSecret: // the text names the ranks
		return text
	}
	return fmt.Sprintf("rank %d failed: %s", f.Rank, text)
}

// Unwrap returns the sentinel errors that f wraps.
func (f *Failure) Unwrap() []error {
	switch f.code {
	case codeInterrupted:
		return []error{ErrRank, context.Canceled}
	case codeDisagree:
		return []error{ErrRank, ErrDisagree}
	case codeSecret:
		return []error{ErrRank, ErrSecret}
	}
	return []error{ErrRank}
}

// encode returns f as the payload of a message.
func (f *Failure) encode() []byte {
	var e encoder
	e.uint32(uint32(f.Rank))
	e.uint8(uint8(f.code))
	e.tail([]byte(f.text[:min(len(f.text), maxText)]))
	return e
}

// decodeFailure decodes the payload of a message.
func decodeFailure(payload []byte) (*Failure, error) {
	d := decoder{rest: payload}
	rank, c, text := d.uint32(), code(d.uint8()), d.tail()
	if d.short || c == 0 || c > codes || rank >= MaxSize || len(text) > maxText {
		return nil, fmt.Errorf("malformed report of a failure, %d bytes", len(payload))
	}
	return &Failure{int(rank), c, string(text)}, nil
}
