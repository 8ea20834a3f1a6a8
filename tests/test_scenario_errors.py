import datetime
import math
import re
import tomllib
from copy import deepcopy
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import collbench.collectives
from collbench import scenario, scenario_model
from collbench.dtypes import DTYPES
from collbench.errors import ScenarioError
from collbench.scenario_model import MOST_PROBLEMS
from collbench.scenario_tables import MOST_SIZES
from collbench.units import format_size, parse_size

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

ONE_SENTENCE = re.compile(r"x\.toml: (line \d+, (column \d+|at the end)|[a-z]\S+): got .+, expected .+; .+")


def sized(sizes: str) -> str:
    return f"{HEAD}{SWEEP}sizes = {sizes}"


def measured(settings: str) -> str:
    return f"{LEAST}[measure]\n{settings}"


def range_by(rest: str) -> str:
    return sized(f'{{ from = "8 B", to = "1 MiB", {rest} }}')


WRONG = {
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
        'sweep[0].kind: got "kernels", expected one of collective, kernel, ladder; did you mean kernel?',
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
    # sizes
    "no sizes": (f"{HEAD}{SWEEP}", f"sweep[0].sizes: got nothing, expected sizes for all_reduce; {SIZES_EXAMPLE}"),
    "scalar size": (sized('"8 B"'), 'sweep[0].sizes: got "8 B", expected a list or a table; write sizes = ["8 B"]'),
    "size is a number": (sized("8"), f"sweep[0].sizes: got 8, expected a list or a table; {SIZES_EXAMPLE}"),
    "sizes are a text": (sized('""'), f'sweep[0].sizes: got "", expected a list or a table; {SIZES_EXAMPLE}'),
    "size twice": (sized('["1 KiB", "8 B", "1024 B"]'), 'sweep[0].sizes[2]: got "1024 B", expected each value once; '),
    "empty sizes": (sized("[]"), f"sweep[0].sizes: got [], expected at least one value; {SIZES_EXAMPLE}"),
    "size without unit": (
        sized('["8 B", 16]'),
        'sweep[0].sizes[1]: got 16, expected a size as text with its unit; write "16 B"',
    ),
    "size of wrong unit": (
        sized('["64M"]'),
        f'sweep[0].sizes[0]: got "64M", expected {SIZE_WORDS}; write "64 MB" or "64 MiB"',
    ),
    "half a byte": (
        sized('["0.5 B"]'),
        'sweep[0].sizes[0]: got "0.5 B", expected a whole number of bytes; write e.g. "1 B"',
    ),
    "size beyond memory": (
        sized('["1048577 GiB"]'),
        f'sweep[0].sizes[0]: got "1048577 GiB", expected a size from 0 B to 1024 TiB; {SIZES_EXAMPLE}',
    ),
    "size in a list": (
        sized('[["8 B"]]'),
        'sweep[0].sizes[0]: got ["8 B"], expected a size as text with its unit; write e.g. ',
    ),
    "factor below 1": (
        range_by("factor = 0.5"),
        "sweep[0].sizes.factor: got 0.5, expected a number above 1; write e.g. factor = 2",
    ),
    "factor beyond numbers": (
        range_by("factor = 1e301"),
        "sweep[0].sizes.factor: got 1e+301, expected a number above 1, at most 1e+300; write e.g. factor = 2",
    ),
    "misspelt factor": (
        range_by("facter = 2"),
        "sweep[0].sizes.facter: got an unknown key, expected one of from, to, factor, step; did you mean factor?",
    ),
    "misspelt step": (
        range_by('stepp = "8 B"'),
        "sweep[0].sizes.stepp: got an unknown key, expected one of from, to, factor, step; did you mean step?",
    ),
    "misspelt from": (
        sized('{ form = "8 B", to = "1 MiB", factor = 2 }'),
        "sweep[0].sizes.form: got an unknown key, expected one of from, to, factor, step; did you mean from?",
    ),
    "factor 1": (
        range_by("factor = 1"),
        "sweep[0].sizes.factor: got 1, expected a number above 1; write e.g. factor = 2",
    ),
    "factor nan": (
        range_by("factor = nan"),
        "sweep[0].sizes.factor: got nan, expected a number above 1; write e.g. factor = 2",
    ),
    "factor text": (
        range_by('factor = "2"'),
        'sweep[0].sizes.factor: got "2", expected a number above 1; write e.g. factor = 2',
    ),
    "factor too small": (
        range_by("factor = 1.0001"),
        f"sweep[0].sizes.factor: got 1.0001, expected a factor that gives at most {MOST_SIZES} sizes; raise it",
    ),
    "factor and step": (
        range_by('factor = 2, step = "8 B"'),
        "sweep[0].sizes.step: got factor and step, expected one of them; remove the other",
    ),
    "neither factor nor step": (
        sized('{ from = "8 B", to = "1 MiB" }'),
        "sweep[0].sizes.factor: got nothing, expected factor or step; write e.g. factor = 2",
    ),
    "unknown key of a range": (
        range_by('factor = 2, until = "8 B"'),
        "sweep[0].sizes.until: got an unknown key, expected one of from, to, factor, step; remove it",
    ),
    "unknown key of a range by step": (
        range_by('step = "1 MiB", too = "8 B"'),
        "sweep[0].sizes.too: got an unknown key, expected one of from, to, step; did you mean to?",
    ),
    "no end": (
        sized('{ from = "8 B", factor = 2 }'),
        'sweep[0].sizes.to: got nothing, expected a value; write e.g. to = "64 MiB"',
    ),
    "step 0": (
        range_by('step = "0 B"'),
        'sweep[0].sizes.step: got "0 B", expected a size from 1 B to 1024 TiB; write e.g. step = "4 KiB"',
    ),
    "step as number": (
        range_by("step = 8"),
        'sweep[0].sizes.step: got 8, expected a size as text with its unit; write "8 B"',
    ),
    "step too small": (
        range_by('step = "8 B"'),
        f'sweep[0].sizes.step: got "8 B", expected a step that gives at most {MOST_SIZES} sizes; raise it',
    ),
    "from above to": (
        sized('{ from = "2 MiB", to = "1 MiB", factor = 2 }'),
        'sweep[0].sizes.from: got "2 MiB", expected at most to (1 MiB); exchange from and to',
    ),
    "factor from 0": (
        sized('{ from = "0 B", to = "1 MiB", factor = 2 }'),
        'sweep[0].sizes.from: got "0 B", expected at least 1 B, since no factor leads away from 0 B; '
        'start at "1 B" and write sizes = ["0 B"] in a [[sweep]] of its own',
    ),
    "too many sizes": (
        sized(str(["8 B"] * (MOST_SIZES + 1))),
        f"sweep[0].sizes: got {MOST_SIZES + 1} values, expected at most {MOST_SIZES}; write fewer",
    ),
    # rules
    "rule is one table": (
        f'{LEAST}exclude = {{ dtype = "int8" }}',
        "sweep[0].exclude: got a table, expected a list; "
        'write e.g. exclude = [{ dtype = "int8", least_size = "1 MiB" }]',
    ),
    "rule is a text": (
        f'{LEAST}include = ["int8"]',
        'sweep[0].include[0]: got "int8", expected a table; write e.g. include = [{ dtype = "float32" }]',
    ),
    "empty rule": (
        f"{LEAST}exclude = [{{}}]",
        "sweep[0].exclude[0]: got a table, expected at least one key, since a rule without any fits every point; "
        'write e.g. dtype = "int8"',
    ),
    "plural key of a rule": (
        f'{LEAST}exclude = [{{ dtypes = "int8" }}]',
        f"sweep[0].exclude[0].dtypes: got an unknown key, expected one of {RULE_KEYS}; did you mean dtype?",
    ),
    "unknown value of a rule": (
        f'{LEAST}exclude = [{{ operation = "summ" }}]',
        'sweep[0].exclude[0].operation: got "summ", expected one of sum, prod, min, max, avg; did you mean sum?',
    ),
    "unknown value in a rule's list": (
        f'{LEAST}exclude = [{{ operation = ["sum", 3] }}]',
        "sweep[0].exclude[0].operation[1]: got 3, expected one of sum, prod, min, max, avg; write one that fits",
    ),
    "rule for what a default stands for": (
        f'{LEAST}exclude = [{{ placement = "default" }}]',
        'sweep[0].exclude[0].placement: got "default", expected one of out_of_place, in_place; write one that fits',
    ),
    "rule for all roots": (
        f'{LEAST}exclude = [{{ root = "all" }}]',
        'sweep[0].exclude[0].root: got "all", expected a rank number from 0 on; '
        "a case has one root: name each, as in root = [0, 1]",
    ),
    "rule for no root": (
        f"{LEAST}exclude = [{{ root = [-1] }}]",
        "sweep[0].exclude[0].root[0]: got -1, expected a rank number from 0 on; write e.g. root = 0",
    ),
    "rule's empty list": (
        f"{LEAST}exclude = [{{ dtype = [] }}]",
        "sweep[0].exclude[0].dtype: got [], expected at least one value; leave dtype out",
    ),
    "rule's table": (
        f"{LEAST}exclude = [{{ dtype = {{}} }}]",
        "sweep[0].exclude[0].dtype: got a table, expected a list; write one that fits",
    ),
    "rule's sizes exchanged": (
        f'{LEAST}exclude = [{{ least_size = "2 B", most_size = "1 B" }}]',
        'sweep[0].exclude[0].least_size: got "2 B", expected at most most_size (1 B); exchange the two',
    ),
    # [[variant]] and [expect]
    "variant is one table": (
        f'{LEAST}[variant]\nname = "a"',
        "variant: got a table, expected a list of tables; write [[variant]] in place of [variant]",
    ),
    "variant without name": (
        f"{LEAST}[[variant]]",
        'variant[0].name: got nothing, expected a value; write e.g. name = "ring"',
    ),
    "variant's name has a space": (
        f'{LEAST}[[variant]]\nname = "a b"',
        'variant[0].name: got "a b", expected at most 64 letters, digits, and any of _ . -; write e.g. name = "ring"',
    ),
    "variants of one name": (
        f'{LEAST}[[variant]]\nname = "a"\n[[variant]]\nname = "a"',
        'variant[1].name: got "a", expected a name of its own; rename it',
    ),
    "setting is a number": (
        f'{LEAST}[[variant]]\nname = "a"\nenv = {{ NCCL_NTHREADS = 64 }}',
        "variant[0].env.NCCL_NTHREADS: got 64, expected a text; put it in quotes",
    ),
    "setting of two lines": (
        f'{LEAST}[[variant]]\nname = "a"\nenv = {{ A = "a\\u0000b" }}',
        'variant[0].env.A: got "a\\u0000b", expected printable text on one line; remove the rest',
    ),
    "setting's name": (
        f'{LEAST}[[variant]]\nname = "a"\nenv = {{ "A=B" = "1" }}',
        'variant[0].env."A=B": got this name, expected names of letters, digits and _; rename it',
    ),
    "settings as text": (
        f'{LEAST}[[variant]]\nname = "a"\nenv = "A=1"',
        'variant[0].env: got "A=1", expected a table; write e.g. env = { NCCL_ALGO = "Ring" }',
    ),
    "transport is a list": (
        f'{LEAST}[expect]\ntransport = ["rdma"]',
        'expect.transport: got ["rdma"], expected a word such as rdma or tcp; write e.g. transport = "rdma"',
    ),
    "unknown expectation": (
        f"{LEAST}[expect]\nbusbw = 3",
        "expect.busbw: got an unknown key, expected one of transport; remove it",
    ),
    # no TOML
    "no quotes": (
        "schema = 1\ntitle = quick",
        "line 2, column 9: got text that is not TOML (invalid value), expected a TOML document; correct this line",
    ),
    "unclosed list": (
        "a = [1,\n",
        "line 1, at the end: got text that is not TOML (invalid value), expected a TOML document; ",
    ),
    "key twice": (
        "a = 1\na = 2\n",
        "line 2, column 6: got text that is not TOML (cannot overwrite a value), expected a TOML",
    ),
}


