// The emulator in a Web Worker.

// Stopped is the error of a call that the reader stopped.
export class Stopped extends Error {}

export let memory = 0; // bytes that the emulator has

let program; // the compiled WebAssembly, a promise
let worker; // a promise of a worker that is ready
let current; // the call that runs: {resolve, reject, progress}
let queue = Promise.resolve(); // calls run one after the other

async function load() {
	const packed = await fetch("study.wasm.packed");
	if (!packed.ok) throw new Error(`study.wasm.packed: ${packed.status} ${packed.statusText}`);
	const stream = packed.body.pipeThrough(new DecompressionStream("gzip"));
	return WebAssembly.compileStreaming(new Response(stream, { headers: { "Content-Type": "application/wasm" } }));
}

async function start() {
	const w = new Worker("worker.js");
	program ??= load();
	const compiled = await program;
	return new Promise((resolve, reject) => {
		w.onerror = event => {
			const error = new Error(event.message || "the emulator ended");
			worker = undefined;
			reject(error);
			current?.reject(error);
		};
		w.onmessage = ({ data }) => {
			memory = data.memory ?? memory;
			if (data === "ready") resolve(w);
			else if (data.all) current?.progress?.(data.done, data.all);
			else if (data.error !== undefined) current?.reject(new Error(data.error));
			else current?.resolve(JSON.parse(data.result));
		};
		w.postMessage({ program: compiled });
	});
}

// call calls a method of the emulator.
export function call(method, params = {}, progress) {
	const result = queue.then(async () => {
		worker ??= start();
		const w = await worker;
		try {
			return await new Promise((resolve, reject) => {
				current = { resolve, reject, progress };
				w.postMessage({ method, params });
			});
		} finally {
			current = undefined;
		}
	});
	queue = result.catch(() => {});
	return result;
}

// stop ends the running call, which fails with Stopped.
export async function stop() {
	if (!current) return;
	const [w, stopped] = [await worker, current];
	w.terminate();
	worker = undefined;
	stopped.reject(new Stopped("stopped"));
}

// The emulator starts while the browser loads the rest of the page.
worker = start();
worker.catch(() => {}); // the first call reports the error
