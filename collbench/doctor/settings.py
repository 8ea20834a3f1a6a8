"""Settings that decide paths and algorithms: those of the environment, and those that files add without a word.

NCCL takes the first value that it finds: the environment, then NCCL_CONF_FILE or else ~/.nccl.conf, then /etc/nccl.conf
(its src/misc/param.cc). Open MPI reads OMPI_MCA_NAME, then ~/.openmpi/mca-params.conf, then
etc/openmpi-mca-params.conf of its installation (Open MPI documentation, "Setting MCA parameter values"). In UCX the
environment goes before ucx.conf of the working directory, of UCX_CONFIG_DIR, of HOME, and of its installation (its
src/ucs/config/parser.c).
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from collbench import provenance
from collbench.doctor.finding import Finding, Seen, difference, on_hosts
from collbench.doctor.mpi_library import library_path
from collbench.files import text

CHECK = "settings"

_ENVIRONMENT = "the environment"
_SHOWN = 6
_DEBIAN = "/etc/openmpi/openmpi-mca-params.conf"
"""Where an Open MPI that came with the distribution has it (Debian, and those that follow it)."""
_SOURCE = "NCCL user guide (NCCL_CONF_FILE), Open MPI documentation (mca-params.conf), UCX documentation (ucx.conf)"
_MINE_ALONE = (
    "COLLBENCH_", "SLURM_", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "PMIX_MCA_", "PRTE_MCA_",
    "OMPI_MCA_orte_", "OMPI_MCA_ess_", "OMPI_MCA_pmix", "OMPI_MCA_initial_wdir",
)  # fmt: skip
"""What launchers themselves set, and what differs from rank to rank by its nature."""


@dataclass(frozen=True)
class Setting:
    """One setting, by the name that it has in the environment, and the file or "the environment" that it is from."""

    name: str
    value: str
    source: str


@dataclass(frozen=True)
class Facts:
    """What holds (one Setting a name), and what the files hold, in the order in which the libraries look."""

    effective: tuple[Setting, ...] = ()
    in_files: tuple[Setting, ...] = ()


def measure(root: str = "", environ: Mapping[str, str] | None = None, mpi_path: str | None = None) -> Facts:
    """Read the environment (by provenance's allow-list; secrets never) and the files."""
    environ = os.environ if environ is None else environ
    in_files = tuple(_in_files(root, environ, library_path(root) if mpi_path is None else mpi_path))
    effective: dict[str, Setting] = {}
    for name, value in provenance.settings(environ).items():
        effective[name] = Setting(name, value, _ENVIRONMENT)
    for setting in in_files:
        effective.setdefault(setting.name, setting)
    return Facts(tuple(effective.values()), in_files)


def by_file() -> dict[str, dict[str, str]]:
    """What the files on this host hold, by file: for the record of a launch."""
    found: dict[str, dict[str, str]] = {}
    home = os.environ.get("HOME", "")
    for one in measure().in_files:
        inside = home and one.source.startswith(f"{home}/")
        found.setdefault(f"~{one.source.removeprefix(home)}" if inside else one.source, {})[one.name] = one.value
    return found


def value_of(facts: Facts, *names: str) -> Setting | None:
    """The setting of the first of these names that has one."""
    by_name = {one.name: one for one in facts.effective}
    return next((by_name[name] for name in names if name in by_name), None)


def findings(ranks: Sequence[Seen[Facts]]) -> list[Finding]:
    """Tell what files hold, and what is not alike on all hosts."""
    by_host: dict[str, Facts] = {}
    for one in ranks:
        by_host.setdefault(one.host, one.facts)
    found = []
    names = dict.fromkeys(setting.name for facts in by_host.values() for setting in facts.effective)
    for name in names:
        if not name.startswith(_MINE_ALONE):
            found += difference(
                CHECK,
                name,
                {host: _told(value_of(facts, name)) for host, facts in by_host.items()},
                why="ranks that are set differently may take different paths, or wait for each other for ever",
                remedy="set it alike on every host; Open MPI hands variables on with -x NAME, MPICH by itself",
                source="nccl#234, #769",
            )
    return found + on_hosts({host: list(_of_files(facts)) for host, facts in by_host.items()})


def _of_files(facts: Facts) -> Iterator[Finding]:
    for path in dict.fromkeys(one.source for one in facts.in_files):
        mine = [one for one in facts.in_files if one.source == path]
        shown = ", ".join(f"{one.name}={one.value}" for one in mine[:_SHOWN])
        more = f" and {len(mine) - _SHOWN} more" if len(mine) > _SHOWN else ""
        why = "it holds wherever the environment says nothing, and no command line shows it"
        remedy = "know of it, or empty the file"
        yield Finding(CHECK, "note", f"{path} sets {shown}{more}", why, remedy, _SOURCE)


def _told(setting: Setting | None) -> str:
    if setting is None:
        return "not set"
    return setting.value if setting.source == _ENVIRONMENT else f"{setting.value} (from {setting.source})"


def _in_files(root: str, environ: Mapping[str, str], mpi_path: str) -> Iterator[Setting]:
    home = environ.get("HOME", "")
    own = environ.get("NCCL_CONF_FILE") or f"{home}/.nccl.conf"
    for path in (own, "/etc/nccl.conf"):
        yield from _pairs(root, path, "")
    prefix = environ.get("OPAL_PREFIX") or (str(PurePosixPath(mpi_path).parent.parent) if mpi_path else "")
    if prefix:
        of_system = _DEBIAN if mpi_path.startswith("/usr/lib") else f"{prefix}/etc/openmpi-mca-params.conf"
        for path in (f"{home}/.openmpi/mca-params.conf", of_system):
            yield from _pairs(root, path, "OMPI_MCA_")
    own_ucx = f"{prefix}/etc/ucx" if prefix else ""
    for folder in dict.fromkeys((str(Path.cwd()), environ.get("UCX_CONFIG_DIR", ""), home, own_ucx, "/etc/ucx")):
        if folder:
            yield from _pairs(root, f"{folder}/ucx.conf", "")


def _pairs(root: str, path: str, prefix: str) -> Iterator[Setting]:
    """The settings of a file of lines NAME=value; `prefix` is what the names have in front in the environment."""
    for line in (text(f"{root}{path}") or "").splitlines():
        name, equals, value = (part.strip() for part in line.partition("="))
        if equals and name and not name.startswith(("#", ";", "[")):
            kept = provenance.settings({prefix + name: value})
            yield from (Setting(known, what, path) for known, what in kept.items())
