"""Wrong scenario files, and the sentence that each must give: the frame of a file, and how it measures."""

from collbench import scenario

COLLECTIVES = ", ".join(scenario.known()["collective"])
BACKENDS = ", ".join(scenario.known()["backend"])
SIZE_WORDS = "a size: a number and one of B, kB, MB, GB, TB, KiB, MiB, GiB, TiB"
DURATION_WORDS = "a duration: a number and one of ns, us, ms, s, min, h"
SIZES_EXAMPLE = 'write e.g. sizes = { from = "8 B", to = "64 MiB", factor = 2 }'
RULE_KEYS = (
    "backend, collective, dtype, operation, root, placement, caller, call, mode, sync, buffer, topology, "
    "kernel, way, neighbour, buffers, pages, pattern, least_size, most_size"
)

HEAD = "schema = 1\n"
SWEEP = '[[sweep]]\ncollectives = ["all_reduce"]\n'
LEAST = f'{HEAD}{SWEEP}sizes = ["8 B"]\n'


def sized(sizes: str) -> str:
    return f"{HEAD}{SWEEP}sizes = {sizes}"


def measured(settings: str) -> str:
    return f"{LEAST}[measure]\n{settings}"


def range_by(rest: str) -> str:
    return sized(f'{{ from = "8 B", to = "1 MiB", {rest} }}')


