package lint

import (
	"iter"
	"regexp"
	"strings"
)

// A phrase is wording that a native speaker has to read twice, with a hint at a better one.
type phrase struct {
	pattern *regexp.Regexp // group 1, if there is one, is the reported text
	unless  *regexp.Regexp // matches the rest of a line after which the wording is fine, or nil
	hint    string
}

// phrases lists the discouraged wording. RE2 has no lookahead, so exceptions are in unless.
var phrases = []phrase{
	{word(`(?:^|[^\w'])(what(?:ever)?)\b`), word(`^[^.?!]*\?`), "name the thing: 'what it costs' -> 'the cost'"},
	{word(`\b(?:nobody|everybody|anybody|whoever)\b`), nil, "name the caller, thread or block"},
	{word(`\bso (?:many|much|few|long|large|small) `), word(`^(?:that|as)`), "give the number or the variable"},
	{word(`\b(?:lie|lies|lay|stand|stands|stood)\b `), word(`^for\b`), "'is stored', 'is at', 'starts at'"},
	{word(`\bbehind\b`), nil, "'after'"},
	{word(`\bunder way\b`), nil, "'in flight'"},
	{word(`\b(?:that|as|where) (?:there|they|it) (?:is|are)(?: not)?[,.;:)]`), nil, "finish the clause: as it is what?"},
	{word(`\bhas (?:the|a|an|its|later|each|every|all) [\w ]{1,25}? (?:wait|come|go|take|use|read|begin|run|end)\b`),
		nil, "'makes … wait', or name who waits"},
	{word(`\bis (?:what|where|how|who|whose)\b`), nil, "'X is the …' or 'X reports …'"},
	{word(`\bsays? (?:that|what|why|how|where|who)\b`), nil, "'reports whether', 'returns'"},
	{word(`\b(?:comes|come|came) (?:to|in|out|up|back)\b`), nil, "'is', 'arrives', 'returns', 'amounts to'"},
	{word(`\bgives? back\b|\bgiven back\b`), nil, "'frees', 'releases', 'returns'"},
	{word(`\basked for\b|\basks for\b`), nil, "'requested', 'enqueued'"},
	{word(`\bof (?:which|whom|whose)\b|\bin whose\b`), nil, "split the sentence"},
	{word(`\b(?:one's|of one's own)\b`), nil, "'your own'"},
	{word(`\b(?:card|cards)\b`), nil, "'GPU'"},
	{word(`\bthe processor\b|\bprocessors\b`), nil, "'CPU', 'core'"},
	{word(`\bmend(?:s|ed|ing)?\b`), nil, "'fix'"},
	{word(`\bforetell(?:s)?\b|\bforetold\b`), nil, "'predict', 'estimate'"},
}

// word compiles a pattern that ignores case.
func word(pattern string) *regexp.Regexp { return regexp.MustCompile(`(?i)` + pattern) }

// find returns the first occurrence of p in a line of prose, or "".
func (p *phrase) find(prose string) string {
	for at := 0; at < len(prose); {
		m := p.pattern.FindStringSubmatchIndex(prose[at:])
		if m == nil {
			return ""
		}
		end := at + m[1]
		if p.unless == nil || !p.unless.MatchString(prose[end:]) {
			start := at + m[0]
			if len(m) > 2 {
				start = at + m[2]
			}
			return strings.TrimSpace(prose[start:end])
		}
		at = end
	}
	return ""
}

var (
	letters    = regexp.MustCompile(`[A-Za-z]{3}`)
	markedCode = regexp.MustCompile("`[^`]*`|\\]\\([^)]*\\)") // code spans and link targets
)

// prose returns the lines of f that hold prose, keyed by their number counted from 1: comments of a
// Go file except directives and indented code, text of a Markdown file except code blocks, code
// spans and link targets.
func (f *File) prose() map[int]string {
	lines := map[int]string{}
	add := func(line int, text string) {
		if letters.MatchString(text) {
			lines[line] += text
		}
	}
	if f.syntax == nil {
		for line, text := range f.outsideFences() {
			add(line, markedCode.ReplaceAllString(text, ""))
		}
		return lines
	}
	for _, group := range f.syntax.Comments {
		for _, c := range group.List {
			start := f.line(c.Pos())
			if text, ok := strings.CutPrefix(c.Text, "//"); ok {
				if !strings.HasPrefix(text, "\t") && !directive.MatchString(text) {
					add(start, strings.TrimPrefix(text, " "))
				}
				continue
			}
			text := strings.TrimSuffix(strings.TrimPrefix(c.Text, "/*"), "*/")
			for i, text := range strings.Split(text, "\n") {
				if !strings.HasPrefix(text, "\t") {
					add(start+i, text)
				}
			}
		}
	}
	return lines
}

// outsideFences returns the lines of a Markdown file outside fenced code blocks, with their
// numbers.
func (f *File) outsideFences() iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		code := false
		for i, text := range f.lines {
			if strings.HasPrefix(strings.TrimSpace(text), "```") {
				code = !code
			} else if !code && !yield(i+1, text) {
				return
			}
		}
	}
}

// directive matches the text of a comment such as //go:build, after the slashes.
var directive = regexp.MustCompile(`^(?:[a-z0-9]+:[a-z0-9]|nolint| \+build )`)

// Phrases returns the discouraged wording in f, at most one finding per phrase and line, and the
// number of lines of prose in f.
func (f *File) Phrases() (found []Finding, lines int) {
	prose := f.prose()
	for i := range f.lines {
		text, ok := prose[i+1]
		if !ok {
			continue
		}
		for j := range phrases {
			if what := phrases[j].find(text); what != "" {
				found = append(found, Finding{f.Name, i + 1, what + ": " + phrases[j].hint})
			}
		}
	}
	return found, len(prose)
}
