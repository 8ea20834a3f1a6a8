"""How a CUDA device fares around a case: clocks, temperature, power, what held its clocks back, memory errors.

    before = read(uuid)
    ...                                       the case
    row_notes = notes(before, read(uuid))     flags for the row: throttled, ecc_errors

`read` makes a dozen calls into NVML and raises nothing; what a device does not tell is None.
"""

import time
from dataclasses import dataclass

from collbench.nvml import opened

# nvmlClocksEventReason*: what counts as throttling. Not: idle, clocks that somebody set, sync boost, a display's clock.
REASONS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
}
_POLICIES = (0, 1)  # NVML_PERF_POLICY_POWER, NVML_PERF_POLICY_THERMAL
_LEAST_SHARE = 0.005
"""Held back for less of the case's time than this, a device is not called throttled: its counters move in steps."""
_SM, _MEMORY = 1, 2  # nvmlClockType_t
_CORRECTED, _UNCORRECTED = 0, 1  # nvmlMemoryErrorType_t
_SINCE_START = 0  # NVML_VOLATILE_ECC


@dataclass(frozen=True)
class Health:
    """One reading. Clocks in Hz, `held_back_s` since the driver was loaded, `busy` is the share of the last moments.

    `processes` is how many processes compute on the device, as far as this system sees them: not those of other VMs.
    """

    at_s: float
    sm_clock_hz: float | None = None
    memory_clock_hz: float | None = None
    temperature_celsius: int | None = None
    power_watt: float | None = None
    reasons: tuple[str, ...] = ()
    held_back_s: float | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    busy: float | None = None
    processes: int | None = None


def read(uuid: str) -> Health:
    """Read a device's state; of an instance of one (MIG), the whole device's."""
    library, at_s = opened(), time.monotonic()
    handle = library.handle(uuid) if library else None
    if library is None or handle is None:
        return Health(at_s)
    device = library.whole(handle)
    # Drivers from before 2023 have the reasons under their old name.
    reasons = library.number("nvmlDeviceGetCurrentClocksEventReasons", device)
    if reasons is None:
        reasons = library.number("nvmlDeviceGetCurrentClocksThrottleReasons", device)
    violations = [library.ask("nvmlDeviceGetViolationStatus", device, policy) for policy in _POLICIES]
    held_back = [one.violationTime * 1e-9 for one in violations if hasattr(one, "violationTime")]
    rates = library.ask("nvmlDeviceGetUtilizationRates", device)
    processes = library.ask("nvmlDeviceGetComputeRunningProcesses", device)
    return Health(
        at_s=at_s,
        sm_clock_hz=_times(library.number("nvmlDeviceGetClockInfo", device, _SM), 1e6),
        memory_clock_hz=_times(library.number("nvmlDeviceGetClockInfo", device, _MEMORY), 1e6),
        temperature_celsius=library.number("nvmlDeviceGetTemperature", device, 0),
        power_watt=_times(library.number("nvmlDeviceGetPowerUsage", device), 1e-3),
        reasons=tuple(word for bit, word in REASONS.items() if (reasons or 0) & bit),
        held_back_s=sum(held_back) if held_back else None,
        ecc_corrected=library.number("nvmlDeviceGetTotalEccErrors", device, _CORRECTED, _SINCE_START),
        ecc_uncorrected=library.number("nvmlDeviceGetTotalEccErrors", device, _UNCORRECTED, _SINCE_START),
        busy=rates.gpu / 100 if hasattr(rates, "gpu") else None,
        processes=len(processes) if isinstance(processes, list) else None,
    )


def notes(before: Health, after: Health) -> tuple[str, ...]:
    """Return the flags of a row between two readings: throttled, ecc_errors."""
    found = []
    elapsed_s = after.at_s - before.at_s
    held_back_s = (after.held_back_s or 0.0) - (before.held_back_s or 0.0)
    both = after.held_back_s is not None and before.held_back_s is not None
    if after.reasons or before.reasons or (both and held_back_s > _LEAST_SHARE * elapsed_s > 0):
        found.append("throttled")
    if _rose(before.ecc_corrected, after.ecc_corrected) or _rose(before.ecc_uncorrected, after.ecc_uncorrected):
        found.append("ecc_errors")
    return tuple(found)


def _rose(before: int | None, after: int | None) -> bool:
    return before is not None and after is not None and after > before


def _times(number: int | None, unit: float) -> float | None:
    return None if number is None else number * unit
