"""A Pod's state and cause in the console's words: OOMKilled, CrashLoopBackOff, ImagePullBackOff, evicted, node lost."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from sandbox_console.backends.kubernetes.objects import (
    Condition,
    Container,
    ContainerStatus,
    Pod,
    PodSpec,
    State,
    Terminated,
    Waiting,
)
from sandbox_console.model.sandbox import Exit, Status

MAIN = "kubectl.kubernetes.io/default-container"
"""The annotation that names the main one of several containers."""

_LONGEST = 300
_STARTING = ("ContainerCreating", "PodInitializing", "")
_SIGNALLED = 128
_KILLED = 137


class Judged(Struct, frozen=True):
    """A Pod's state. Times are seconds since the epoch; ``detail`` is a line for a person."""

    status: Status
    detail: str = ""
    exit: Exit | None = None
    started_at: float | None = None
    finished_at: float | None = None
    restarts: int = 0


def judge(pod: Pod) -> Judged:
    """The state of a Pod, by its main container."""
    main = main_status(pod)
    begun, ended = _times(main)
    restarts = main.restart_count if main else 0
    status, detail, end = _state(pod, main)
    over = not status.live
    if over and ended is None:
        ended = _deadline(pod)
    return Judged(status, detail, end if over else None, begun, ended if over else None, restarts)


def _state(pod: Pod, main: ContainerStatus | None) -> tuple[Status, str, Exit | None]:
    if reason := _node_lost(pod):
        return Status.LOST, reason, None
    if pod.metadata.deletion_timestamp is not None:
        return Status.STOPPING, _disruption(pod), None
    status = pod.status
    ended = _terminated(main)
    if status.phase == "Failed" and (reason := _taken_away(pod)):
        return Status.LOST, reason, exit_of(ended)
    match status.phase:
        case "Failed" if status.reason == "DeadlineExceeded":
            return Status.EXITED, "", Exit(reason="max_duration ran out")
        case "Failed" | "Succeeded":
            return Status.EXITED, _because(status.reason, status.message), exit_of(ended)
        case "Running" | "Pending":
            return _begun(pod, main)
    return Status.UNKNOWN, _because(status.reason, status.message), None


def _begun(pod: Pod, main: ContainerStatus | None) -> tuple[Status, str, Exit | None]:
    if (scheduled := _condition(pod, "PodScheduled")) is not None and scheduled.status == "False":
        reason = "unschedulable" if scheduled.reason == "Unschedulable" else scheduled.reason
        return Status.FAILED, _because(reason, scheduled.message), None
    if found := _initializing(pod):
        return found
    if main is None:
        return Status.STARTING, "", None
    if main.state.running is not None:
        return Status.RUNNING, "", None
    if main.state.terminated is not None:
        return Status.EXITED, "", exit_of(main.state.terminated)
    return _waiting(main.state.waiting or Waiting(), main.last_state)


def _waiting(waiting: Waiting, last: State) -> tuple[Status, str, Exit | None]:
    reason = waiting.reason or ""
    if reason in _STARTING:
        return Status.STARTING, "", None
    detail = _because(reason, waiting.message)
    if reason == "CrashLoopBackOff":  # it ran: how it ended the last time is the cause
        return Status.EXITED, detail, exit_of(last.terminated)
    return Status.FAILED, detail, exit_of(last.terminated)


def _initializing(pod: Pod) -> tuple[Status, str, Exit | None] | None:
    """What an init container keeps waiting for; None if all have ended well."""
    for one in pod.status.init_container_statuses or ():
        ended = one.state.terminated
        if (ended is not None and ended.exit_code == 0) or (one.state.running is not None and one.ready):
            continue
        where = f"init container {one.name}"
        if one.state.running is not None:
            return Status.STARTING, f"{where} runs", None
        if ended is not None:
            return Status.FAILED, f"{where}: {_because(ended.reason, ended.message)} (exit {ended.exit_code})", None
        status, detail, _ = _waiting(one.state.waiting or Waiting(), one.last_state)
        last = one.last_state.terminated
        if last is not None:
            detail = f"{detail} (exit {last.exit_code})"
        return (Status.FAILED if status is Status.EXITED else status), f"{where}: {detail}" if detail else "", None
    return None