@pytest.mark.parametrize(("text", "sentence"), WRONG.values(), ids=WRONG)
def test_a_wrong_file_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ScenarioError) as raised:
        scenario.parse(text, name="x")
    assert str(raised.value).startswith("x.toml: ")
    assert sentence in str(raised.value)
    assert ONE_SENTENCE.fullmatch(str(raised.value)), str(raised.value)
    assert not re.search("pydantic|https?:|validation error|\n", str(raised.value))


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (
            "matrix = [[1, 2], [3]]",
            "matrix[1]: got 1 weights, expected as many as there are rows (2); write e.g. matrix =",
        ),
        (
            "matrix = [[0]]",
            "matrix: got a list, expected at least one weight above 0; write e.g. matrix = [[0, 1], [1, 0]]",
        ),
        ("matrix = []", "matrix: got [], expected at least one value; write e.g. matrix = [[0, 1], [1, 0]]"),
        ("matrix = [1]", "matrix[0]: got 1, expected a list; write e.g. matrix = [[0, 1], [1, 0]]"),
        (
            'matrix = [[1]]\npatterns = ["uniform"]',
            'patterns: got ["uniform"], expected a matrix or patterns, not both; remove one of them',
        ),
    ],
)
def test_wrong_weights(monkeypatch: pytest.MonkeyPatch, more: str, sentence: str) -> None:
    monkeypatch.setattr(collbench.collectives, "names", lambda: ("all_to_all_v",))
    with pytest.raises(ScenarioError) as raised:
        scenario.parse(LEAST.replace("all_reduce", "all_to_all_v") + more, name="x")
    assert str(raised.value).startswith(f"x.toml: sweep[0].{sentence}")


