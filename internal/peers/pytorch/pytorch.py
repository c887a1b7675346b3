"""Multiplies matrices with PyTorch on one GPU or several, one process per GPU.

The first line of standard input and each later one is a request, a JSON object. The answer to each
is a line of standard output:

    {"devices": ["cuda:0", "cuda:1"]}   {"version": "2.11.0", ...}
    {"prepare": 1, "way": "gather", "type": "bfloat16", "m": ..., "n": ..., "k": ...,
     "trans_a": false, "trans_b": false, "seed": 1}
                                        {}, or {"unsupported": "the reason"}
    {"run": 1, "products": 10}          {"seconds": 0.012} for all ten
    {"check": 1}                        {"error": 0.1}, divided by its bound
    {"free": 1}                         {}

A failure is {"failure": "the reason"}, and the program ends. It also ends with standard input.

A is divided by rows. "gather" divides the stored rows of B, gathers B with all_gather_into_tensor
and multiplies then; on one device it is a matmul. "async" divides the columns of B and gathers A
with symm_mem.fused_all_gather_matmul, which PyTorch's async tensor parallelism uses. The parts of a
collective are equal, so the last ones are padded.
"""

import json
import os
import sys
import time
import traceback

# NVLink multicast may not be available on shared machines.
os.environ["NCCL_NVLS_ENABLE"] = "0"
os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"

ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


class Unsupported(Exception):
    """A product that PyTorch does not compute."""


def share(n, rank, ranks):
    """Returns the number of n rows or columns that a rank has. The first ranks may have one more."""
    return n // ranks + (rank < n % ranks)


