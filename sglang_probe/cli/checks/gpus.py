"""Judges of the GPUs: does NVML answer, what is free, who holds the rest, and can that be known here."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from sglang_probe.cli.checks.model import Check, Facts
from sglang_probe.cli.checks.servers import who
from sglang_probe.figures import counted
from sglang_probe.report.plain import printable

FIRST_PID_NAMESPACE: Final = 4026531836
"""The inode of the host's own pid namespace, the same in every Linux."""
HIDDEN_BYTES: Final = {True: 256 << 20, False: 1 << 30}
"""From here on, used memory that nobody listed holds is somebody's: lower where NVML tells the driver's own apart."""
ON_A_CPU: Final = "on a CPU the probe works, and device memory is the host's"


def machine_facts() -> dict[str, Any]:
    """Look at what this machine has of drivers and namespaces, without asking any of them."""
    try:
        namespace: str | None = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        namespace = None
    tools = [name for name in ("amd-smi", "rocm-smi") if shutil.which(name)]
    return {
        "pid_namespace": namespace,
        "nvidia_driver": Path("/proc/driver/nvidia/version").exists() or Path("/dev/nvidiactl").exists(),
        "amd": {"device": Path("/dev/kfd").exists(), "tools": tools},
    }


def devices(nvml: Facts | None) -> list[dict[str, Any]]:
    """Return every GPU and MIG device that memory can be had of, each under its UUID."""
    found: list[dict[str, Any]] = []
    for gpu in (nvml or {}).get("gpus", []):
        if gpu.get("lost"):
            continue
        slices = gpu["mig"]
        found.append({**_device(gpu), "mig": slices is not None, "parent_uuid": None})
        found += [{**_device(one), "mig": True, "parent_uuid": gpu["uuid"]} for one in slices or []]
    return found


def _device(facts: Facts) -> dict[str, Any]:
    device = {key: facts[key] for key in ("index", "uuid", "name", "total_bytes", "used_bytes", "free_bytes")}
    return {**device, "processes": facts["processes"], "unlisted_bytes": unlisted(facts)}


def unlisted(device: Facts) -> int | None:
    """Return the used bytes that no listed process holds, or None where that cannot be known."""
    used, listed = device["used_bytes"], device["processes"]
    if used is None or listed is None or any(one["bytes"] is None for one in listed):
        return None
    rest = used - sum(one["bytes"] for one in listed)
    return rest if rest >= HIDDEN_BYTES[bool(device["reserved_apart"])] else 0


def judge_gpus(nvml: Facts | None, machine: Facts, processes: Sequence[Mapping[str, Any]]) -> list[Check]:
    """Return a check for NVML, one for each GPU, one for each process on them, and one for what cannot be seen."""
    checks = _amd(machine)
    if nvml is None:
        do = "see whether nvidia-smi answers, and dmesg for the driver's own errors"
        return [*checks, Check("nvml", "warning", "does not answer in that time: the driver may hang", do)]
    if nvml["source"] is None:
        return [*checks, _no_nvml(nvml, machine)]
    found = devices(nvml)
    lost = [gpu["index"] for gpu in nvml["gpus"] if gpu.get("lost")]
    says = f"driver {printable(nvml['driver'] or 'unknown')}, by {nvml['source']}, {counted(len(nvml['gpus']), 'GPU')}"
    checks.append(Check("nvml", "ok", says, None, {"driver": nvml["driver"], "source": nvml["source"]}))
    if lost:
        says = f"NVML cannot open its GPU {', '.join(map(str, lost))}: lost, or no permission"
        checks.append(Check("nvml", "warning", says, "see nvidia-smi and dmesg"))
    checks += [_gpu(device) for device in found]
    checks += _tenants(found, machine, processes)
    return checks + _namespace(found, machine, processes)


def _no_nvml(nvml: Facts, machine: Facts) -> Check:
    why = {"why_not": nvml["why_not"]}
    if machine["nvidia_driver"]:
        says = f"there is a driver, but NVML cannot be used: {printable('; '.join(nvml['why_not']))}"
        return Check(
            "nvml", "warning", says, "in a container, give it the driver's libraries (utility capability)", why
        )
    if machine["amd"]["device"]:
        return Check("nvml", "ok", "none, on an AMD machine: readings are torch's alone", None, why)
    return Check("nvml", "ok", f"no NVIDIA GPU here: {ON_A_CPU}", None, why)


