package ranks

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"tilework/internal/phrase"
)

// Gather returns the contribution of each rank, by rank. All ranks call it with the same name,
// which errors mention. A contribution has at most [MaxData] bytes.
//
// The error is ErrDisagree if ranks are at different calls, ErrRank if one has failed, or the
// context's. After an error the group has ended.
func (g *Group) Gather(ctx context.Context, name string, data []byte) ([][]byte, error) {
	g.exchanging.Lock()
	defer g.exchanging.Unlock()
	all, err := g.gather(ctx, name, data)
	if err != nil {
		g.Fail(err)
		return nil, err
	}
	return all, nil
}

func (g *Group) gather(ctx context.Context, name string, data []byte) ([][]byte, error) {
	if len(data) > MaxData {
		return nil, fmt.Errorf("%w: %d bytes for %s, want at most %d", ErrJoin, len(data), name, MaxData)
	}
	if err := g.Err(); err != nil {
		return nil, err
	}
	g.exchanges++
	mine := &message{g.exchanges, g.config.Rank, name[:min(len(name), maxName)], data}
	all := make([][]byte, g.config.Size)
	if g.config.Rank > 0 {
		l := g.links[0]
		if err := g.send(l, mine); err != nil {
			return nil, err
		}
		for r := range all {
			m, err := g.receive(ctx, l, mine, r)
			if err != nil {
				return nil, err
			}
			all[r] = m.data
		}
		return all, nil
	}
	messages := make([]*message, g.config.Size)
	messages[0], all[0] = mine, data
	for _, l := range g.links {
		m, err := g.receive(ctx, l, mine, l.rank)
		if err != nil {
			return nil, err
		}
		messages[l.rank], all[l.rank] = m, m.data
	}
	for _, l := range g.links {
		if err := g.send(l, messages...); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// send sends messages to a rank.
func (g *Group) send(l *link, all ...*message) error {
	frames := make([]frame, len(all))
	for i, m := range all {
		frames[i] = frame{kindData, m.encode()}
	}
	if err := l.write(g.config.Timeout, frames...); err != nil {
		g.checkLeft(l, err)
		return g.needed(l, all[0].name)
	}
	return nil
}

// needed returns the error of an exchange with a rank whose connection has ended.
func (g *Group) needed(l *link, name string) error {
	if err := g.Err(); err != nil {
		return err
	}
	return &Failure{l.rank, codeLost, fmt.Sprintf("has left, and is needed for %s", name)}
}

// receive waits for the message of a rank that belongs to the same exchange as mine.
func (g *Group) receive(ctx context.Context, l *link, mine *message, rank int) (*message, error) {
	var m *message
	select {
	case m = <-l.messages:
	case <-l.ended:
		select {
		case m = <-l.messages: // the last one
		default:
			return nil, g.needed(l, mine.name)
		}
	case <-g.failed.Done():
		return nil, g.Err()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	switch {
	case m.exchange != mine.exchange || m.name != mine.name:
		return nil, fmt.Errorf("%w: rank %d is at %q (exchange %d) and rank %d at %q (exchange %d)", ErrDisagree,
			g.config.Rank, mine.name, mine.exchange, l.rank, m.name, m.exchange)
	case m.rank != rank:
		return nil, fmt.Errorf("%w: rank %d sent the data of rank %d, want that of rank %d", ErrDisagree, l.rank, m.rank,
			rank)
	}
	return m, nil
}

// Barrier returns when all ranks have called it. The errors are those of [Group.Gather].
func (g *Group) Barrier(ctx context.Context, name string) error {
	_, err := g.Gather(ctx, name, nil)
	return err
}

// Broadcast returns the data of one rank on all ranks. The data of the others is ignored. The
// errors are those of [Group.Gather].
func (g *Group) Broadcast(ctx context.Context, name string, from int, data []byte) ([]byte, error) {
	if from < 0 || from >= g.config.Size {
		return nil, fmt.Errorf("%w: a broadcast from rank %d of %d", ErrJoin, from, g.config.Size)
	}
	if from != g.config.Rank {
		data = nil
	}
	all, err := g.Gather(ctx, name, data)
	if err != nil {
		return nil, err
	}
	return all[from], nil
}

// Agree returns an error that wraps ErrDisagree unless all ranks call it with equal values. Each
// value is a name and a text. The error states which ranks have which value, and the group has then
// ended. The other errors are those of [Group.Gather].
func (g *Group) Agree(ctx context.Context, values ...[2]string) error {
	mine, err := json.Marshal(values)
	if err != nil {
		return err
	}
	all, err := g.Gather(ctx, "an agreement", mine)
	if err != nil {
		return err
	}
	lists := make([][][2]string, len(all))
	for r, data := range all {
		if err := json.Unmarshal(data, &lists[r]); err != nil {
			err = fmt.Errorf("%w: rank %d sent malformed values: %v", ErrDisagree, r, err)
			g.Fail(err)
			return err
		}
	}
	if err := difference(lists); err != nil {
		g.end(kindLeave, nil, err) // every rank finds the same difference
		g.all.Wait()
		return err
	}
	return nil
}

// The limits of an error about different values: their number, and the bytes of each.
const (
	maxValues = 4
	maxValue  = 300
)

// difference returns an error for the first value that is not the same in all lists.
func difference(lists [][][2]string) error {
	values := make([]map[string]string, len(lists)) // by rank and name
	for r, list := range lists {
		values[r] = make(map[string]string, len(list))
		for _, v := range list {
			values[r][v[0]] = v[1]
		}
	}
	compared := map[string]bool{}
	for _, list := range lists {
		for _, v := range list {
			if compared[v[0]] {
				continue
			}
			compared[v[0]] = true
			if text := differentValues(values, v[0]); text != "" {
				return fmt.Errorf("%w on %s: %s", ErrDisagree, phrase.Printable(v[0], maxName), text)
			}
		}
	}
	return nil
}

// differentValues states which ranks have which value of a name, or returns "" if it is the same.
func differentValues(values []map[string]string, name string) string {
	var texts []string        // the different values
	who := map[string][]int{} // the ranks that have each
	for r := range values {
		text, ok := values[r][name]
		if !ok {
			text = "none"
		}
		if who[text] == nil {
			texts = append(texts, text)
		}
		who[text] = append(who[text], r)
	}
	if len(texts) == 1 {
		return ""
	}
	var parts []string
	for _, text := range texts[:min(len(texts), maxValues)] {
		have := "has"
		if len(who[text]) > 1 {
			have = "have"
		}
		parts = append(parts, fmt.Sprintf("%s %s %s", ranksText(who[text]), have, phrase.Printable(text, maxValue)))
	}
	if more := len(texts) - maxValues; more > 0 {
		parts = append(parts, fmt.Sprintf("the others have %d more values", more))
	}
	return strings.Join(parts, "; ")
}

// ranksText lists ranks: "rank 0", "ranks 1, 2 and 3", "ranks 1, 2, 3 and 96 more".
func ranksText(list []int) string {
	const most = 4
	var names []string
	for _, r := range list[:min(len(list), most)] {
		names = append(names, fmt.Sprint(r))
	}
	switch {
	case len(list) == 1:
		return "rank " + names[0]
	case len(list) > most:
		return fmt.Sprintf("ranks %s and %d more", strings.Join(names[:most-1], ", "), len(list)-most+1)
	}
	last := len(names) - 1
	return fmt.Sprintf("ranks %s and %s", strings.Join(names[:last], ", "), names[last])
}
