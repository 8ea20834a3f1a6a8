"""The transports that carry what ranks send each other: their names, their order, and what a scenario expects of them.

The column `transport` has every transport that a group used, best first, joined with "+":

    nvls            multicast in the NVSwitch
    p2p             one GPU reads or writes the other's memory
    shm             through the host's shared memory
    collnet/gdr, collnet        in the network's switches (SHARP)
    net/ib/gdr, net/ib          InfiniBand or RoCE, with and without GPUDirect RDMA
    net/NAME/gdr, net/NAME      another network plugin of NCCL's; net/libfabric/tcp where libfabric has no RDMA either
    net/socket      TCP

That is what NCCL's log says. Of other libraries the hosts' counters tell it (collbench.evidence): `rdma:DEVICE`,
`tcp:INTERFACE`, `shm` (within the host), `mixed:` with the share of each, or `undecided` where too little moved.
"""

from collections.abc import Iterable

EXPECTATIONS = {
    "nvls": "multicast in the NVSwitch was set up",
    "p2p": "ranks of a host reach each other's memory over NVLink or PCIe, and none goes through the host's memory",
    "shm": "ranks of a host talk through its shared memory",
    "rdma": "what goes over the network goes by RDMA (InfiniBand, RoCE, EFA and their like)",
    "ib": "what goes over the network goes over InfiniBand verbs: InfiniBand or RoCE",
    "gdr": "what goes over the network goes from and to the GPU's memory directly (GPUDirect RDMA)",
    "socket": "what goes over the network goes over TCP",
    "tcp": "the same as socket",
    "collnet": "the network's switches reduce (SHARP)",
}
"""What `[expect] transport` may say; also any transport by its own name, and several words with + between them."""

_ORDER = ("nvls", "p2p", "shm", "collnet/gdr", "collnet", "net/ib/gdr", "net/ib")
_NO_RDMA = ("net/socket", "net/libfabric/tcp")
_RDMA = ("net/ib", "net/gib", "net/libfabric", "collnet")
"""A network that nobody here knows is not taken for RDMA, GPUDirect or not: some plugins do that over TCP."""


def in_order(found: Iterable[str]) -> tuple[str, ...]:
    """Put transports in the order of the column: best first, TCP last."""

    def place(transport: str) -> tuple[int, str]:
        if transport in _ORDER:
            return _ORDER.index(transport), ""
        return len(_ORDER) + (transport in _NO_RDMA), transport

    return tuple(sorted(found, key=place))


def on_network(found: Iterable[str]) -> set[str]:
    """Return those transports that go over a network."""
    return {one for one in found if one.startswith(("net/", "collnet"))}


def expected(transport: str, found: str, hosts: int = 1) -> bool:
    """Say whether what a row's transport column says is what `[expect] transport` asked for.

    Words are those of EXPECTATIONS or transports by name; each of several with + between them must hold. Words of the
    network judge what goes over the network, and fail where nothing does. On one host nothing should, so there p2p and
    shm also fail where anything did.
    """
    counted = found.lower()
    if counted.startswith(("rdma:", "tcp:", "mixed:")):
        return all(_counted(word.strip().lower(), counted) for word in transport.split("+"))
    parts = {part for part in counted.split("+") if part}
    return bool(parts) and all(_holds(word.strip().lower(), parts, hosts) for word in transport.split("+"))


def known(transport: str) -> bool:
    """Whether each word of an expectation is one that a row's column could fulfil."""
    named = (*_ORDER, *_NO_RDMA, *EXPECTATIONS)
    words = [word.strip().lower() for word in transport.split("+")]
    return all(
        word in named or any(word.startswith(kind) and word != kind for kind in ("rdma:", "tcp:", "net/"))
        for word in words
    )


def _counted(word: str, counted: str) -> bool:
    """Whether what the counters say is what a word means; a mixture is nothing but itself."""
    kind = counted.partition(":")[0]
    return word == counted or kind in {"socket": ("tcp",), "ib": ("rdma",)}.get(word, (word,))


def _holds(word: str, parts: set[str], hosts: int) -> bool:
    network = on_network(parts)
    inside = parts if hosts == 1 else parts - network
    if word == "p2p":
        return "p2p" in inside and inside <= {"p2p", "nvls"}
    if word == "shm":
        return "shm" in inside and inside <= {"shm", "p2p", "nvls"}
    if word in ("socket", "tcp"):
        return bool(network) and network <= set(_NO_RDMA)
    if word == "rdma":
        return bool(network) and {part.removesuffix("/gdr") for part in network} <= set(_RDMA)
    if word == "ib":
        return bool(network) and network <= {"net/ib", "net/ib/gdr"}
    if word == "gdr":
        return bool(network) and all(part.endswith("/gdr") for part in network)
    if word == "collnet":
        return bool(parts & {"collnet", "collnet/gdr"})
    return word in parts
