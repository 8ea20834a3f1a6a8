"""Wrong scenario files, and the sentence that each must give: the axes of a sweep."""

from collbench.dtypes import DTYPES
from wrong_files import BACKENDS, COLLECTIVES, HEAD, LEAST, SIZES_EXAMPLE

WRONG_AXES = {
    # [[sweep]]
    "no sweep": (
        HEAD,
        "sweep: got nothing, expected at least one [[sweep]] table; write [[sweep]] with its collectives and sizes",
    ),
    "empty sweeps": (
        f"{HEAD}sweep = []",
        "sweep: got [], expected at least one [[sweep]] table; write [[sweep]] with its",
    ),
    "sweep is one table": (
        LEAST.replace("[[sweep]]", "[sweep]"),
        "sweep: got a table, expected a list of tables; write [[sweep]] in place of [sweep]",
    ),
    "sweep is a text": (
        f'{HEAD}sweep = "x"',
        'sweep: got "x", expected a list of tables; write [[sweep]] and its keys below',
    ),
    "sweep of numbers": (f"{HEAD}sweep = [3]", "sweep[0]: got 3, expected a table; write [[sweep]]"),
    "unknown kind": (
        f'{LEAST}kind = "kernels"',
        'sweep[0].kind: got "kernels", expected one of collective, kernel, ladder, replay; did you mean kernel?',
    ),
    "kernels without their kind": (
        f'{LEAST}kernels = ["copy"]',
        'sweep[0].kernels: got ["copy"], expected none without kind = "kernel"; remove kernels',
    ),
    "a ladder without sizes": (
        f'{HEAD}[[sweep]]\nkind = "ladder"',
        f"sweep[0].sizes: got nothing, expected sizes for the ladder; {SIZES_EXAMPLE}",
    ),
    "a ladder of other things": (
        f'{HEAD}[[sweep]]\nkind = "ladder"\nsizes = ["8 B"]\nbackends = ["mpi"]',
        'sweep[0].backends: got ["mpi"], expected kind, sizes and dtypes alone with kind = "ladder"; remove backends',
    ),
    "a replay of nothing": (
        f'{HEAD}[[sweep]]\nkind = "replay"',
        'sweep[0].workloads: got nothing, expected at least one workload; write e.g. workloads = ["resnet18"]',
    ),
    "a replay of an unknown workload": (
        f'{HEAD}[[sweep]]\nkind = "replay"\nworkloads = ["resnet18", "resnet51"]',
        'sweep[0].workloads[1]: got "resnet51", expected a file or one of bert-large, gpt2-xl, llama-7b, resnet18, '
        "resnet50; did you mean resnet50?",
    ),
    "a replay of what is not all-reduced": (
        f'{HEAD}[[sweep]]\nkind = "replay"\nworkloads = ["llama-7b"]',
        'sweep[0].workloads[0]: got "llama-7b", expected a workload whose gradients are all-reduced; this one has ZeRO '
        "stage 3; name another",
    ),
    "a replay with sizes": (
        f'{HEAD}[[sweep]]\nkind = "replay"\nworkloads = ["resnet18"]\nsizes = ["8 B"]',
        'sweep[0].sizes: got ["8 B"], expected none with kind = "replay"; remove sizes',
    ),
    "a replay with a time that nobody gave": (
        f'{HEAD}[[sweep]]\nkind = "replay"\nworkloads = ["resnet18"]\ncomputes = ["none", "given"]',
        'sweep[0].computes[1]: got "given", expected a time, since resnet18 gives none at any batch; write e.g. "20',
    ),
    "a replay with no time": (
        f'{HEAD}[[sweep]]\nkind = "replay"\nworkloads = ["resnet18"]\ncomputes = [20]',
        'sweep[0].computes[0]: got 20, expected "none", "given" or the time of a step such as "20 ms"; ',
    ),
    "a replay that computes 0 s": (
        f'{HEAD}[[sweep]]\nkind = "replay"\nworkloads = ["resnet18"]\ncomputes = ["0 s"]',
        'sweep[0].computes[0]: got "0 s", expected a duration above 0 s, at most 10 min; ',
    ),
    "a replay with an unknown bucketing": (
        f'{HEAD}[[sweep]]\nkind = "replay"\nworkloads = ["resnet18"]\nbucketings = ["dpp"]',
        'sweep[0].bucketings[0]: got "dpp", expected one of ddp, horovod, layers, none; did you mean ddp?',
    ),
    "a replay's keys without its kind": (
        f'{LEAST}workloads = ["resnet18"]',
        'sweep[0].workloads: got ["resnet18"], expected none without kind = "replay"; remove workloads',
    ),
    "a replay's keys among kernels": (
        f'{HEAD}[[sweep]]\nkind = "kernel"\nkernels = ["copy"]\nsizes = ["8 B"]\ncomputes = ["none"]',
        'sweep[0].computes: got ["none"], expected none with kind = "kernel"; remove computes',
    ),
    "no kernel named": (
        f'{HEAD}[[sweep]]\nkind = "kernel"\nsizes = ["8 B"]',
        'sweep[0].kernels: got nothing, expected at least one kernel; write e.g. kernels = ["copy"]',
    ),
    "kernels without sizes": (
        f'{HEAD}[[sweep]]\nkind = "kernel"\nkernels = ["copy"]',
        f"sweep[0].sizes: got nothing, expected sizes for the kernels; {SIZES_EXAMPLE}",
    ),
    "collectives among kernels": (
        f'{HEAD}[[sweep]]\nkind = "kernel"\nkernels = ["copy"]\ncollectives = ["scan"]\nsizes = ["8 B"]',
        'sweep[0].collectives: got ["scan"], expected none with kind = "kernel"; remove collectives',
    ),
    "a backend without kernels": (
        f'{HEAD}[[sweep]]\nkind = "kernel"\nkernels = ["peer_copy"]\nbackends = ["device", "nccl"]\nsizes = ["8 B"]',
        'sweep[0].backends[1]: got "nccl", expected device, which has peer_copy; remove backends',
    ),
    "the default backend for kernels": (
        f'{HEAD}[[sweep]]\nkind = "kernel"\nkernels = ["copy", "rdma_write"]\nbackends = ["default"]\nsizes = ["8 B"]',
        'sweep[0].backends[0]: got "default", expected device or perftest, which have copy, rdma_write; remove',
    ),
    "no collective named": (
        f'{HEAD}[[sweep]]\nsizes = ["8 B"]',
        'sweep[0].collectives: got nothing, expected at least one collective; write e.g. collectives = ["all_reduce"]',
    ),
    "unknown collective": (
        LEAST.replace("all_reduce", "ALL-REDUCE"),
        f'sweep[0].collectives[0]: got "ALL-REDUCE", expected one of {COLLECTIVES}; did you mean all_reduce?',
    ),
    "scalar backend": (
        f'{LEAST}backends = "mpi"',
        'sweep[0].backends: got "mpi", expected a list; write backends = ["mpi"]',
    ),
    "unknown backend": (
        f'{LEAST}backends = ["peers"]',
        f'sweep[0].backends[0]: got "peers", expected one of {BACKENDS}; ',
    ),
    "singular key": (
        f'{LEAST}dtype = ["int8"]',
        "sweep[0].dtype: got an unknown key, expected one of kind, backends, ",
    ),
    "unknown dtype": (
        f'{LEAST}dtypes = ["int8", "fp32"]',
        f'sweep[0].dtypes[1]: got "fp32", expected one of {", ".join(DTYPES)}; did you mean float32?',
    ),
    "dtype is a number": (
        f"{LEAST}dtypes = [32]",
        f'sweep[0].dtypes[0]: got 32, expected one of {", ".join(DTYPES)}; write e.g. dtypes = ["float32"]',
    ),
    "operation in a list": (
        f'{LEAST}operations = [["sum"]]',
        'sweep[0].operations[0]: got ["sum"], expected one of sum, prod, min, max, avg; '
        'write e.g. operations = ["sum"]',
    ),
    "operations as a table": (
        f"{LEAST}operations = {{ sum = 1 }}",
        'sweep[0].operations: got a table, expected a list; write e.g. operations = ["sum"]',
    ),
    "unknown root": (
        f'{LEAST}roots = ["first"]',
        'sweep[0].roots[0]: got "first", expected a rank number from 0 on, or "all"; write e.g. roots = ["0"]',
    ),
    "negative root": (
        f"{LEAST}roots = [-1]",
        'sweep[0].roots[0]: got -1, expected a rank number from 0 on, or "all"; write e.g. ',
    ),
    "root twice": (f'{LEAST}roots = [0, "0"]', 'sweep[0].roots[1]: got "0", expected each value once; remove it'),
    "unknown placement": (
        f'{LEAST}placements = ["in-place"]',
        'sweep[0].placements[0]: got "in-place", expected one of default, out_of_place, in_place; '
        "did you mean in_place?",
    ),
    "unknown caller": (f'{LEAST}callers = ["c"]', 'sweep[0].callers[0]: got "c", expected one of compiled, python; '),
    "unknown call": (
        f'{LEAST}calls = ["non-blocking"]',
        'sweep[0].calls[0]: got "non-blocking", expected one of blocking, nonblocking, persistent; '
        "did you mean nonblocking?",
    ),
    "unknown sync": (
        f'{LEAST}syncs = ["none"]',
        'sweep[0].syncs[0]: got "none", expected one of library, dissemination, clock; ',
    ),
    "unknown buffer": (
        f'{LEAST}buffer = ["pinned"]',
        'sweep[0].buffer[0]: got "pinned", expected one of plain, registered, symmetric; ',
    ),
    "too many buffers": (
        f"{LEAST}buffers = [1025]",
        "sweep[0].buffers[0]: got 1025, expected a whole number from 1 to 1024; write e.g. buffers = [1]",
    ),
    "unknown pages": (f'{LEAST}pages = ["2M"]', 'sweep[0].pages[0]: got "2M", expected one of default, small, huge; '),
    "unknown topology": (
        f'{LEAST}topologies = ["first:0"]',
        'sweep[0].topologies[0]: got "first:0", expected one of world, host, two_hosts, rail, pairs, bisection, '
        "first:N, first:doubling, every:K with numbers N and K from 1, or groups of ranks such as 0-3;4-7; "
        'host, rail, pairs and bisection also with :alone after them; write e.g. topologies = ["world"]',
    ),
    "pattern without its collective": (
        f'{LEAST}patterns = ["linear"]',
        'sweep[0].patterns: got ["linear"], expected none without all_to_all_v among the collectives; remove patterns',
    ),
    "matrix without its collective": (
        f"{LEAST}matrix = [[1]]",
        "sweep[0].matrix: got a list, expected none without all_to_all_v among the collectives; remove matrix",
    ),
    "infinite weight": (
        f"{LEAST}matrix = [[1, inf]]",
        "sweep[0].matrix[0][1]: got inf, expected a weight from 0 to 1e+100; write e.g. matrix = [[0, 1], [1, 0]]",
    ),
    "weight that overflows": (
        LEAST.replace("all_reduce", "all_to_all_v") + "matrix = [[1e308]]",
        "sweep[0].matrix[0][0]: got 1e+308, expected a weight from 0 to 1e+100; write e.g. matrix = ",
    ),
    "matrix is a text": (
        LEAST.replace("all_reduce", "all_to_all_v") + 'matrix = "x"',
        'sweep[0].matrix: got "x", expected a list; write e.g. matrix = [[0, 1], [1, 0]]',
    ),
    "scalar that is wrong itself": (
        f"{LEAST}buffers = 0",
        "sweep[0].buffers: got 0, expected a list; write e.g. buffers = [1]",
    ),
    "scalar root": (f"{LEAST}roots = 1", "sweep[0].roots: got 1, expected a list; write roots = [1]"),
    "misspelt and so missing": (
        LEAST.replace("collectives", "colectives"),
        "sweep[0].colectives: got an unknown key, expected one of kind, backends, ",
    ),
    "misspelt schema": (
        LEAST.replace("schema", "schma"),
        "schma: got an unknown key, expected one of schema, title, measure, sweep, variant, expect; did you mean",
    ),
}