def test_each_problem_has_a_line() -> None:
    text = measured('precision = 0\nseed = 0.5\n[[variant]]\nname = "a b"')
    with pytest.raises(ScenarioError) as raised:
        scenario.parse(text, name="x")
    fields = [line.split(": ")[1] for line in str(raised.value).splitlines()]
    assert fields == ["measure.precision", "measure.seed", "variant[0].name"]


def test_no_more_than_five_problems_are_told() -> None:
    with pytest.raises(ScenarioError) as raised:
        scenario.parse(sized("[1, 2, 3, 4, 5, 6, 7]"), name="x")
    assert len(str(raised.value).splitlines()) == MOST_PROBLEMS == 5


def test_of_another_version_nothing_else_is_told() -> None:
    with pytest.raises(ScenarioError) as raised:
        scenario.parse("schema = 2\nother = 3", name="x")
    assert str(raised.value).startswith("x.toml: schema: got 2, ")
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (f"a = {'[' * 5000}", "x.toml: got lists nested too deeply, expected a TOML scenario; flatten them"),
        (f"a = {'1' * 5000}", "x.toml: got a number that is too long, expected a TOML scenario; shorten it"),
    ],
)
def test_what_tomllib_cannot_hold(text: str, sentence: str) -> None:
    with pytest.raises(ScenarioError) as raised:
        scenario.parse(text, name="x")
    assert str(raised.value) == sentence


