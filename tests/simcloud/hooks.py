"""Lifecycle hooks: who waits for what, for how long, and what comes of it.

Source: Auto Scaling user guide, "Lifecycle hooks": an instance waits until every hook of its transition is completed, or
timed out with the hook's default result; ABANDON at a launch ends the instance, at a termination it only ends the waiting;
a wait is never longer than 48 hours or 100 heartbeats, whichever is less.
"""

from collections.abc import Callable

from tests.simcloud.errors import CloudError
from tests.simcloud.groups import LAUNCHING, Group, Hook, Member, Wait
from tests.simcloud.kernel import Kernel

Then = Callable[[bool], None]
"""Called when nothing is waited for any more; False: abandoned."""
Tell = Callable[[Group, Member, Wait], None]
_LONGEST_S = 48 * 3600.0


class HookWaits:
    """See the module's docstring."""

    def __init__(self, kernel: Kernel, tell: Tell) -> None:
        self._kernel = kernel
        self._tell = tell
        self._then: dict[str, Then] = {}

    def start(self, group: Group, member: Member, transition: str, then: Then) -> None:
        """Wait for every hook of the transition, then go on; at once where there is none."""
        hooks = [hook for hook in group.hooks.values() if hook.transition == transition]
        if not hooks:
            then(True)
            return
        member.lifecycle = f"{_phase(transition)}:Wait"
        self._then[member.instance.instance_id] = then
        for hook in hooks:
            self._await(group, member, hook)

    def _await(self, group: Group, member: Member, hook: Hook) -> None:
        timer = self._kernel.after(hook.timeout_s, lambda: self._result(member, hook.name, hook.default_result))
        wait = Wait(hook=hook, token=self._kernel.uuid(), timer=timer, began_at_s=self._kernel.now_s())
        member.waits[hook.name] = wait
        self._tell(group, member, wait)

    def complete(self, member: Member, hook_name: str, token: str | None, result: str) -> None:
        """CompleteLifecycleAction."""
        self._active(member, hook_name, token)
        self._result(member, hook_name, result)

    def heartbeat(self, member: Member, hook_name: str, token: str | None) -> None:
        """RecordLifecycleActionHeartbeat: the hook's time-out begins anew."""
        wait = self._active(member, hook_name, token)
        hook = wait.hook
        wait.timer.cancel()
        longest_s = min(_LONGEST_S, 100.0 * hook.timeout_s)
        left_s = wait.began_at_s + longest_s - self._kernel.now_s()
        wait.timer = self._kernel.after(
            min(float(hook.timeout_s), left_s), lambda: self._result(member, hook.name, hook.default_result)
        )

    def drop(self, member: Member) -> None:
        """Its instance is gone: nothing is waited for."""
        for wait in member.waits.values():
            wait.timer.cancel()
        member.waits.clear()
        self._then.pop(member.instance.instance_id, None)

    def _active(self, member: Member, hook_name: str, token: str | None) -> Wait:
        wait = member.waits.get(hook_name)
        if wait is None or (token and token != wait.token):
            which = f"token {token}" if token else f"instance ID {member.instance.instance_id}"
            raise CloudError("ValidationError", f"No active Lifecycle Action found with {which}")
        return wait

    def _result(self, member: Member, hook_name: str, result: str) -> None:
        wait = member.waits.pop(hook_name)
        wait.timer.cancel()
        abandoned = result == "ABANDON"
        if member.waits and not abandoned:
            return
        then = self._then[member.instance.instance_id]
        self.drop(member)
        member.lifecycle = f"{_phase(wait.hook.transition)}:Proceed"
        then(not abandoned)


def _phase(transition: str) -> str:
    return "Pending" if transition == LAUNCHING else "Terminating"