WRONG_SETTINGS = {
    # the file's frame
    "no schema": (f'{SWEEP}sizes = ["8 B"]', "schema: got nothing, expected the whole number 1; write schema = 1"),
    "schema 1.0": (
        LEAST.replace("= 1", "= 1.0", 1),
        "schema: got 1.0, expected the whole number 1, the schema that collbench ",
    ),
    "schema true": (
        LEAST.replace("= 1", "= true", 1),
        "schema: got true, expected the whole number 1, the schema that",
    ),
    "schema text": (LEAST.replace("= 1", '= "1"', 1), 'schema: got "1", expected the whole number 1, the schema that'),
    "schema 2": (
        LEAST.replace("= 1", "= 2", 1),
        "schema: got 2, expected the whole number 1, the schema that collbench ",
    ),
    "unknown table": (
        f"{LEAST}[mesure]",
        "mesure: got an unknown key, expected one of schema, title, measure, sweep, variant, expect; "
        "did you mean measure?",
    ),
    "odd key": (
        f'{LEAST}"a\\nb" = 1'.replace("[[sweep]]", "[[sweep]]"),
        'sweep[0]."a\\nb": got an unknown key, expected one of kind, backends, ',
    ),
    "empty title": (
        f'title = ""\n{LEAST}',
        'title: got "", expected one line of at most 200 characters; write e.g. title = ',
    ),
    "title of two lines": (
        f'title = "a\\nb"\n{LEAST}',
        'title: got "a\\nb", expected one line of at most 200 characters; ',
    ),
    "title with a tab": (
        f'title = "a\\tb"\n{LEAST}',
        'title: got "a\\tb", expected one line of at most 200 characters; ',
    ),
    "title is a number": (
        f"title = 3\n{LEAST}",
        "title: got 3, expected one line of at most 200 characters; put it in quotes",
    ),
    # [measure]
    "measure is a number": (f"measure = 3\n{LEAST}", "measure: got 3, expected a table; write [measure]"),
    "measure is a list": (f"{LEAST}[[measure]]", "measure: got a list, expected a table; write [measure]"),
    "unknown setting": (
        measured('time_budjet = "3 s"'),
        "measure.time_budjet: got an unknown key, expected one of modes, precision, time_budget, least_time, "
        "least_iterations, most_iterations, warmup_time, timeout, verify, samples, ranks_per_device, order, seed, "
        "link_rate; "
        "did you mean time_budget?",
    ),
    "unknown setting near to none": (
        measured("xyz = 1"),
        "timeout, verify, samples, ranks_per_device, order, seed, link_rate; remove it",
    ),
    "scalar mode": (
        measured('modes = "latency"'),
        'measure.modes: got "latency", expected a list; write modes = ["latency"]',
    ),
    "no mode": (
        measured("modes = []"),
        'measure.modes: got [], expected at least one value; write e.g. modes = ["latency"]',
    ),
    "unknown mode": (
        measured('modes = ["Through put"]'),
        'measure.modes[0]: got "Through put", expected one of latency, throughput, graph; did you mean throughput?',
    ),
    "mode twice": (
        measured('modes = ["latency", "latency"]'),
        'measure.modes[1]: got "latency", expected each value once; remove it',
    ),
    "precision 0": (
        measured("precision = 0"),
        "measure.precision: got 0, expected a number above 0, at most 1; write e.g. precision = 0.02",
    ),
    "precision 2": (measured("precision = 2"), "measure.precision: got 2, expected a number above 0, at most 1; "),
    "precision nan": (
        measured("precision = nan"),
        "measure.precision: got nan, expected a number above 0, at most 1; ",
    ),
    "precision inf": (
        measured("precision = inf"),
        "measure.precision: got inf, expected a number above 0, at most 1; ",
    ),
    "precision true": (
        measured("precision = true"),
        "measure.precision: got true, expected a number above 0, at most 1; ",
    ),
    "precision text": (
        measured('precision = "2 %"'),
        'measure.precision: got "2 %", expected a number above 0, at most 1; ',
    ),
    "budget without unit": (
        measured("time_budget = 3"),
        'measure.time_budget: got 3, expected a duration as text with its unit; write "3 s"',
    ),
    "budget nan": (
        measured("time_budget = nan"),
        'measure.time_budget: got nan, expected a duration as text with its unit; write e.g. "3 s"',
    ),
    "budget of wrong unit": (
        measured('time_budget = "3 sec"'),
        f'measure.time_budget: got "3 sec", expected {DURATION_WORDS}; write "3 s"',
    ),
    "budget 0": (
        measured('time_budget = "0 s"'),
        'measure.time_budget: got "0 s", expected a duration above 0 s, at most 60 min; write e.g. time_budget = "1 s"',
    ),
    "budget of a day": (
        measured('time_budget = "24 h"'),
        'measure.time_budget: got "24 h", expected a duration above 0 s, at most 60 min; '
        'write e.g. time_budget = "1 s"',
    ),
    "warm-up too long": (
        measured('warmup_time = "2 h"'),
        'measure.warmup_time: got "2 h", expected a duration from 0 s, at most 60 min; '
        'write e.g. warmup_time = "500 ms"',
    ),
    "least time over budget": (
        measured('least_time = "2 s"'),
        'measure.least_time: got "2 s", expected at most time_budget (1 s); lower it or raise time_budget',
    ),
    "least over most iterations": (
        measured("least_iterations = 30\nmost_iterations = 20"),
        "measure.least_iterations: got 30, expected at most most_iterations (20); lower it or raise most_iterations",
    ),
    "no iteration": (
        measured("least_iterations = 0"),
        "measure.least_iterations: got 0, expected a whole number from 1 to 1000000000; "
        "write e.g. least_iterations = 20",
    ),
    "iterations as float": (
        measured("most_iterations = 1e3"),
        "measure.most_iterations: got 1000.0, expected a whole number from 1 to 1000000000; "
        "write e.g. most_iterations = 100000",
    ),
    "timeout within the budget": (
        measured('timeout = "5 s"\ntime_budget = "5 s"'),
        'measure.timeout: got "5 s", expected more than warmup_time and time_budget together (5.5 s); '
        'write e.g. timeout = "11 s"',
    ),
    "budget beyond the usual timeout": (
        measured('time_budget = "2 min"'),
        'measure.timeout: got "60 s", expected more than warmup_time and time_budget together (2.01 min); '
        'write e.g. timeout = "4.02 min"',
    ),
    "verify 1": (measured("verify = 1"), "measure.verify: got 1, expected true or false; write e.g. verify = true"),
    "samples text": (
        measured('samples = "no"'),
        'measure.samples: got "no", expected true or false; write e.g. samples = false',
    ),
    "unknown order": (
        measured('order = "shuffled"'),
        'measure.order: got "shuffled", expected one of auto, listed, random; write e.g. order = "auto"',
    ),
    "misspelt transport": (
        f'{LEAST}[expect]\ntransport = "rdam"',
        'expect.transport: got "rdam", expected words of nvls, p2p, shm, rdma, ib, gdr, socket, tcp, collnet, or such '
        'as rdma:mlx5_0, tcp:eth0, net/ib; write e.g. transport = "rdma"',
    ),
    "rate of a link in bytes": (
        measured('link_rate = "25 GB/s"'),
        'measure.link_rate: got "25 GB/s", expected a link\'s rate: a number and one of bit/s, '
        "kbit/s, Mbit/s, Gbit/s, Tbit/s",
    ),
    "rate of a link as a number": (
        measured("link_rate = 25"),
        'measure.link_rate: got 25, expected a link\'s rate as text with its unit; write "25 Gbit/s"',
    ),
    "no rate at all": (
        measured('link_rate = "0 Gbit/s"'),
        'measure.link_rate: got "0 Gbit/s", expected a rate above 0',
    ),
    "negative seed": (
        measured("seed = -1"),
        "measure.seed: got -1, expected a whole number from 0 to 9223372036854775807; write e.g. seed = 0",
    ),
    "endless seed": (
        measured(f"seed = 0x{'f' * 5000}"),
        "measure.seed: got a very long number, expected a whole number from",
    ),
}
