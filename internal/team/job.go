package team

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/phrase"
	"tilework/internal/split"
)

// Job is a product of matrices that are divided among the ranks.
type Job struct {
	gemm.Problem // with the layouts of the whole matrices
	Operands     [gemm.Operands]Operand
	Kernel       string // empty for the choice of rank 0
	Threads      int    // the maximum number of goroutines that compute on this rank; 0 for all
}

// Operand is a matrix of the team, or a vector in host memory, which every rank has in whole.
type Operand struct {
	On   Matrix
	Host []byte
}

// Gemm computes the product on all ranks, which call it at the same time, and returns when this
// rank's part of C is complete. C has the bits of the product on one rank. If invalid is not nil,
// it is an error of the operands, and p is not used.
//
// An error that all ranks find in the operands does not end the group. The other errors do:
// ErrDisagree if the ranks have different products, ErrRank, the context's and the device's.
func (t *Team) Gemm(ctx context.Context, p *Job, invalid error) error {
	return t.together(ctx, p, invalid, func(ctx context.Context) error {
		v, err := t.division(ctx, p)
		if err == nil {
			err = t.run(ctx, p, v)
		}
		return err
	})
}

// PlanOf describes how Gemm would compute the product. All ranks call it at the same time.
func (t *Team) PlanOf(ctx context.Context, p *Job, invalid error) (d Description, err error) {
	err = t.together(ctx, p, invalid, func(ctx context.Context) error {
		v, err := t.division(ctx, p)
		if err != nil {
			return err
		}
		d = v.description
		var names []string
		for r := range t.group.Size() {
			names = append(names, fmt.Sprintf("rank %d", r))
		}
		d.Detail += "; " + v.Describe(&v.Division, names) + "; " + t.transport.String()
		return nil
	})
	return d, err
}

// Description describes a planned product in words.
type Description struct{ Device, Kernel, Detail, Why string }

// together calls f on all ranks after they have agreed on the product.
func (t *Team) together(ctx context.Context, p *Job, invalid error, f func(context.Context) error) error {
	return t.use(func() error {
		if invalid == nil {
			invalid = p.check(t)
		}
		ctx, stop := t.group.Context(ctx)
		defer stop()
		var err error
		if invalid != nil {
			err = t.agreeOn(ctx, [2]string{theProduct, invalid.Error()})
		} else if err = t.agree(ctx, p); err == nil {
			err = f(ctx)
		}
		if final := (*finalError)(nil); errors.As(err, &final) {
			return final.error
		}
		if err != nil {
			return t.failed(err)
		}
		return invalid
	})
}

// theProduct is the name of the value that ranks agree on first.
const theProduct = "the product"

// check returns an error unless the operands are matrices of the team, or vectors.
func (p *Job) check(t *Team) error {
	c := p.Operands[gemm.C].On.Memory
	for i := range p.Operands {
		o := gemm.Operand(i)
		if !p.Uses(o) {
			continue
		}
		m := p.Operands[o].On.Memory
		switch {
		case m == nil && o <= gemm.Up:
			return fmt.Errorf("%w: %s of one rank and C of several", gemm.ErrUnsupported, o.Phrase())
		case m == nil:
			continue
		case m.team != t:
			return fmt.Errorf("%w: %s is of other ranks than C", gemm.ErrUnsupported, o.Phrase())
		case m == c && o != gemm.C:
			return fmt.Errorf("%w: C shares memory with %s", gemm.ErrOverlap, o.Phrase())
		}
		if err := m.check(); err != nil {
			return err
		}
	}
	switch {
	case p.Batch != (gemm.Batch{}):
		return fmt.Errorf("%w: a batch or groups of matrices of several ranks", gemm.ErrUnsupported)
	case p.BlockScaled():
		return fmt.Errorf("%w: block scales of matrices of several ranks", gemm.ErrUnsupported)
	}
	return nil
}

// agree returns an error unless all ranks have the same product.
func (t *Team) agree(ctx context.Context, p *Job) error {
	return t.agreeOn(ctx, [][2]string{
		{theProduct, p.String()},
		{"the operands", p.operands()},
		{"alpha, beta, precision and row invariance",
			fmt.Sprintf("%v, %v, %v, %v", p.Alpha, p.Beta, p.Precision, p.Invariance)},
		{"the epilogue", fmt.Sprintf("%+v, function data of %d", p.Epilogue, p.DataLen)},
		{"the kernel and the limit of threads", fmt.Sprintf("%q, %d", p.Kernel, p.Threads)},
	}...)
}

// operands describes the operands: "A 3×4 float32 split by rows, B …".
func (p *Job) operands() (text string) {
	for i := range p.Operands {
		o := gemm.Operand(i)
		if !p.Uses(o) {
			continue
		}
		if text != "" {
			text += ", "
		}
		text += o.Phrase() + " " + p.Layout(o).String()
		if m := p.Operands[o].On.Memory; m != nil {
			text += " " + m.whole.By.String()
		}
	}
	return text
}