def refusal(name_or_path: str | Path) -> str:
    with pytest.raises(ScenarioError) as raised:
        scenario.load(name_or_path)
    assert len(str(raised.value).splitlines()) == 1
    return str(raised.value)


def test_an_unknown_scenario_names_the_nearest_and_lists_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = ", ".join(name for name, _ in scenario.shipped())
    expected = f"expected a file or one of the shipped scenarios {names}"
    for near in ("quickstrt", "quickstart.toml", "some/where/quick-start.toml"):
        assert refusal(near) == f'scenario: got "{near}", {expected}; did you mean quickstart?'
    for far in ("zzz", "a\nb"):
        assert refusal(far).endswith(f"{expected}; write one of them or a file's path")


def test_a_folder_is_no_scenario(tmp_path: Path) -> None:
    assert refusal(tmp_path) == f'scenario: got "{tmp_path}", a directory, expected a TOML file; name a file in it'
    assert "a directory" in refusal("")


@pytest.mark.parametrize("path", ["x" * 5000, "a\0b"])
def test_an_impossible_path_is_a_sentence(path: str) -> None:
    assert re.match("scenario: got .+, expected .+; .+", refusal(path))


def test_an_unreadable_file_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.toml"
    path.write_text(LEAST)

    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert refusal(path) == f"{path}: got no text (Permission denied), expected a readable file; check the file"


def test_a_file_that_is_not_utf8_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(b'# a\ntitle = "\xff"\n')
    got = "got bytes that are not UTF-8 in line 2"
    assert refusal(path) == f"{path}: {got}, expected a TOML file in UTF-8; save it as UTF-8"


def test_a_file_name_is_text(tmp_path: Path) -> None:
    path = tmp_path / "a\nb.toml"
    path.write_text(LEAST)
    assert 'file name: got "a\\nb", expected printable text; rename the file' in refusal(path)


def test_messages_name_the_file_as_it_was_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text("schema = 1")
    assert refusal("mine.toml").startswith("mine.toml: sweep: ")
    assert refusal(tmp_path / "mine.toml").startswith(f"{tmp_path}/mine.toml: sweep: ")


SIZES = st.integers(1, 10**6)


