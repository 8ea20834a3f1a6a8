"""Wrong scenario files, and the sentence that each must give: sizes, rules, variants, expectations, TOML itself."""

from collbench.scenario_tables import MOST_SIZES
from wrong_files import HEAD, LEAST, RULE_KEYS, SIZE_WORDS, SIZES_EXAMPLE, SWEEP, range_by, sized

WRONG_SIZES = {
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