// decision holds the choices of rank 0 for a product.
type decision struct {
	Choice  backend.Choice
	Seconds float64 // predicted for the whole product on one rank
	Why     string  // the reason for the choice
	Refused string  // the reason why there is none
}

// finalError is an error that does not end the group: all ranks return it, or the group has ended
// because of it.
type finalError struct{ error }

// division is the division of a product among the ranks, with the tasks of this one.
type division struct {
	split.Job
	split.Division
	description Description
	work        *split.Work // of this rank
	tasks       []task      // of its panels
	places      [][gemm.Operands]split.At
}

// divisionKey identifies a division. The ends of the ranks' parts follow from the shape of a
// matrix.
type divisionKey struct {
	gemm.Problem
	by      [gemm.Operands]split.By
	kernel  string
	threads int
}

// mostDivisions is the maximum number of divisions that a team keeps.
const mostDivisions = 1024

// division returns the division of a product on which the ranks have agreed. All ranks find it
// among the recent ones, or none does.
func (t *Team) division(ctx context.Context, p *Job) (*division, error) {
	key := divisionKey{Problem: p.Problem, kernel: p.Kernel, threads: p.Threads}
	for o := range p.Operands {
		if m := p.Operands[o].On.Memory; m != nil {
			key.by[o] = m.whole.By
		}
	}
	if v := t.divisions[key]; v != nil {
		return v, nil
	}
	v, err := t.divide(ctx, p)
	if err != nil {
		return nil, err
	}
	if p.Epilogue.Function != nil { // a rank may have made it anew
		return v, nil
	}
	if len(t.divisions) >= mostDivisions {
		clear(t.divisions)
	}
	t.divisions[key] = v
	return v, nil
}

// divide plans the product on all ranks: with the kernel that rank 0 chooses, in one order of the
// sums, and with one division.
func (t *Team) divide(ctx context.Context, p *Job) (*division, error) {
	var mine planned
	var d decision
	var err error
	if t.group.Rank() == 0 {
		switch mine, err = t.store.plan(ctx, p, nil); {
		case err == nil:
			d = decision{Choice: mine.choice(), Seconds: mine.seconds(), Why: mine.describe().Why}
		case errors.Is(err, gemm.ErrUnsupported):
			d.Refused = err.Error()
		default:
			return nil, err
		}
	}
	all, err := exchange(ctx, t, "the choice of the kernel", d)
	if err != nil {
		return nil, err
	}
	d = all[0]
	d.Choice, d.Why, d.Refused = d.Choice.Printable(), phrase.Printable(d.Why, maxReason),
		phrase.Printable(d.Refused, maxReason)
	if d.Refused != "" {
		return nil, &finalError{device.WithKind(gemm.ErrUnsupported, errors.New(d.Refused))}
	}
	if t.group.Rank() > 0 {
		if mine, err = t.store.plan(ctx, p, &d.Choice); err != nil {
			return nil, fmt.Errorf("%w; rank 0 chose %v", err, d.Choice)
		}
	}
	grain, rows, cols := mine.cuts()
	v := &division{description: mine.describe(), Job: split.Job{
		Problem: p.Problem, Weights: t.weights, UnitM: rows, UnitN: cols, Grain: grain,
		AtOnce: mine.tilesAtOnce(), Seconds: d.Seconds, Rate: t.rate, PanelBytes: t.panelBytes, Pick: t.pick}}
	for i := range p.Operands {
		o := gemm.Operand(i)
		if !p.Uses(o) {
			continue
		}
		l := p.Layout(o)
		whole := split.New(split.OnEach, l.Rows, l.Cols, t.weights, 1)
		if m := p.Operands[o].On.Memory; m != nil {
			whole = m.whole
		}
		v.Places[o].Matrix = &whole
	}
	v.description.Device, v.description.Why = t.name.String(), d.Why
	v.Division = v.Job.Divide()
	hash := fnv.New64a()
	fmt.Fprint(hash, v.Shares)
	if err := t.agreeOn(ctx, [2]string{"the order of the sums", mine.order()},
		[2]string{"the division of C", fmt.Sprintf("%x", hash.Sum64())}); err != nil {
		return nil, err
	}
	rank := t.group.Rank()
	share := &v.Shares[rank]
	for i := range share.Panels {
		panel := &share.Panels[i]
		q, places := v.Launch(rank, share, panel)
		x, err := mine.part(&q, panel.C.Rows.From, panel.C.Cols.From)
		if err != nil {
			return nil, err
		}
		v.tasks, v.places = append(v.tasks, x), append(v.places, places)
	}
	v.work = v.RankWork(&v.Division, rank)
	return v, nil
}

// elem returns the type of the elements of operand o.
func (v *division) elem(o gemm.Operand) dtype.Type { return v.Layout(o).Type }