def _node_lost(pod: Pod) -> str:
    """Why its node seems to be gone: the controller of nodes, not the kubelet, says that the Pod is not ready."""
    if pod.status.reason == "NodeLost":
        return _because("node lost", pod.status.message or pod.spec.node_name)
    ready, containers = _condition(pod, "Ready"), _condition(pod, "ContainersReady")
    if ready is None or containers is None or pod.spec.readiness_gates or pod.status.phase != "Running":
        return ""
    if ready.status == "False" and containers.status == "True":
        return f"node lost: {pod.spec.node_name} does not answer, so its Pods' state is not known"
    return ""


_TAKEN = {"Evicted": "evicted", "Preempting": "preempted", "NodeShutdown": "its node was shut down",
          "Terminated": "its node was shut down", "NodeAffinity": "its node no longer fits",
          "UnexpectedAdmissionError": "its node refused it"}  # fmt: skip
_DISRUPTED = {"PreemptionByScheduler": "preempted", "PreemptionByKubeScheduler": "preempted",
              "EvictionByEvictionAPI": "evicted", "DeletionByTaintManager": "evicted from its node",
              "TerminationByKubelet": "ended by its node", "DeletionByPodGC": "its node is gone"}  # fmt: skip


def _taken_away(pod: Pod) -> str:
    if pod.status.reason in _TAKEN:
        return _because(_TAKEN[pod.status.reason], pod.status.message)
    return _disruption(pod)


def _disruption(pod: Pod) -> str:
    target = _condition(pod, "DisruptionTarget")
    if target is None or target.status != "True":
        return ""
    return _because(_DISRUPTED.get(target.reason or "", target.reason), target.message)


def exit_of(ended: Terminated | None) -> Exit | None:
    """How a container ended. Only the kubelet's word OOMKilled says that memory ran out."""
    if ended is None:
        return None
    oom = ended.reason == "OOMKilled"
    signal = ended.signal or (ended.exit_code - _SIGNALLED if _SIGNALLED < ended.exit_code <= 192 else None)
    known = ended.reason in (None, "Completed", "Error", "OOMKilled")
    reason = "" if known else _because(ended.reason, ended.message)
    if oom and signal is None:
        return Exit(ended.exit_code, None, oom=True, reason=reason)
    return Exit(_KILLED if oom else ended.exit_code, signal, oom=oom, reason=reason)


def main_container(pod: Pod) -> Container | None:
    """The main container: the one that the usual annotation names, else the first."""
    wanted = (pod.metadata.annotations or {}).get(MAIN)
    named = [one for one in pod.spec.containers if one.name == wanted]
    return next(iter(named or pod.spec.containers), None)


def containers_of(spec: PodSpec) -> tuple[Container, ...]:
    """The containers of a Pod, then its init containers."""
    return (*spec.containers, *(spec.init_containers or ()))


def status_of(pod: Pod, name: str) -> ContainerStatus | None:
    """The state of a container by its name; None before it has one."""
    every = (*(pod.status.container_statuses or ()), *(pod.status.init_container_statuses or ()))
    return next((one for one in every if one.name == name), None)


def main_status(pod: Pod) -> ContainerStatus | None:
    """The state of the main container; None before it has one."""
    main = main_container(pod)
    return next((one for one in pod.status.container_statuses or () if main is None or one.name == main.name), None)


def _terminated(main: ContainerStatus | None) -> Terminated | None:
    return None if main is None else main.state.terminated or main.last_state.terminated


def _times(main: ContainerStatus | None) -> tuple[float | None, float | None]:
    if main is None:
        return None, None
    if main.state.running is not None:
        return seconds(main.state.running.started_at), None
    ended = _terminated(main)
    return (seconds(ended.started_at), seconds(ended.finished_at)) if ended else (None, None)


def _deadline(pod: Pod) -> float | None:
    """When its time was over. The kubelet tells no end of a container that it ended for that."""
    begun, lasts = seconds(pod.status.start_time), pod.spec.active_deadline_seconds
    late = pod.status.reason == "DeadlineExceeded"
    return begun + lasts if late and begun is not None and lasts is not None else None


def _condition(pod: Pod, kind: str) -> Condition | None:
    return next((one for one in pod.status.conditions or () if one.type == kind), None)


def _because(reason: str | None, message: str | None) -> str:
    return ": ".join(part for part in (reason or "", (message or "").strip()[:_LONGEST]) if part)


def seconds(text: str | None) -> float | None:
    """A time of Kubernetes in seconds since the epoch; None if there is none, or it is no time."""
    try:
        return datetime.fromisoformat(text).timestamp() if text else None
    except (ValueError, OverflowError, OSError):
        return None
