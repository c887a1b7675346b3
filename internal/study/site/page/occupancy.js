// The occupancy calculator with the question of the textbook.
import { call } from "./engine.js";
import { oneOf, read, whole } from "./address.js";
import { announce, byID, h, number, plural } from "./dom.js";
import { failure } from "./ladder.js";

const textbook = { threads: 256, shared: 2, registers: 0, gpu: "", smThreads: 2048, smShared: 48, smBlocks: 16, smRegisters: 65536 };

const fields = [
	["threads", "Threads per block", 1, 1024], ["shared", "Shared memory per block, KB", 0, 228],
	["registers", "Registers per thread (0: unknown)", 0, 255],
];
const limits = [
	["smThreads", "Threads", 32, 4096], ["smShared", "Shared memory, KB", 0, 1024],
	["smBlocks", "Blocks", 0, 64], ["smRegisters", "Registers", 0, 1 << 20],
];

const question = [
	["16 blocks, limited by 48 KB of shared memory", "24 blocks of 2 KB fit 48 KB."],
	["8 blocks, limited by 16 blocks", "The SM allows 16 blocks, and something else is used up before."],
	["8 blocks, limited by 2,048 threads", ""],
	["16 blocks, limited by 2,048 threads", "16 blocks have 16 × 256 = 4,096 threads."],
];

export function occupancy(contents, remember) {
	const state = { ...textbook }, form = byID("occupancy-form"), out = byID("occupancy-result");
	const input = ([name, label, min, max]) => h("label", { class: "field" }, h("span", {}, label),
		h("input", { type: "number", name, min, max, required: true }));
	const byHand = h("fieldset", {}, h("legend", {}, "The SM"), limits.map(input));
	form.append(
		h("fieldset", {}, h("legend", {}, "The block"), fields.map(input)),
		h("label", { class: "field" }, h("span", {}, "GPU"), h("select", { name: "gpu" },
			h("option", { value: "" }, "the textbook's"), contents.gpus.map(g => h("option", { value: g.name }, g.device)))),
		byHand);
	form.addEventListener("submit", event => event.preventDefault());
	form.addEventListener("input", () => {
		if (!form.reportValidity()) return;
		for (const e of form.elements) if (e.name) state[e.name] = e.type === "number" ? Number(e.value) : e.value;
		compute();
	});

	byID("question").append(h("legend", {}, "An SM has 48 KB of shared memory, 2,048 threads and 16 blocks. How many blocks " +
		"with 16×16 threads and two 16×16 tiles fit?"));
	const answer = h("p", { class: "verdict", role: "status" });
	question.forEach(([text, why]) => byID("question").append(h("label", { class: "switch" },
		h("input", {
			type: "radio", name: "answer", onchange: () => {
				answer.className = "verdict " + (why ? "bad" : "good");
				answer.textContent = why ? `No. ${why}` : "Right: 2,048 / 256 = 8 blocks, 24 by shared memory, 16 by the block limit.";
				if (!why) reveal();
			},
		}), h("span", {}, text))));
	byID("question").append(answer);

	// The calculator begins with the SM and the block of the question. It keeps the result until the
	// reader has answered, asks for it, or changes a value.
	let revealed = false;
	function reveal() {
		if (revealed) return;
		revealed = true;
		compute();
	}

	async function compute() {
		remember(state);
		byHand.hidden = byHand.disabled = state.gpu !== "";
		if (!revealed && Object.entries(textbook).every(([name, value]) => state[name] === value)) {
			out.replaceChildren(h("p", { class: "note" }, "The calculator has the numbers of the question, and shows its result after your answer."),
				h("div", { class: "run" }, h("button", { type: "button", onclick: reveal }, "Show the result")));
			return;
		}
		try {
			show(await call("occupancy", {
				gpu: state.gpu,
				launch: { threads: state.threads, shared_bytes: Math.round(state.shared * 1024), regs_per_thread: state.registers },
				sm_threads: state.smThreads, sm_shared: Math.round(state.smShared * 1024), sm_blocks: state.smBlocks, sm_registers: state.smRegisters,
			}));
		} catch (error) {
			out.replaceChildren(failure(error));
		}
	}

	function show(o) {
		const most = Math.max(...o.limits.map(l => l.blocks));
		const verdict = `${plural(o.blocks, "block")} per SM, limited by ${o.binding.join(" and ")}: ${number(o.threads)} threads, ` +
			`occupancy ${number(100 * o.fraction, 1)} %.`;
		announce(verdict);
		out.replaceChildren(
			h("p", { class: "verdict " + (o.blocks > 1 ? "good" : "bad") }, verdict),
			h("div", { class: "bars" }, o.limits.map(l => {
				const bar = h("span", { class: "bar " + (l.blocks === o.blocks ? "binds" : "") });
				bar.style.width = `${100 * l.blocks / most}%`;
				return h("div", { class: "row" }, h("span", { class: "label" }, l.resource), h("span", { class: "track" }, bar,
					h("strong", {}, plural(l.blocks, "block"))), h("small", {}, l.why));
			})));
	}

	return query => {
		Object.assign(state, read(query, { ...Object.fromEntries([...fields, ...limits].map(([name, , min, max]) => [name, whole(min, max)])),
			gpu: oneOf(["", ...contents.gpus.map(g => g.name)]) }));
		for (const e of form.elements) if (e.name) e.value = state[e.name];
		compute();
	};
}
