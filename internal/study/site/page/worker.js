// The Web Worker that runs the emulator. It receives the compiled program, and then one call at a
// time. To stop a call, the page ends the worker and starts another.
importScripts("wasm_exec.js");

const go = new Go();

addEventListener("message", async ({ data }) => {
	if (data.program) {
		go.run(await WebAssembly.instantiate(data.program, go.importObject));
		return;
	}
	const answer = tilework(data.method, JSON.stringify(data.params), (done, all) => postMessage({ done, all }));
	postMessage({ ...answer, memory: go._inst.exports.mem.buffer.byteLength });
});
