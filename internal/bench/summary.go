package bench

import "math"

// Summary compares a subject with a peer over all cases for which both have times.
type Summary struct {
	Subject, Peer, Device string
	In, Out               string
	Threads               int // 0: chosen by the subject
	Cases                 int
	Uncertain             int     // cases whose ratio is uncertain; see Ratio
	Mean                  float64 // geometric, of the speeds over the peer
	Few                   int     // cases of at most FewRows rows
	FewMean               float64 // geometric, of these cases
	Below90, Below80      int     // cases whose speed is below 0.9 and 0.8
	Worst                 float64
	WorstShape            Shape
	Classes               []ClassSummary // of the classes with cases
}

// FewRows is the largest number of rows of the products that decoding computes.
const FewRows = 16

// Summarize returns a summary for each kernel and peer, in the order of their first appearance.
func Summarize(records []Record) []Summary {
	type key struct {
		subject, peer, device, in, out string
		threads                        int
	}
	at := map[key]int{}
	var all []Summary
	var perClass [][]classCases // of each summary, by class
	for i := range records {
		r := &records[i]
		if r.Peer {
			continue
		}
		for _, v := range r.Versus {
			k := key{r.Subject, v.Peer, r.Device, r.In, r.Out, r.Threads}
			n, known := at[k]
			if !known {
				n = len(all)
				at[k] = n
				all = append(all, Summary{Subject: r.Subject, Peer: v.Peer, Device: r.Device, In: r.In, Out: r.Out,
					Threads: r.Threads, Worst: math.Inf(1)})
				perClass = append(perClass, make([]classCases, len(classes)))
			}
			perClass[n][r.class()].add(r, v.Speed)
			s := &all[n]
			s.Cases++
			if v.Uncertain() {
				s.Uncertain++
			}
			if v.Speed < 0.9 {
				s.Below90++
			}
			if v.Speed < 0.8 {
				s.Below80++
			}
			s.Mean += math.Log(v.Speed)
			if r.M <= FewRows {
				s.Few++
				s.FewMean += math.Log(v.Speed)
			}
			if v.Speed < s.Worst {
				s.Worst, s.WorstShape = v.Speed, Shape{r.M, r.N, r.K}
			}
		}
	}
	for i := range all {
		s := &all[i]
		s.Mean = math.Exp(s.Mean / float64(s.Cases))
		s.FewMean = math.Exp(s.FewMean / float64(max(s.Few, 1)))
		s.Classes = summarizeClasses(perClass[i])
	}
	return all
}
