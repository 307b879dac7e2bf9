"""``phase(sync=True)``: waits until the GPU has done what was queued, so that wall time means GPU time.

Never imports torch: a program that has not loaded it has queued nothing. Never makes a CUDA context either, unless it
was asked to with ``cuda_sync=True``.
"""

import sys

failures = 0
"""How many times torch raised; such a phase is timed without its GPU work."""


def drain(policy: "bool | None") -> bool:
    """Waits for the current CUDA device; True if it did. Raises nothing of torch's or its own.

    What a signal's handler raises while it waits is the program's and goes on to it: its Ctrl-C, its time limit.

    `policy` is ``Profiler(cuda_sync=)``: None waits only where this process already has a CUDA context, False never,
    True wherever torch is loaded and sees a device.
    """
    global failures
    torch = sys.modules.get("torch") if policy is not False else None
    if torch is None:
        return False
    try:
        cuda = torch.cuda
        if policy is None and not cuda.is_initialized():
            return False
        if policy is True and not (cuda.is_initialized() or cuda.is_available()):
            return False
        cuda.synchronize()
    except Exception as error:
        if _is_of_a_handler(error):
            raise
        # A half-imported torch, a lost device: the program has its own ways to learn of it.
        failures += 1
        return False
    return True


def _is_of_a_handler(error: BaseException) -> bool:
    """True if a handler of a signal was running when `error` was raised."""
    signal = sys.modules.get("signal")
    if signal is None:
        return False  # only by it a program sets one
    codes = set()
    for number in range(1, signal.NSIG):
        handler = signal.getsignal(number)
        handler = getattr(handler, "__func__", handler)
        called = getattr(type(handler), "__call__", None)  # noqa: B004 -- not whether, but what
        codes.add(getattr(handler, "__code__", None) or getattr(called, "__code__", None))
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code not in codes:
        traceback = traceback.tb_next
    return traceback is not None