@given(SIZES, SIZES, st.floats(1.01, 100) | st.integers(2, 100))
def test_sizes_by_factor_are_the_exact_powers(first: int, last: int, factor: float) -> None:
    text = sized(f'{{ from = "{first} B", to = "{last} B", factor = {factor!r} }}')
    if first > last:
        with pytest.raises(ScenarioError, match="exchange from and to"):
            scenario.parse(text, name="x")
        return
    found = scenario.parse(text, name="x").sweeps[0].sizes
    exact, expected = Fraction(first), []
    while math.floor(exact + Fraction(1, 2)) <= last:
        expected.append(math.floor(exact + Fraction(1, 2)))
        exact *= Fraction(repr(factor))
    assert found == tuple(dict.fromkeys(expected))


@given(SIZES, SIZES, SIZES)
def test_sizes_by_step_are_a_range(first: int, last: int, step: int) -> None:
    expected = tuple(range(first, last + 1, step))
    text = sized(f'{{ from = "{format_size(first)}", to = "{format_size(last)}", step = "{format_size(step)}" }}')
    if 0 < len(expected) <= MOST_SIZES:
        assert scenario.parse(text, name="x").sweeps[0].sizes == expected
    else:
        with pytest.raises(ScenarioError, match=r"exchange from and to|raise it"):
            scenario.parse(text, name="x")


@given(st.lists(st.integers(0, 2**50), min_size=1, max_size=20, unique=True).map(lambda all: [*map(format_size, all)]))
def test_listed_sizes_arrive(sizes: list[str]) -> None:
    found = scenario.parse(sized(str(sizes)), name="x").sweeps[0].sizes
    assert found == tuple(map(parse_size, sizes))


FULL = tomllib.loads(
    LEAST
    + 'backends = ["mpi"]\nroots = [0]\nbuffers = [1]\ntopologies = ["world"]\nmatrix = [[1]]\npatterns = ["uniform"]\n'
    + 'include = [{ dtype = ["int8"], root = "0" }]\nexclude = [{ least_size = "1 B", most_size = "2 B" }]\n'
    + '[[sweep]]\ncollectives = ["barrier"]\nsizes = { from = "1 B", to = "8 B", factor = 2 }\n'
    + '[[sweep]]\ncollectives = ["barrier"]\nsizes = { from = "1 B", to = "8 B", step = "1 B" }\n'
    + '[measure]\nmodes = ["latency"]\nprecision = 0.1\ntime_budget = "1 s"\nseed = 3\nverify = true\n'
    + '[[variant]]\nname = "a"\nenv = { A = "1" }\n[expect]\ntransport = "rdma"'
)
KEYS = st.sampled_from(sorted({key for keys in scenario_model._KEYS.values() for key in keys})) | st.text(max_size=10)
SCALARS = (
    st.booleans()
    | st.integers()
    | st.integers(-(10**400), 10**400)
    | st.floats()
    | st.text(max_size=10)
    | st.sampled_from(["8 B", "3 s", "world", "first:2", "all", "all_reduce", "int8", "<list>", "<factor>", "[key]"])
    | st.just(datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC))
    | st.just(datetime.time(1))
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return every container and index within a document."""
    inner = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    return [(value, key) for key, _ in inner] + [place for _, item in inner for place in places(item)]


def check_only_scenario_errors(document: dict[str, Any]) -> None:
    try:
        found = scenario_model.build(document, name="x", where="x.toml")
    except ScenarioError as error:
        lines = str(error).splitlines()
        assert 1 <= len(lines) <= MOST_PROBLEMS
        for line in lines:
            assert re.match(r"x\.toml: \S.*: got .+, expected .+; .+", line), line
            assert not re.search("pydantic|https?:", line)
    else:
        assert hash(found) is not None
        assert all(type(size) is int for sweep in found.sweeps for size in sweep.sizes)


@given(st.dictionaries(KEYS, VALUES, max_size=5))
def test_any_document_is_a_scenario_or_a_scenario_error(document: dict[str, Any]) -> None:
    check_only_scenario_errors(document)


@settings(max_examples=400)
@given(st.data())
def test_any_change_of_a_document_is_a_scenario_or_a_scenario_error(data: st.DataObject) -> None:
    document = deepcopy(FULL)
    for _ in range(data.draw(st.integers(1, 3))):
        container, key = data.draw(st.sampled_from(places(document)))
        if isinstance(container, dict) and data.draw(st.booleans()):
            container[data.draw(KEYS)] = data.draw(VALUES)
        else:
            container[key] = data.draw(VALUES)
    check_only_scenario_errors(document)
