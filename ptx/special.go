package ptx

import (
	"strconv"
	"strings"
)

// special describes a special register (manual: "special-registers").
type special struct {
	name string // a final # stands for a number: %envreg#
	typ  Type
	vec  bool // the register has members .x, .y, .z and .w
	need Need
}

var specialTable = func() []special {
	var rows []special
	add := func(v Version, sm int, t Type, vec bool, names string) {
		for _, name := range strings.Fields(names) {
			rows = append(rows, special{name, t, vec, Need{Version: v, Target: Target{SM: sm}}})
		}
	}
	add(23, 20, U32, true, "%tid %ntid %ctaid %nctaid")
	add(23, 20, U32, false, "%laneid %warpid %smid %clock %pm0 %pm1 %pm2 %pm3 WARP_SZ")
	add(23, 20, U32, false, "%nwarpid %nsmid %lanemask_eq %lanemask_le %lanemask_lt %lanemask_ge %lanemask_gt")
	add(23, 20, U64, false, "%gridid %clock64")
	add(50, 20, U32, false, "%clock_hi")
	add(30, 20, U32, false, "%pm4 %pm5 %pm6 %pm7")
	add(31, 30, U64, false, "%globaltimer")
	add(31, 30, U32, false, "%globaltimer_lo %globaltimer_hi")
	add(23, 20, B32, false, "%envreg#")
	add(41, 20, U32, false, "%total_smem_size %dynamic_smem_size")
	add(78, 90, Pred, false, "%is_explicit_cluster")
	add(78, 90, U32, true, "%clusterid %nclusterid %cluster_ctaid %cluster_nctaid")
	add(78, 90, U32, false, "%cluster_ctarank %cluster_nctarank")
	add(76, 80, B32, false, "%reserved_smem_offset_begin %reserved_smem_offset_end %reserved_smem_offset_cap "+
		"%reserved_smem_offset_0 %reserved_smem_offset_1")
	add(80, 50, U64, false, "%current_graph_exec")
	add(81, 90, U32, false, "%aggr_smem_size")
	return rows
}()

var specials = func() map[string]*special {
	m := make(map[string]*special)
	for k := range specialTable {
		row := &specialTable[k]
		prefix, numbered := strings.CutSuffix(row.name, "#")
		if !numbered {
			m[row.name] = row
			continue
		}
		for n := range 32 {
			m[prefix+strconv.Itoa(n)] = row
		}
	}
	return m
}()

// SpecialRegisters returns the names of the special registers. Vectors such as %tid appear
// without their members, and %envreg0 represents all numbered registers of its kind.
func SpecialRegisters() []string {
	names := make([]string, len(specialTable))
	for k, row := range specialTable {
		names[k] = strings.Replace(row.name, "#", "0", 1)
	}
	return names
}