def largest(n, ranks):
    """Returns the size of the largest share."""
    return -(-n // ranks)


class Product:
    """The part of a product that the process of a rank computes."""

    def __init__(self, worker, request):
        import torch

        self.torch, self.worker, self.request = torch, worker, request
        m, n, k, ranks = request["m"], request["n"], request["k"], worker.ranks
        self.gathers_a = request["way"] == "async" and ranks > 1
        dtype = getattr(torch, request["type"])
        generator = torch.Generator(worker.device)
        generator.manual_seed(request["seed"] * 1024 + worker.rank)

        def stored(rows, cols):
            x = torch.empty(rows, cols, dtype=dtype, device=worker.device)
            return x.uniform_(-1, 1, generator=generator)

        rows = share(m, worker.rank, ranks)
        if self.gathers_a and (request["trans_a"] or not worker.gpu):
            raise Unsupported("fused_all_gather_matmul of a transposed A or on a CPU")
        if self.gathers_a:
            self.a = stored(largest(m, ranks), k)
            cols = share(n, worker.rank, ranks)
            self.b = stored(cols, k).t() if request["trans_b"] else stored(k, cols)
            self.group = torch.distributed.group.WORLD.group_name
            import torch.distributed._symmetric_memory  # registers the operation

            return
        self.a = stored(k, rows).t() if request["trans_a"] else stored(rows, k)
        b_rows, b_cols = (n, k) if request["trans_b"] else (k, n)
        self.part = stored(largest(b_rows, ranks), b_cols)
        self.whole = self.part
        if ranks > 1:
            self.whole = torch.empty(self.part.shape[0] * ranks, b_cols, dtype=dtype, device=worker.device)
        self.b = self.whole[:b_rows].t() if request["trans_b"] else self.whole[:b_rows]
        self.c = torch.empty(rows, n, dtype=dtype, device=worker.device)

    def enqueue(self):
        torch = self.torch
        if self.gathers_a:
            _, (self.c,) = torch.ops.symm_mem.fused_all_gather_matmul(
                self.a, [self.b], 0, self.group, return_A=False)
            return
        if self.worker.ranks > 1:
            torch.distributed.all_gather_into_tensor(self.whole, self.part)
        torch.matmul(self.a, self.b, out=self.c)

    def run(self, products):
        """Returns the seconds from the start of all ranks until this one has finished."""
        self.worker.barrier()
        start = time.perf_counter()
        for _ in range(products):
            self.enqueue()
        self.worker.synchronize()
        return time.perf_counter() - start

    def check(self):
        """Compares some rows of C with float64 sums. Returns the largest error / bound."""
        torch = self.torch
        self.run(1)
        a = self.a
        if self.gathers_a:
            a = torch.empty(a.shape[0] * self.worker.ranks, a.shape[1], dtype=a.dtype, device=a.device)
            torch.distributed.all_gather_into_tensor(a, self.a)
        if a.shape[0] * self.b.shape[1] == 0:
            return 0.0
        rows = torch.linspace(0, a.shape[0] - 1, min(a.shape[0], 8)).long().to(a.device)
        some = a[rows].double()
        u = ROUNDOFF[self.request["type"]]
        gamma = (self.request["k"] + 3) * min(u, ROUNDOFF["float32"])
        worst = 0.0
        for at in range(0, self.b.shape[1], 4096):
            b = self.b[:, at:at + 4096].double()
            want, got = some @ b, self.c[rows, at:at + 4096].double()
            # Partial sums of a divided K may be rounded to the type of C.
            bound = gamma * (some.abs() @ b.abs()) + 4 * u * want.abs() + 1e-300
            error = ((got - want).abs() / bound).nan_to_num(float("inf"), float("inf"))
            worst = max(worst, error.max().item())
        return worst


class Worker:
    """The process of one rank."""

    def __init__(self, rank, devices, port):
        import torch

        self.torch, self.rank, self.ranks = torch, rank, len(devices)
        self.device = torch.device(devices[rank])
        self.gpu = self.device.type == "cuda"
        if self.gpu:
            torch.cuda.set_device(self.device)
        if self.ranks > 1:
            store = torch.distributed.TCPStore("127.0.0.1", port, is_master=False)
            torch.distributed.init_process_group(
                "nccl" if self.gpu else "gloo", store=store, rank=rank, world_size=self.ranks)
        self.products = {}

    def synchronize(self):
        if self.gpu:
            self.torch.cuda.synchronize()

    def barrier(self):
        if self.ranks > 1:
            self.torch.distributed.barrier()
        self.synchronize()

    def answer(self, request):
        if "prepare" in request:
            # Allocates only: a rank without memory must not leave others waiting for it.
            try:
                self.products[request["prepare"]] = Product(self, request)
            except Unsupported as why:
                return {"unsupported": str(why)}
            return {}
        if "run" in request:
            return {"seconds": self.products[request["run"]].run(request["products"])}
        if "check" in request:
            return {"error": self.products[request["check"]].check()}
        del self.products[request["free"]]
        if self.gpu:
            self.torch.cuda.empty_cache()
        return {}


def one_line(error):
    return " ".join(traceback.format_exception_only(type(error), error)[-1].split())


def work(rank, devices, port, pipe):
    """The main function of the process of a rank. The end of the pipe ends it."""
    try:
        worker = Worker(rank, devices, port)
        pipe.send({})
        while True:
            pipe.send(worker.answer(pipe.recv()))
    except EOFError:
        pass
    except Exception as error:
        pipe.send({"failure": f"{devices[rank]}: {one_line(error)}"})


class Failure(Exception):
    """A failure of this program or of a process."""


class Team:
    """The processes of all ranks."""

    def __init__(self, devices):
        try:
            import torch
        except ImportError as error:
            raise Failure(f"PyTorch is not installed for {sys.executable}: {error}")
        wanted = [d for d in devices if d.startswith("cuda")]
        seen = torch.cuda.device_count() if wanted else 0
        if any(int(d.split(":")[1]) >= seen for d in wanted):
            raise Failure(f"PyTorch sees {seen} GPUs: want {', '.join(wanted)}")
        self.version = {"version": torch.__version__}
        if wanted:
            self.version["cuda"] = torch.version.cuda
            if len(devices) > 1:
                self.version["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        store, port = None, 0
        if len(devices) > 1:
            store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
            port = store.port
        self.store = store  # serves the ranks while it exists
        context = torch.multiprocessing.get_context("spawn")
        self.pipes, self.processes = [], []
        for rank in range(len(devices)):
            mine, theirs = context.Pipe()
            process = context.Process(target=work, args=(rank, devices, port, theirs), daemon=True)
            process.start()
            theirs.close()
            self.pipes.append(mine)
            self.processes.append(process)
        self.collect()

    def ask(self, request):
        for rank, pipe in enumerate(self.pipes):
            try:
                pipe.send(request)
            except OSError:
                raise self.ended(rank)
        return self.collect()

    def ended(self, rank):
        """Returns the failure of a rank whose pipe is closed."""
        self.processes[rank].join(5)
        return Failure(f"the process of rank {rank} ended, exit code {self.processes[rank].exitcode}")

    def collect(self):
        """Returns the largest values of the answers of all ranks. The first failure ends it."""
        from multiprocessing.connection import wait

        merged, missing = {}, list(self.pipes)
        while missing:
            for pipe in wait(missing):
                missing.remove(pipe)
                try:
                    answer = pipe.recv()
                except (EOFError, OSError):
                    raise self.ended(self.pipes.index(pipe))
                if "failure" in answer:
                    raise Failure(answer["failure"])
                for key, value in answer.items():
                    merged[key] = max(merged.get(key, value), value)
        return merged


def main():
    # Libraries print to standard output, so the answers go to a copy of it.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def send(answer):
        print(json.dumps(answer), file=answers, flush=True)

    try:
        team = None
        for line in sys.stdin:
            request = json.loads(line)
            if team is None:
                team = Team(request["devices"])
                send(team.version)
            else:
                send(team.ask(request))
    except Failure as why:
        send({"failure": str(why)})
        sys.exit(1)
    except Exception as error:
        send({"failure": one_line(error)})
        sys.exit(1)


if __name__ == "__main__":
    main()