def _amd(machine: Facts) -> list[Check]:
    amd = machine["amd"]
    if not amd["device"] and not amd["tools"]:
        return []
    what = [*(["/dev/kfd"] if amd["device"] else []), *amd["tools"]]
    return [Check("amd", "ok", f"{', '.join(what)}: AMD GPUs are read through torch alone", None, dict(amd))]


def _gpu(device: Mapping[str, Any]) -> Check:
    name = printable(device["name"] or "?")
    if device["parent_uuid"]:
        place = (
            f"{printable(device['uuid'])}, MIG device {device['index']} of {printable(device['parent_uuid'])}, {name}"
        )
    else:
        place = f"{printable(device['uuid'])}, nvidia-smi's {device['index']}, {name}"
        if device["mig"]:
            says = f"{place}, in MIG mode: a server sees its MIG devices, not the whole GPU"
            return Check("gpu", "ok", says, None, {"uuid": device["uuid"]})
    says = f"{place}: {_mib(device['free_bytes'])} MiB of {_mib(device['total_bytes'])} free"
    return Check("gpu", "ok", f"{says}, {_mib(device['used_bytes'])} used", None, {"uuid": device["uuid"]})


def _tenants(found: Sequence[Mapping[str, Any]], machine: Facts, processes: Sequence[Mapping[str, Any]]) -> list[Check]:
    checks = []
    by_pid = {one["pid"]: one for one in processes}
    for pid, held in sorted(holders(found).items()):
        one = by_pid.get(pid)
        if one is None or one["orphaned"] or not is_comparable(one, machine):
            continue  # what was left over has a check of its own
        total = [size for size in held.values() if size is not None]
        size = f"{_mib(sum(total))} MiB" if total else "an unknown amount"
        on = ", ".join(printable(uuid) for uuid in held) if len(held) <= 2 else counted(len(held), "GPU")
        server = one["server"] or (pid if one["sglang"] == "launcher" else None)
        do = f"it is of the server of pid {server}" if server else f"if it is yours and not wanted: kill {pid}"
        checks.append(
            Check("gpu_process", "warning", f"{who(one)}: holds {size} of {on}", do, {"pid": pid, "bytes": held})
        )
    return checks


def _namespace(
    found: Sequence[Mapping[str, Any]], machine: Facts, processes: Sequence[Mapping[str, Any]]
) -> list[Check]:
    """Say where processes on the GPUs cannot be named, and why not."""
    by_pid = {one["pid"]: one for one in processes}
    strangers = [pid for pid in sorted(holders(found)) if pid not in by_pid or not is_comparable(by_pid[pid], machine)]
    hidden = {one["uuid"]: one["unlisted_bytes"] for one in found if one["unlisted_bytes"] and not one["mig"]}
    own = has_own_pid_namespace(machine)
    details = {"own_namespace": own, "strangers": strangers, "unlisted_bytes": hidden}
    if not strangers and not hidden:
        return []
    parts = [
        f"{_mib(size)} MiB of {printable(uuid)} are held by nobody that NVML lists" for uuid, size in hidden.items()
    ]
    parts += (
        [f"pid {', '.join(map(str, strangers))} on the GPUs is no process that can be seen here"] if strangers else []
    )
    why = (
        "this container has a pid namespace of its own, so no tenant can be named" if own else "no tenant can be named"
    )
    return [Check("tenants", "warning", f"{'; '.join(parts)}: {why}", "look with nvidia-smi on the host", details)]


def holders(found: Sequence[Mapping[str, Any]]) -> dict[int, dict[str, int | None]]:
    """Return what each pid that NVML lists holds, in bytes by UUID."""
    held: dict[int, dict[str, int | None]] = {}
    for device in found:
        for one in device["processes"] or []:
            of_pid = held.setdefault(one["pid"], {})
            before, uuid = of_pid.get(str(device["uuid"]), 0), str(device["uuid"])
            of_pid[uuid] = None if before is None or one["bytes"] is None else before + one["bytes"]
    return held


def is_comparable(process: Mapping[str, Any], machine: Facts) -> bool:
    """Tell whether the process of that pid here is the one that NVML means."""
    if not process["visible"]:
        return False
    return not (has_own_pid_namespace(machine) and process["holds_device"] is False)


def has_own_pid_namespace(machine: Facts) -> bool | None:
    """Tell whether pids here are not the host's; None where that cannot be known."""
    namespace = machine["pid_namespace"]
    return None if namespace is None else str(FIRST_PID_NAMESPACE) not in namespace


def _mib(size: int | None) -> str:
    return "?" if size is None else f"{size / (1 << 20):,.0f}".replace(",", "")
