// The roofline of a GPU with the points of a kernel.
import { h, si } from "./dom.js";

const width = 520, height = 300, left = 56, right = 16, top = 16, bottom = 44;

// roofline returns a drawing. roof is {peak, bandwidth, ridge, rate}; points are
// [{x, name, below}] with x in operations per byte that the threads load. bounds are those of the
// first point: a measured rate moves along the caches from there to the bytes of memory.
export function roofline(roof, points, bounds) {
	const attain = x => Math.min(roof.peak, x * roof.bandwidth);
	const end = bounds.rate ? bounds.memory : bounds.least;
	const xs = points.map(p => p.x).concat(roof.ridge, end);
	const from = Math.log2(Math.min(0.125, ...xs) / 1.5), to = Math.log2(Math.max(64, ...xs) * 2);
	const high = Math.log2(roof.peak * 2), low = Math.log2(attain(2 ** from));
	const px = x => left + (Math.log2(x) - from) / (to - from) * (width - left - right);
	const py = y => top + (high - Math.log2(y)) / (high - low) * (height - top - bottom);
	const text = (x, y, s, c = "") => h("text", { x, y, class: c }, s);
	const ticks = [];
	for (let e = Math.ceil(from); e <= to; e += 2) {
		ticks.push(h("line", { x1: px(2 ** e), x2: px(2 ** e), y1: top, y2: height - bottom, class: "grid" }),
			text(px(2 ** e), height - bottom + 18, String(2 ** e), "m s"));
	}
	for (let e = Math.ceil(Math.log10(2 ** low)); e <= Math.log10(2 ** high); e++) {
		ticks.push(h("line", { x1: left, x2: width - right, y1: py(10 ** e), y2: py(10 ** e), class: "grid" }),
			text(left - 8, py(10 ** e) + 4, si(10 ** e).trim(), "e s"));
	}
	const marks = points.map(p => {
		const [x, y] = [px(p.x), py(attain(p.x))];
		const flat = attain(p.x) === roof.peak;
		const end = x > width - (p.below || flat ? 90 : 230);
		const under = p.below ? 30 : end && !flat ? -12 : 20; // the free side of the line
		return h("g", { class: p.below ? "point below" : "point" },
			h("line", { x1: x, x2: x, y1: y, y2: height - bottom, class: "drop" }),
			h("circle", { cx: x, cy: y, r: p.below ? 4 : 6 }),
			text(x + (end ? -10 : 10), y + under, p.below ? p.name : `${p.name} without caches`, (end ? "e " : "") + "s halo"));
	});
	return h("figure", { class: "figure" },
		h("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": bounds.text }, ticks,
			h("path", {
				d: `M${px(2 ** from)} ${py(attain(2 ** from))}L${px(roof.ridge)} ${py(roof.peak)}H${width - right}`, class: "roof",
			}),
			text(width - right, py(roof.peak) - 8, `${si(roof.peak)}FLOP/s, ${roof.rate}`, "e s halo"),
			text(width - right, height - 6, "operations per byte", "e s"), text(left - 44, top - 4, "FLOP/s", "s"), marks, bounds.rate > 0 && measured()),
		h("figcaption", {}, bounds.text));

	// measured returns the measured rate, with an arrow from the bytes that the threads load to those
	// of memory.
	function measured() {
		const [x1, x2, y] = [px(points[0].x), px(end), py(bounds.rate)], late = x2 > width - 150;
		return h("g", { class: "point measured" },
			h("path", { d: `M${x1} ${y}H${x2 - 10}m-6 -4l6 4l-6 4`, class: "caches" }),
			text(x2 - 14, y - 7, "caches", "e s halo"),
			h("circle", { cx: x2, cy: y, r: 6 }),
			text(x2 + (late ? 6 : 0), y + 22, `measured: ${si(bounds.rate)}FLOP/s`, (late ? "e" : "m") + " b halo"));
	}
}
