"""Where requests wait (RP-38): delayed operations keyed by partition, on one hierarchical timing wheel."""

from barnabas.broker.purgatory.delayed import DelayedOperation, Purgatory
from barnabas.broker.purgatory.timing_wheel import Timer, TimerTask, TimerThread

__all__ = ["DelayedOperation", "Purgatory", "Timer", "TimerTask", "TimerThread"]
