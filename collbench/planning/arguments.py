"""The options of `collbench forecast`: declared here, read by `planning.forecast`."""

import argparse
import math
from collections.abc import Callable
from pathlib import Path


def add(parser: argparse.ArgumentParser, positive: Callable[[str], int]) -> None:
    """Declare the options; `positive` reads a whole number above 0."""

    def counts(text: str) -> tuple[int, ...]:
        return tuple(dict.fromkeys(positive(part.strip()) for part in text.split(",")))

    def share(text: str) -> float:
        try:
            value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            value = -1.0
        if 1 < value < math.inf and not text.endswith("%"):
            raise argparse.ArgumentTypeError(f"got {text}, expected a share; write {text}% or {value:.0%}")
        if not 0 <= value < 10:
            raise argparse.ArgumentTypeError(f"got {text}, expected a share such as 20% or 0.2")
        return value

    parser.add_argument(
        "results", type=Path, nargs="*", metavar="RESULTS", help="run folders, or their results.csv: what was measured"
    )
    times = parser.add_argument_group("times of one operation, fitted to RESULTS")
    times.add_argument(
        "--at", action="extend", nargs="+", default=[], metavar="SIZE", help='forecast these sizes, e.g. "16 MiB"'
    )
    times.add_argument(
        "--ranks", action="extend", nargs="+", type=positive, default=[], help="on so many ranks (default: as measured)"
    )
    times.add_argument(
        "--collective", action="extend", nargs="+", default=[], metavar="NAME", help="only these collectives"
    )
    times.add_argument("--extrapolate", action="store_true", help="answer beyond what was measured too, less surely")
    step = parser.add_argument_group("a training step, on RESULTS or a fabric that is described")
    step.add_argument("--workload", default="", metavar="W", help="a workload file, or the name of a shipped one")
    step.add_argument("--fabric", type=Path, metavar="FILE", help="a fabric that is described, not measured")
    step.add_argument("--devices", type=counts, default=(), metavar="N,N", help="counts of devices, all hosts together")
    step.add_argument(
        "--hosts",
        type=counts,
        default=(),
        metavar="N,N",
        help="counts of hosts (default: as few as hold them, with as many on each as were measured)",
    )
    step.add_argument("--batch", type=positive, metavar="N", help="samples of a step on each device")
    step.add_argument("--global-batch", type=positive, metavar="N", help="or on all devices together")
    step.add_argument(
        "--compute",
        action="append",
        default=[],
        metavar="BATCH=TIME",
        help="how long a device computes: 32=80ms; once for each batch",
    )
    step.add_argument("--overlap", choices=("none", "full", "buckets"), default="", help="default: the workload's")
    step.add_argument("--bucketing", choices=("ddp", "horovod", "layers", "none"), default="", help="so too")
    step.add_argument(
        "--dtype", choices=("float32", "float16", "bfloat16"), default="", help="of the gradients; so too"
    )
    step.add_argument("--zero", type=int, choices=range(4), help="ZeRO stage (3: as FSDP)")
    memory = parser.add_argument_group("memory")
    memory.add_argument("--memory", action="store_true", help="say on how many devices the workload fits")
    memory.add_argument("--device", default="", metavar="NAME", help="a GPU or vGPU profile: A100-80GB, A40-24C")
    memory.add_argument("--device-memory", default="", metavar="SIZE", help='or its memory: "80 GiB"')
    memory.add_argument("--driver-keeps", default="", metavar="SIZE", help="what of it no process gets")
    memory.add_argument("--optimizer", choices=("sgd", "momentum", "adam", "adamw"), default="adamw")
    memory.add_argument("--precision", choices=("mixed", "fp32", "bf16"), default="mixed")
    memory.add_argument("--activations", default="", metavar="SIZE", help="of each device, measured")
    more = parser.add_argument_group("large scale and published systems")
    more.add_argument("--large", action="store_true", help="all_reduce on 8 to 4096 devices, tier by tier")
    more.add_argument("--size", default="", help="of the all_reduce of --large (default: the gradients, or 100 MB)")
    more.add_argument("--reference", default="", metavar="NAME", help="such as mlperf-v1.1-resnet50")
    held = parser.add_argument_group("a forecast held against a measurement")
    held.add_argument(
        "--replay",
        type=Path,
        action="append",
        default=[],
        metavar="RUN",
        help='results with replays (kind = "replay"); forecast from all_reduce of RESULTS, or of the same results',
    )
    held.add_argument(
        "--within",
        type=share,
        default=0.2,
        metavar="SHARE",
        help="how far off is still right, whatever the interval (default: 20%%)",
    )
    parser.add_argument("--format", dest="form", choices=("text", "csv", "json"), default="text")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="also draw the steps: FILE.png, .svg or .pdf")
