"""What is put into ranks so that a fault strikes at the same place each time: a sitecustomize.py, and its parts."""

ONCE_IMPORTED = """
class Finder:
    def find_spec(self, name, path, target=None):
        if name != "%(module)s":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module
        def exec_module(module):
            execute(module)
            changed(module)
        spec.loader.exec_module = exec_module
        return spec

# Another file of this name may execute this one again: what is to happen once must not happen twice.
there = any(type(one).__name__ == "Finder" for one in sys.meta_path)
if not there and int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK", "-1"))) in %(ranks)r:
    sys.meta_path.insert(0, Finder())

# This file stands before another of its name, perhaps: let that one do its work too.
import importlib.machinery
others = [folder for folder in sys.path if folder != str(Path(__file__).parent)]
if spec := importlib.machinery.PathFinder.find_spec("sitecustomize", others):
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
"""
"""The end of a sitecustomize.py: `changed(module)`, defined before it, gets %(module)s once imported, in %(ranks)r."""

INJECTION = (
    """\
import ctypes, importlib.util, os, signal, subprocess, sys, threading, time
from pathlib import Path

RANK = int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK", "-1")))

def send(number, *names):
    # To the topmost process above this rank that is one of these.
    found, process = None, os.getppid()
    while process > 1:
        words = Path(f"/proc/{process}/cmdline").read_text().split("\\0")
        if any(word.rpartition("/")[2] in names for word in words[:4]):
            found = process
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(found, number)

def strike():
    Path(os.environ["STRUCK"]).write_text(str(time.time()))
    %(strike)s

case = 0
def now():
    # Once, in the case of this number.
    global case
    if case != %(number)d:
        return False
    case = 1000
    return True

def count(module):
    before = module.Runner.case
    def _case(*arguments):
        global case
        case += 1
        return before(*arguments)
    module.Runner.case = _case

def patch(module):
    %(patch)s

def changed(module):
    if module.__name__ == "collbench.runner":
        count(module)
    patch(module)
"""
    + ONCE_IMPORTED
)

PATCHES = {
    "prepare": """
    before = module.Check.prepare_all
    def prepare_all(self, buffers):
        if now():
            strike()
        before(self, buffers)
    module.Check.prepare_all = prepare_all""",
    "sample": """
    before = module.sample
    def sample(*arguments, **options):
        if now():
            threading.Timer(0.02, strike).start()
        return before(*arguments, **options)
    module.sample = sample""",
    "delay": """
    before = module.sample
    def sample(*arguments, **options):
        if now():
            strike()
            time.sleep(2)
        return before(*arguments, **options)
    module.sample = sample""",
    "call": """
    before = module.sample
    def sample(bound, *arguments, **options):
        if now():
            steps = bound.steps
            bound.steps = type(steps)(steps.meet, lambda k: strike() if k == 1 else steps.run(k), steps.finish)
        return before(bound, *arguments, **options)
    module.sample = sample""",
    "verify": """
    before = module.check_case
    def check_case(*arguments, **options):
        if now():
            strike()
        return before(*arguments, **options)
    module.check_case = check_case""",
    "plan": """
    before = module.Runner.run
    class Other:
        digest, cases = "another", ()
    module.Runner.run = lambda self, plan: before(self, Other())""",
    "start": """
    module.START_TIMEOUT_S = 3.0
    if RANK == 1:
        strike()""",
}

LOOP = "while True: pass"
FILL = """
    with open(os.environ["RESULTS"] + "/fill", "wb", buffering=0) as file:
        try:
            while file.write(bytes(512)):
                pass
        except OSError:
            pass"""
